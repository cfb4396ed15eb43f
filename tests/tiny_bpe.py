"""A tokenizer.json of byte-level BPE with few tokens, for tests."""

from loader.tokenizers.bpe_files import BYTE_ALPHABET

FILE_CLASS = "PreTrainedTokenizerFast"


def tiny_table(tokens=(), merges=(), more=(), added=(), **parts):
    """Every byte's token and what is given; `<s>` 0 in front and `</s>` 1 behind a text."""
    contents = ["<s>", "</s>", *BYTE_ALPHABET, *tokens, *more, *added]
    return {
        "added_tokens": [
            {"id": contents.index(token), "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for token in ("<s>", "</s>", *added)],
        "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]},
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(contents)},
                  "merges": list(merges)},
        **parts}
