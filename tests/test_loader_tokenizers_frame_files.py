"""Post-processors compiled to frames, and what is refused."""

import pytest

from loader.errors import CheckpointError
from loader.tokenizers.encoding import Frame
from loader.tokenizers.frame_files import file_frame

IDS = {"<s>": 0, "</s>": 2, "[CLS]": 5, "[SEP]": 6}
DEFINED = {token: {"id": token, "ids": [number], "tokens": [token]}
           for token, number in IDS.items()}


def steps(text):
    """ "[CLS] A [SEP] B:1" as a template's steps."""
    found = []
    for part in text.split():
        name, _, number = part.partition(":")
        kind = "Sequence" if name in "AB" else "SpecialToken"
        found.append({kind: {"id": name, "type_id": int(number or 0)}})
    return found


def template(single, pair, **changes):
    return {"type": "TemplateProcessing", "single": steps(single), "pair": steps(pair),
            "special_tokens": DEFINED, **changes}


@pytest.mark.parametrize("part,frame", [
    (template("[CLS] A [SEP]", "[CLS] A [SEP] B:1 [SEP]:1"), Frame([5], [6], [6], 1)),
    (template("[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]"), Frame([5], [6], [6], None)),
    (template("<s> A </s>", "<s> A </s> </s>:1 B:1 </s>:1"), Frame([0], [2, 2], [2], 1)),
    (template("<s> A", "<s> A <s>:1 B:1"), Frame([0], [0], [], 0)),
    (template("A </s>", "A </s> B </s>"), Frame([], [2], [2], None)),
    ({"type": "BertProcessing", "cls": ["[CLS]", 5], "sep": ["[SEP]", 6]},
     Frame([5], [6], [6], 1)),
    ({"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2], "trim_offsets": True},
     Frame([0], [2, 2], [2], None)),
    ({"type": "Sequence", "processors": [
        {"type": "ByteLevel"}, template("<s> A", "<s> A B:1")]}, Frame([0], [], [], 0)),
    (template("x A", "x A B", special_tokens={"x": {"ids": [5, 6], "tokens": ["[CLS]", "[SEP]"]}}),
     Frame([5, 6], [], [], None)),
])
def test_frame_of_a_known_post_processor(part, frame):
    assert file_frame(part, IDS) == frame
    assert frame.pair_specials == sum(map(len, frame[:3]))


NONE, SHAPE = "puts no special token around", "is not a list of texts and tokens"


@pytest.mark.parametrize("part,fault", [
    (None, NONE), ({"type": "ByteLevel"}, NONE), (template("A", "A B:1"), NONE),
    ({"type": "Sequence", "processors": []}, NONE),
    ("x", "the post_processor is 'x'"), ({"type": "Dream"}, "the post_processor is 'Dream'"),
    ({"type": "Sequence", "processors": 7}, "the post_processor is 'Sequence'"),
    ({"type": "Sequence", "processors": [{"type": "Sequence", "processors": []}]}, "'Sequence'"),
    ({"type": "Sequence", "processors": [template("<s> A", "<s> A B")] * 2}, "more than one"),
    ({"type": "BertProcessing", "cls": 7}, "cls is 7, not a token with its id"),
    ({"type": "BertProcessing", "cls": ["[CLS]", 7]}, "gives '\\[CLS\\]' the id 7, the voc.* 5;"),
    ({"type": "BertProcessing", "cls": ["x", 7]}, "gives 'x' the id 7, the vocabulary null"),
    ({**template("", ""), "single": None}, SHAPE), ({**template("", ""), "single": [7]}, SHAPE),
    (template("<s> A", "<s> A B:2"), SHAPE), (template("x A", "x A B"), SHAPE),
    (template("<s> A", "<s> A B", special_tokens=[]), SHAPE),
    (template("<s> A", "<s> A B", special_tokens={"<s>": {"ids": [0]}}), SHAPE),
    (template("<s> A", "<s> A B", special_tokens={"<s>": {"ids": [0], "tokens": []}}), SHAPE),
    (template("<s> A", "<s> A B", special_tokens={"<s>": {"ids": [0], "tokens": [[]]}}),
     "gives a list of 0 the id 0"),
    (template("<s> B", "<s> A B"), "each once and in order"),
    (template("<s> A", "<s> B A"), "each once and in order"),
    (template("<s> A A", "<s> A B"), "each once and in order"),
    (template("<s> A", "A B"), "does not begin and end"),
    (template("<s> A </s>", "<s> A B"), "does not begin and end"),
    (template("<s> A", "<s> A:1 B"), "does not begin and end"),
    (template("<s> A:1", "<s> A B"), "does not begin and end"),
    (template("A </s>", "A B </s>:1"), "second text's type"),
    (template("<s> A", "<s> A:1 B:1"), "second text's type"),
])
def test_frame_of_another_post_processor_is_refused(part, fault):
    with pytest.raises(CheckpointError, match=fault):
        file_frame(part, IDS)
