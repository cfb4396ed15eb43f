"""bench/peers as servers: setups are searched fairly, figures are what was measured."""

import asyncio
import importlib
import json
import sys
import threading
import types
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psutil
import pytest

from bench.client import Load
from bench.peers import served
from bench.peers.__main__ import OURS, Round, Under, profile_texts, report
from bench.peers.classifier import Classifier
from bench.peers.company import Change, change_in_company, compared
from bench.peers.contender import PeerError
from bench.peers.settings import STARTS, Settings, as_facts, tune

START = Settings("mosec", "ort-int8", "256", 16, 1)


def test_settings_written_as_facts_are_read_again():
    assert Settings(**json.loads(json.dumps(as_facts(START)))) == START
    assert all(start.peer == peer for peer, (start, _) in STARTS.items())


def test_settings_are_described_for_readers():
    assert START.describe() == "ort-int8, batches to 16 within 1 ms, calls of 256 tokens"
    assert replace(START, server="fastapi", mode="whole").describe() \
        == "ort-int8, batches to 16, padded to the longest"
    assert START.alone().describe() == "ort-int8, one by one"


def test_tune_finds_the_best_of_each_axis_and_measures_nothing_twice():
    tried = []

    def rate(settings):
        tried.append(settings)
        return 100 - abs(settings.batch - 8) + 10 * (settings.mode == "whole") - settings.wait_ms

    axes = {"mode": ("alone", "256", "whole"), "batch": (8, 16, 32), "wait_ms": (1, 5)}
    assert tune(START, axes, rate) == replace(START, mode="whole", batch=8)
    assert len(tried) == len(set(tried)) == 1 + 2 + 2 + 1


def test_tune_keeps_the_start_where_nothing_else_runs():
    assert tune(START, {"batch": (1, 2, 3)}, lambda one: float(one == START)) == START


def test_company_counts_flips_and_the_largest_change_of_all_rounds():
    alone = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert compared(alone, [alone, alone + [[0.25, 0.0], [0.0, 1.5]]]) == Change(1.5, 1, 4)


class _Logits(BaseHTTPRequestHandler):
    """Logits of a text's length, shifted by how many connections came before if `shifts`."""

    protocol_version = "HTTP/1.1"
    shifts, met = False, 0

    def setup(self) -> None:
        super().setup()
        type(self).met += 1
        self.shift = self.met * self.shifts

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["logits"] is True
        body = json.dumps({"logits": {"a": len(asked["text"]) + self.shift, "b": 2}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of connections that come at once; the default of 5 resets them


@pytest.mark.sockets
@pytest.mark.parametrize("shifts, least", [(False, 0.0), (True, 1.0)])
def test_company_that_changes_answers_is_seen_and_no_other(shifts, least):
    handler = type("Handler", (_Logits,), {"shifts": shifts})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            change = change_in_company("127.0.0.1", server.server_port,
                                       ["x" * size for size in range(1, 41)], 2)
        finally:
            server.shutdown()
            thread.join()
    assert change.answers == 80
    assert (change.largest >= least) if shifts else change == Change(0.0, 0, 80)


def test_report_ratios_are_of_the_same_round(capsys):
    rounds = {OURS: [Round(Load("wrk", rate, 1.0, 2.0), 0.5) for rate in (300.0, 100.0, 200.0)],
              "mosec-ort": [Round(Load("wrk", rate, 3.0, 9.0, {"429": 2}), 2.0)
                            for rate in (100.0, 50.0, 50.0)]}
    servers = {OURS: Under("", 0, "int8"), "mosec-ort": Under("", 0, "ort-int8, one by one")}
    report(rounds, servers, {"model": "m"})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {(line["figure"], line["server"]): line for line in lines}
    ratio = found["peers.ratio", "mosec-ort"]
    assert (ratio["value"], ratio["runs"], ratio["setup"]) \
        == (3.0, [3.0, 2.0, 4.0], "ort-int8, one by one")
    assert found["peers.requests_per_s", "mosec-ort"]["others"] == {"429": 6}
    assert found["peers.p99_ms", OURS]["value"] == 2.0
    assert found["peers.cpu_ms", "mosec-ort"]["value"] == 2.0
    assert ("peers.ratio", OURS) not in found


def test_profile_texts_have_the_lengths_of_the_profile(tmp_path: Path):
    source = tmp_path / "texts.tsv"
    source.write_text("".join(f"ham\t{'word ' * size}end\n" for size in range(1, 60)), "utf-8")
    sizes = [len(line) for line in profile_texts(source, tmp_path).read_text("utf-8").splitlines()]
    assert len(sizes) == 1000
    assert (sum(size <= 320 for size in sizes), sum(size >= 2600 for size in sizes)) == (820, 30)


def test_classifier_answers_in_the_order_of_bodies(tmp_path: Path, monkeypatch):
    (tmp_path / "config.json").write_text('{"id2label": {"1": "odd", "0": "even"}}')

    class Engine:
        """The logits say whether a row's length is odd."""
        max_tokens = 100

        def run(self, rows, calls):
            assert sorted(row for call in calls for row in call.rows) == list(range(len(rows)))
            return np.array([[0.0, np.log(3.0) * (-1) ** (len(row) + 1)] for row in rows])

    class Tokenizer:
        """A token a byte."""

        @classmethod
        def from_file(cls, name):
            assert name == str(tmp_path / "tokenizer.json")
            return cls()

        def enable_truncation(self, tokens):
            assert tokens == 100

        def no_padding(self):
            """It does not."""

        def encode_batch_fast(self, texts):
            return [types.SimpleNamespace(ids=list(text.encode())) for text in texts]

    fakes = {"orjson": types.SimpleNamespace(loads=json.loads,
                                             dumps=lambda one: json.dumps(one).encode()),
             "tokenizers": types.SimpleNamespace(Tokenizer=Tokenizer),
             "bench.peers.ort": types.SimpleNamespace(load=lambda *_: Engine())}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "")  # given back at the end
    classifier = Classifier({"engine": "ort-int8", "folder": str(tmp_path), "cache": "",
                             "mode": "256"})
    answers = [json.loads(body) for body in classifier.answer(
        [b'{"text": "four", "logits": true}', b'{"text": "three"}'])]
    assert [one["label"] for one in answers] == ["even", "odd"]
    assert answers[1]["scores"] == pytest.approx({"even": 0.25, "odd": 0.75})
    assert answers[0]["logits"] == pytest.approx([0.0, -np.log(3.0)])
    assert "logits" not in answers[1]


def test_fastapi_bodies_of_one_turn_are_computed_together(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", types.SimpleNamespace(Request=object))
    monkeypatch.delitem(sys.modules, "bench.peers.fastapi_server", raising=False)
    module = importlib.import_module("bench.peers.fastapi_server")
    monkeypatch.delitem(sys.modules, "bench.peers.fastapi_server")
    batches = []

    class Upper:
        def answer(self, bodies):
            batches.append(len(bodies))
            if b"bad" in bodies:
                raise ValueError("no JSON")
            return [body.upper() for body in bodies]

    async def ask() -> None:
        together = module.Together(Upper(), 3)
        bodies = [b"a", b"b", b"c", b"d"]
        assert await asyncio.gather(*map(together.submit, bodies)) == [b"A", b"B", b"C", b"D"]
        with pytest.raises(ValueError, match="no JSON"):
            await together.submit(b"bad")
        assert await together.submit(b"e") == b"E"

    asyncio.run(ask())
    assert batches == [3, 1, 1, 1]


@pytest.mark.sockets
def test_served_peer_ends_with_all_its_processes(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(served.MODULES, "mosec", "tests.fake_peer")
    monkeypatch.setattr(served, "END_TIMEOUT_S", 0.2)
    with served.ServedPeer(sys.executable, START, str(tmp_path), tmp_path, 1) as peer:
        assert served.processor_s(peer.pid) > 0
        child = psutil.Process(int((tmp_path / "mosec-ort.log").read_text().split()[0]))
        assert child.is_running()
    child.wait(10)


@pytest.mark.sockets
def test_served_peer_that_ends_says_where_its_words_are(tmp_path: Path):
    with pytest.raises(PeerError, match=r"mosec-ort ended \(.*mosec-ort.log has its words\)"):
        served.ServedPeer("/bin/false", START, str(tmp_path), tmp_path, 1)
