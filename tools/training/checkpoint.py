"""A trained network as a checkpoint folder in Hugging Face layout, and an encoder to start from."""

import json
import shutil
from pathlib import Path

import numpy as np

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.safetensors import file_bytes, float32_array, open_image
from loader.tokenizers.table import TokenizerFiles, Tokenizer, compile_tokenizer, open_tokenizer

SPECIAL_TOKENS = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
                  "cls_token": "[CLS]", "mask_token": "[MASK]"}


def model_config(vocab_size: int, layers: int, width: int, heads: int, positions: int,
                 dropout: float) -> dict:
    """The sizes of a new network, by config.json's names."""
    return {"vocab_size": vocab_size, "hidden_size": width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "intermediate_size": 4 * width, "hidden_act": "gelu",
            "max_position_embeddings": positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
            "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
            "classifier_dropout": dropout, "initializer_range": 0.02, "pad_token_id": 0}


def text_tokenizer(tokens: list[str], lower_case: bool) -> Tokenizer:
    """The server's own tokeniser over a list of tokens."""
    return open_tokenizer(compile_tokenizer(TokenizerFiles(
        None, "\n".join(tokens).encode(), {"do_lower_case": lower_case}, {})))


def write(folder: Path, config: dict, names: list[str], tokens: list[str], lower_case: bool,
          parameters: dict[str, np.ndarray], card: str) -> None:
    """Writes the folder anew; `parameters` are float32 arrays by their Hugging Face names."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    labels = dict(enumerate(names))
    (folder / "config.json").write_text(_json({
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", **config,
        "id2label": labels, "label2id": {name: index for index, name in labels.items()},
        "problem_type": "single_label_classification"}))
    (folder / "model.safetensors").write_bytes(file_bytes(parameters))
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens), "utf-8")
    (folder / "tokenizer.json").write_text(_json(_tokenizer_json(tokens, lower_case)), "utf-8")
    (folder / "tokenizer_config.json").write_text(_json({
        "tokenizer_class": "BertTokenizer", "do_lower_case": lower_case, "strip_accents": None,
        "tokenize_chinese_chars": True, "model_max_length": config["max_position_embeddings"],
        **SPECIAL_TOKENS}))
    (folder / "special_tokens_map.json").write_text(_json(SPECIAL_TOKENS))
    (folder / "README.md").write_text(card, "utf-8")


def read_encoder(path: str) -> tuple[dict, dict[str, np.ndarray], list[str], bool]:
    """(config, parameters, tokens, lower_case) of a BERT checkpoint to start from; a head that
    it may have is left out. Raises CheckpointError."""
    with Folder(path) as folder:
        try:
            config = json.loads(folder.read("config.json", 1 << 24))
            settings = json.loads(folder.read("tokenizer_config.json", 1 << 24)) \
                if folder.has("tokenizer_config.json") else {}
        except ValueError:
            raise CheckpointError(f"{path}: config.json is not JSON; save it again.") from None
        if not folder.has("vocab.txt"):
            raise CheckpointError(f"{path}: vocab.txt is missing; save the tokenizer's vocabulary.")
        tokens = folder.read("vocab.txt", 1 << 27).decode("utf-8").removesuffix("\n").split("\n")
    if config.get("model_type") != "bert":
        raise CheckpointError(f"{path}: model_type is {config.get('model_type')!r}, an encoder to "
                              "start from must be 'bert'.")
    image = Path(path, "model.safetensors").read_bytes()
    parameters = {name if name.startswith("bert.") else f"bert.{name}":
                  float32_array(image, tensor) for name, tensor in open_image(image).items()
                  if not name.startswith(("classifier.", "cls.")) and "position_ids" not in name}
    base = model_config(len(tokens), 0, 0, 0, 0, 0.1)
    return ({**base, **{key: config[key] for key in base if key in config}}, parameters, tokens,
            settings.get("do_lower_case", True))


def _tokenizer_json(tokens: list[str], lower_case: bool) -> dict:
    ids = {token: index for index, token in enumerate(tokens)}
    special = {name: ids[name] for name in SPECIAL_TOKENS.values()}
    first = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": name, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for name, number in sorted(special.items(), key=lambda item: item[1])],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": lower_case},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": first,
            "pair": [*first, {"Sequence": {"id": "B", "type_id": 1}},
                     {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [special[name]], "tokens": [name]}
                               for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": ids}}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
