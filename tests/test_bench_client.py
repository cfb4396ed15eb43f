"""The load clients and their wrk scripts count what a server with known answers gave."""

import json
import re
import shutil
import socket
import socketserver
import subprocess
import threading
from pathlib import Path

import pytest

from bench import client, figures
from bench.client import Driver, Load, drive, post, read_answer, read_texts, sample
from bench.figures import ROOT
from bench.running import Program

pytestmark = pytest.mark.sockets


class Scripted(socketserver.BaseRequestHandler):
    """Each fourth request is refused with 429; X-Latency-ms is 4; bodies are kept."""

    def handle(self) -> None:
        pending = b""
        while True:
            while True:
                end = pending.find(b"\r\n\r\n")
                if end >= 0:
                    found = re.search(rb"(?i)content-length: (\d+)", pending[:end])
                    size = end + 4 + int(found.group(1))
                    if len(pending) >= size:
                        break
                more = self.request.recv(65536)
                if not more:
                    return
                pending += more
            with self.server.lock:
                self.server.seen.append((pending[:end], pending[end + 4:size]))
                number = len(self.server.seen)
            pending = pending[size:]
            status = b"429 Too Many Requests" if number % 4 == 0 else b"200 OK"
            self.request.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n"
                                 b"X-Latency-ms: 4.000\r\n\r\n{}")


class Quiet(socketserver.ThreadingTCPServer):
    """Threads, and no trace where a client resets its connection at the end of its time."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        return


@pytest.fixture
def scripted():
    with Quiet(("127.0.0.1", 0), Scripted) as server:
        server.seen, server.lock = [], threading.Lock()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.tsv"
    path.write_text('ham\tplain\nspam\t12\tquote " and \\ back\u00e9 \u4e2d\x01\r\n\nlast')
    return path


EXPECTED = {"plain", 'quote " and \\ back\u00e9 \u4e2d\x01', "last"}


def url_of(server: Quiet) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_client_read_texts_takes_last_column_and_leaves_out_empty(texts):
    assert set(read_texts(texts)) == EXPECTED


def test_client_refused_requests_are_not_served():
    load = Load("own", 1000.0, 1.0, 2.0, {"429": 150, "503": 50}, 0, 800)
    assert load.served_per_s == 750.0
    assert Load("own", 1000.0, 1.0, 2.0, {}, 0, 800).served_per_s == 1000.0


@pytest.mark.parametrize("kind", ["wrk", "own"])
def test_client_known_server_counts_every_answer(kind, scripted, texts, monkeypatch):
    if kind == "wrk" and not shutil.which("wrk"):
        pytest.skip("wrk is not installed")
    if kind == "own":
        monkeypatch.setattr(client.shutil, "which", lambda name: None)
    load = drive(url_of(scripted), texts, 4, 1, threads=2)
    assert load.client == kind
    assert load.requests_per_s > 0
    assert load.p99_ms >= load.p50_ms > 0
    assert load.socket_errors == 0
    # Answers on their way when the time was over were not counted: at most one a connection.
    (refused,) = load.others.values()
    assert 0 <= len(scripted.seen) // 4 - refused <= 4
    heads = {head.split(b"\r\n")[0] for head, _ in scripted.seen}
    assert heads == {b"POST /infer HTTP/1.1"}
    assert {json.loads(body)["text"] for _, body in scripted.seen} == EXPECTED


@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
def test_post_lua_prints_the_servers_own_latency(scripted, texts):
    said = subprocess.run(["wrk", "-t2", "-c2", "-d1s", "-s", "bench/post.lua",
                           url_of(scripted) + "/other", "--", str(texts)],
                          cwd=ROOT, capture_output=True, text=True, check=True).stdout
    own = re.search(r"^X-Latency-ms +(.*)$", said, re.M).group(1).split()
    assert len(own) == 5
    assert all(abs(float(value) - 4) < 0.04 for value in own)
    assert re.search(r"responses, other than 2xx: 429: \d+", said)
    assert scripted.seen[0][0].startswith(b"POST /other HTTP/1.1")


@pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")
def test_rate_lua_without_a_file_says_so(scripted):
    driver = Driver(url_of(scripted), Path("/nowhere/texts.tsv"), 1, 1)
    with pytest.raises(RuntimeError, match="No such file"):
        driver.finish()


def test_client_sample_gives_status_and_headers(scripted):
    answers = sample("127.0.0.1", scripted.server_address[1], post("a"), 4)
    assert [one.status for one in answers] == [200, 200, 200, 429]
    assert {one.headers["x-latency-ms"] for one in answers} == {"4.000"}


def test_client_read_answer_connection_closed_raises():
    class Closed:
        def recv(self, size: int) -> bytes:
            return b""
    with pytest.raises(ConnectionError):
        read_answer(Closed(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")


@pytest.mark.parametrize("name", ["bench.bare", "bench.relay"])
def test_yardstick_answers_split_and_pipelined_requests(name):
    with Program(name) as program:
        with socket.create_connection((program.host, program.port), timeout=30) as connection:
            request = post("Win a free phone now")
            for at in range(0, len(request), 7):
                connection.sendall(request[at:at + 7])
            status, _, left = read_answer(connection)
            assert (status, left) == (200, b"")
            connection.sendall(request * 3)
            left = b""
            for _ in range(3):
                status, _, left = read_answer(connection, left)
                assert status == 200
            assert left == b""
        # A connection after one that was closed gets its answer.
        assert [one.status for one in sample(program.host, program.port, request, 2)] == [200, 200]


def test_program_that_ends_at_once_raises_with_its_last_words():
    with pytest.raises(RuntimeError, match="bench.bare did not start: .*ValueError"):
        Program("bench.bare", ["no-port"])


def test_figures_emit_prints_one_json_line(capsys):
    figures.emit("x.y", 1.23456, "ms", [1.0, 2.00001], note="n")
    line = json.loads(capsys.readouterr().out)
    assert (line["value"], line["unit"], line["runs"], line["note"]) == (1.235, "ms", [1, 2], "n")
    assert {"machine", "commit", "load_1m"} <= set(line)


@pytest.mark.parametrize("percent, expected", [(0, 1), (50, 50), (99, 99), (99.9, 100), (100, 100)])
def test_figures_percentile_nearest_rank(percent, expected):
    assert figures.percentile(range(100, 0, -1), percent) == expected
