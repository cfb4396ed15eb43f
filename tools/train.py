"""`python -m tools.train`: labelled texts in, a classifier in Hugging Face layout out."""

import argparse
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from loader.errors import CheckpointError
from loader.tokenizers.bert_normalizer import Casing
from loader.tokenizers.bert_words import words
from tools.training import card, checkpoint, encoder, options, tokens, vocabulary
from tools.training.report import Progress, Report, compare, total
from tools.training.texts import Labelled, TrainingError, folds, read_tsv

if TYPE_CHECKING:
    from tools.training.network import Classifier

HELD_OUT_PARTS = 10     # without --eval one of so many is held out
FOLDS_SEED = 0          # which texts are held out does not hang on --seed


class Trained(NamedTuple):
    """A network, the config and tokens it was made with, and the longest text it saw (tokens)."""

    network: "Classifier"
    config: dict
    tokens: tokens.Tokens
    longest: int


def main(argv: list[str] | None = None) -> int:
    """Trains, prints the held-out report, writes the folder; 2 with one sentence if it cannot."""
    parser = options.parser()
    chosen = parser.parse_args(argv)
    try:
        _settle(chosen)
        if chosen.folds:
            return _cross_validate(chosen)
        return _train_and_write(chosen, parser)
    except (TrainingError, CheckpointError) as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130


def _settle(chosen: argparse.Namespace) -> None:
    """Fills in what hangs on other flags, and refuses flags that contradict each other."""
    if chosen.folds and (chosen.out or chosen.eval):
        raise TrainingError("--folds reports on parts of TRAIN.tsv and writes nothing; leave out "
                            "--out and --eval")
    if not chosen.folds and not chosen.out:
        raise TrainingError("--out is missing: name the folder to write")
    if chosen.init and (chosen.vocab or chosen.cased):
        raise TrainingError("--init brings its own tokenizer; leave out --vocab and --cased")
    if chosen.width % chosen.heads:
        raise TrainingError(f"--width {chosen.width} is no multiple of --heads {chosen.heads}; "
                            "change one of them")
    rate, epochs = (options.ENCODER_RATE, options.ENCODER_EPOCHS) if chosen.init else \
        (options.NEW_RATE, options.NEW_EPOCHS)
    chosen.learning_rate = chosen.learning_rate or rate
    chosen.epochs = chosen.epochs or epochs


def _train_and_write(chosen: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    checkpoint.check_place(chosen.out, chosen.force)
    first = card.opening(chosen)
    data = read_tsv(chosen.train)
    if chosen.eval:
        held, held_out = read_tsv(chosen.eval, data.names), chosen.eval
        sources = [chosen.train, chosen.eval]
    else:
        data, held = folds(data, HELD_OUT_PARTS, random.Random(FOLDS_SEED))[0]
        held_out, sources = f"a tenth of {chosen.train}, held out", [chosen.train]
    trained = _fit(chosen, data, Progress())
    report = _report(trained, held)
    print(report.text())
    counts = Counter(data.labels)
    facts = [f"{len(data.texts):,} texts: " + ", ".join(
                 f"{counts[index]:,} {name}" for index, name in enumerate(data.names)),
             _longest(trained),
             *(f"{path}: sha256 {card.fingerprint(path)}…" for path in sources)]
    text = card.model_card(first, card.command(parser, chosen), facts, held_out, report)
    arrays = {name: tensor.numpy() for name, tensor in trained.network.state_dict().items()}
    checkpoint.write(chosen.out, trained.config, data.names, arrays,
                     {**trained.tokens.files, "README.md": text.encode()})
    print(f"wrote {chosen.out}", file=sys.stderr)
    return 0


def _cross_validate(chosen: argparse.Namespace) -> int:
    """Every text is judged once, by a network (and a vocabulary) that has not seen it."""
    data = read_tsv(chosen.train)
    reports = []
    for number, (rest, held) in enumerate(
            folds(data, chosen.folds, random.Random(FOLDS_SEED)), 1):
        reports.append(_report(_fit(chosen, rest, Progress(f"fold {number}  ")), held))
        print(f"fold {number} of {chosen.folds}: {reports[-1].line()}", flush=True)
    print(total(reports).text())
    return 0


def _fit(chosen: argparse.Namespace, data: Labelled, progress: Progress) -> Trained:
    import torch  # late, so that --help and refusals come at once
    from tools.training.loop import Recipe, train
    from tools.training.network import Classifier, count_parameters, load
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    config, parameters, kept = _start(chosen, data)
    network = Classifier(config, len(data.names))
    load(network, parameters)
    rows = kept.encode(data.texts)
    print(f"{len(rows):,} texts, {len(data.names)} labels; {kept.size:,} tokens, "
          f"{count_parameters(network):,} parameters", file=sys.stderr)
    recipe = Recipe(chosen.epochs, chosen.batch, chosen.learning_rate, chosen.weight_decay,
                    chosen.warm_up, chosen.word_dropout, chosen.label_smoothing, chosen.balance,
                    chosen.seed)
    train(network, rows, data.labels, kept.unknown, recipe, progress)
    return Trained(network, config, kept, max(map(len, rows)))


def _start(chosen: argparse.Namespace, data: Labelled) -> encoder.Encoder:
    """What training starts from: an encoder, or new sizes with a vocabulary."""
    if chosen.init:
        return encoder.read_encoder(chosen.init, chosen.dropout)
    if chosen.vocab:
        try:
            listed = chosen.vocab.read_bytes()
        except OSError as error:
            raise TrainingError(f"{chosen.vocab}: {error.strerror}") from None
    else:
        casing = Casing(not chosen.cased, not chosen.cased, True)
        learnt = vocabulary.learn((word for text in data.texts for word in words(text, casing)),
                                  chosen.vocab_size)
        listed = "".join(f"{token}\n" for token in learnt).encode()
    try:
        kept = tokens.from_vocabulary(listed, not chosen.cased, chosen.positions)
    except CheckpointError as error:
        raise TrainingError(f"{chosen.vocab or chosen.train}: {error}") from None
    config = encoder.new_config(kept.size, chosen.layers, chosen.width, chosen.heads,
                                chosen.positions, chosen.dropout, kept.pad)
    return encoder.Encoder(config, {}, kept)


def _longest(trained: Trained) -> str:
    if trained.longest == trained.tokens.limit:
        return f"Texts of more than {trained.longest} tokens were cut."
    return f"The longest text had {trained.longest} tokens; later positions were not trained."


def _report(trained: Trained, held: Labelled) -> Report:
    from tools.training.loop import predict
    guesses = predict(trained.network, trained.tokens.encode(held.texts))
    return compare(held.names, held.labels, guesses)


if __name__ == "__main__":
    sys.exit(main())
