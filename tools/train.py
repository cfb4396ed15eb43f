"""`python -m tools.train`: labelled texts in, a classifier in Hugging Face layout out."""

import argparse
import random
import sys
from pathlib import Path

from loader.errors import CheckpointError
from loader.tokenizers.bert_normalizer import Casing
from loader.tokenizers.bert_words import words
from tools.training import checkpoint, texts, vocabulary
from tools.training.report import Progress, Report, compare


def main(argv: list[str] | None = None) -> int:
    """Trains, prints the held-out report, writes the folder; 2 with one sentence if it cannot."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except (texts.TextsError, CheckpointError) as refusal:
        print(refusal, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.train", description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("train", help="label<TAB>text a line, UTF-8")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--force", action="store_true", help="replace the folder if it exists")
    parser.add_argument("--eval", help="texts to report on; never used to choose anything "
                        "(without it: a tenth of the training texts is held out)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and drop-out")
    parser.add_argument("--threads", type=int, default=1, help="cores to train on")
    parser.add_argument("--card", type=Path, help="text that opens the model's README.md")
    start = parser.add_argument_group("where it starts")
    start.add_argument("--init", help="BERT encoder checkpoint to start from, with its vocabulary")
    start.add_argument("--vocab", type=Path, help="vocab.txt to take instead of learning one")
    start.add_argument("--vocab-size", type=int, default=6000, help="tokens to learn at most")
    start.add_argument("--cased", action="store_true", help="keep upper case and accents")
    size = parser.add_argument_group("a new network's size")
    size.add_argument("--layers", type=int, default=2)
    size.add_argument("--width", type=int, default=128)
    size.add_argument("--heads", type=int, default=2)
    size.add_argument("--positions", type=int, default=512, help="longest text in tokens")
    size.add_argument("--dropout", type=float, default=0.1)
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--epochs", type=int, default=10)
    recipe.add_argument("--batch", type=int, default=32)
    recipe.add_argument("--learning-rate", type=float, default=1e-3)
    recipe.add_argument("--word-dropout", type=float, default=0.1)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.out.exists() and not options.force:
        raise texts.TextsError(f"{options.out} exists; choose another folder or add --force")
    data = texts.read_tsv(options.train)
    if options.eval:
        held = texts.read_tsv(options.eval, data.names)
    else:
        data, held = texts.hold_out(data, 0.1, random.Random(0))
    import torch        # late, so that --help and refusals come at once
    from tools.training.loop import Recipe, predict, train
    from tools.training.network import Classifier, count_parameters
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    config, parameters, tokens, lower_case = _start(options, data)
    tokenizer = checkpoint.text_tokenizer(tokens, lower_case)
    limit = config["max_position_embeddings"]
    rows = [tokenizer.encode(text, None, limit).ids for text in data.texts]
    network = Classifier(config, len(data.names))
    if parameters:
        _load(network, parameters, options.init)
    print(f"{len(rows)} texts, labels {', '.join(data.names)}; {len(tokens)} tokens, "
          f"{count_parameters(network):,} parameters", file=sys.stderr)
    recipe = Recipe(options.epochs, options.batch, options.learning_rate,
                    word_dropout=options.word_dropout, seed=options.seed)
    train(network, rows, data.labels, tokens.index("[UNK]"), recipe, Progress())
    guesses = predict(network, [tokenizer.encode(text, None, limit).ids for text in held.texts])
    report = compare(data.names, held.labels, guesses)
    print(report.text())
    arrays = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
    checkpoint.write(options.out, config, data.names, tokens, lower_case, arrays,
                     _card(options, report))
    print(f"wrote {options.out}", file=sys.stderr)
    return 0


def _start(options: argparse.Namespace, data: texts.Labelled) -> tuple[dict, dict, list[str], bool]:
    """(config, parameters, tokens, lower_case): of an encoder, or new with a vocabulary."""
    if options.init:
        return checkpoint.read_encoder(options.init)
    if options.vocab:
        try:
            tokens = options.vocab.read_text("utf-8").removesuffix("\n").split("\n")
        except OSError as error:
            raise texts.TextsError(f"{options.vocab}: {error.strerror}") from None
    else:
        casing = Casing(not options.cased, not options.cased, True)
        tokens = vocabulary.learn(
            (word for text in data.texts for word in words(text, casing)), options.vocab_size)
    config = checkpoint.model_config(len(tokens), options.layers, options.width, options.heads,
                                     options.positions, options.dropout)
    return config, {}, tokens, not options.cased


def _load(network, parameters: dict, source: str) -> None:
    import torch
    known = network.state_dict()
    for name, array in parameters.items():
        if name not in known or tuple(known[name].shape) != array.shape:
            raise CheckpointError(f"{source}: {name} {list(array.shape)} has no place in a BERT of "
                                  "config.json's sizes.")
    missing = [name for name in known if name not in parameters
               and not name.startswith(("classifier.", "bert.pooler."))]
    if missing:
        raise CheckpointError(f"{source}: {missing[0]} is missing from model.safetensors.")
    network.load_state_dict({**known, **{name: torch.tensor(array)
                                         for name, array in parameters.items()}})


def _card(options: argparse.Namespace, report: Report) -> str:
    opening = options.card.read_text("utf-8") if options.card else f"# {options.out.name}\n"
    held = f" --eval {options.eval}" if options.eval else ""
    command = (f"python -m tools.train {options.train}{held} -o {options.out} "
               f"--seed {options.seed}")
    return f"{opening}\nMade by `{command}`. On the held-out texts:\n\n```\n{report.text()}\n```\n"


if __name__ == "__main__":
    sys.exit(main())
