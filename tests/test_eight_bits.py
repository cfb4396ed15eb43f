"""8 bits of a GPU on the shipped model: the command's figures, and that it sees what is broken."""

import json

import pytest

from model.programs import eight_bits as networks
from tests import eight_bits
from tests.house import ROOT

TEXTS = 200


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file of labelled texts that the shipped model was not trained on."""
    path = tmp_path_factory.mktemp("texts") / "eval.tsv"
    lines = (ROOT / "data" / "sms-spam" / "eval.tsv").read_text("utf-8").splitlines()
    path.write_text("\n".join(lines[:TEXTS]), "utf-8")
    return str(path)


def _run(capsys, texts) -> tuple[int, list[dict], str]:
    code = eight_bits.main([str(ROOT / "models" / "sms-spam"), "--texts", texts])
    printed = capsys.readouterr()
    return code, [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_eight_bits_of_the_shipped_model_decide_as_fp32_does(capsys, texts):
    code, figures, _ = _run(capsys, texts)
    assert code == 0
    assert [figure["figure"] for figure in figures] == ["eight_bits.int8.texts",
                                                        "eight_bits.fp8.texts"]
    assert all(figure["value"] >= 0.99 and figure["count"] == TEXTS for figure in figures)


def test_eight_bits_that_are_broken_are_refused_by_the_gate(capsys, texts, monkeypatch):
    real = networks.quantised

    def quantised(weight, kind):
        codes, scales = real(weight, kind)
        return codes, scales * 1.2

    monkeypatch.setattr(networks, "quantised", quantised)
    code, figures, words = _run(capsys, texts)
    assert (code, figures) == (1, [])
    assert "int8 was asked for and is not served: the product bert.encoder.layer.0." in words
