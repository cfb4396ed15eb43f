"""A running server gets another model: by HUP and a link that moved, by tools.reload; or not."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.front_desk import post
from tests.house import ROOT, House, wait_until
from tests.test_server_front import connect, read_answer

pytestmark = pytest.mark.sockets
ECHO = ROOT / "tests" / "fixtures" / "echo"
ASK = post({"text": "ok"})


@pytest.fixture
def models(tmp_path):
    """Two echo checkpoints with other labels and positions, a broken one, a link to the first."""
    for name, labels in (("one", 4), ("two", 7)):
        shutil.copytree(ECHO, tmp_path / name)
        config = json.loads((ECHO / "config.json").read_text())
        config["id2label"] = {str(number): f"{name}-{number}" for number in range(labels)}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    (tmp_path / "broken").mkdir()
    (tmp_path / "current").symlink_to("one")
    return tmp_path


@contextlib.contextmanager
def served(models, *arguments):
    path = models / "command.sock"
    with House(["--model", str(models / "current"), "--engines", "1", "--socket", str(path),
                *arguments]) as up:
        yield up


def reload(models, *arguments):
    done = subprocess.run([sys.executable, "-m", "tools.reload", "--socket",
                           str(models / "command.sock"), *arguments],
                          cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def labels(port):
    with connect(port) as client:
        client.sendall(ASK)
        return list(json.loads(read_answer(client)[2])["scores"])


def test_reload_hup_follows_a_link_that_moved(models):
    with served(models) as up:
        assert labels(up.port)[0] == "one-0"
        (models / "next").symlink_to("two")
        (models / "next").rename(models / "current")
        os.kill(up.pid, signal.SIGHUP)
        wait_until("the new labels", lambda: labels(up.port)[0] == "two-0", 20)
        wait_until("the old generation is gone", lambda: {
            row["generation"] for row in up.info()["processes"]} == {2}, 20)
        info = up.info()
        assert info["generation"] == 2 and info["model"]["name"] == "current"
        assert info["last_reload"]["ok"] and info["last_reload"]["reason"] == ""


def test_reload_command_waits_and_tells_the_outcome(models):
    with served(models) as up:
        before = up.footprint()[up.pid][1]
        status, words = reload(models, "--model", str(models / "two"), "--wait")
        assert (status, words.startswith("the new model serves")) == (0, True)
        assert len(labels(up.port)) == 7
        status, words = reload(models, "--model", str(models / "broken"), "--wait")
        assert status == 1 and words == "nothing has changed: " + up.info()["last_reload"][
            "reason"] + "\n" and "config.json" in words
        assert len(labels(up.port)) == 7 and not up.info()["last_reload"]["ok"]
        assert reload(models) == (0, "the request was taken\n")
        wait_until("the next generation", lambda: up.info()["generation"] > 2, 20)
        wait_until("its predecessor is gone", lambda: len({
            row["generation"] for row in up.info()["processes"]}) == 1, 20)
        assert len(labels(up.port)) == 7, "HUP and no --model: what is served now"
        wait_until("the master has closed what the others needed",
                   lambda: up.footprint()[up.pid][1] <= before, 10)


def test_reload_connection_that_is_open_ends_with_its_next_answer(models):
    with served(models) as up, connect(up.port) as client:
        client.sendall(ASK)
        assert "Connection" not in read_answer(client)[1]
        assert reload(models, "--model", str(models / "two"), "--wait")[0] == 0
        client.sendall(ASK)
        status, headers, body = read_answer(client)
        assert (status, headers["Connection"]) == (200, "close")
        assert "one-0" in json.loads(body)["scores"], "the model that its front holds"
        wait_until("the old generation is gone", lambda: {
            row["generation"] for row in up.info()["processes"]} == {2}, 20)


def test_reload_death_before_the_commit_is_told_and_changes_nothing(models):
    config = json.loads((models / "two" / "config.json").read_text())
    config["delay_ms"] = 1500.0             # of each batch, so that the self-test takes its time
    (models / "two" / "config.json").write_text(json.dumps(config))
    with served(models) as up:
        outcome = []
        asked = threading.Thread(target=lambda: outcome.append(reload(
            models, "--model", str(models / "two"), "--wait")))
        asked.start()
        victim = wait_until("a forkserver of the new generation", lambda: next(
            (row["pid"] for row in up.info()["processes"]
             if row["role"] == "forkserver" and row["generation"] == 2), 0), 20)
        os.kill(victim, signal.SIGKILL)
        asked.join(30)
        ((status, words),) = outcome
        assert status == 1 and "forkserver 0 of the new generation" in words
        assert labels(up.port)[0] == "one-0" and up.info()["generation"] == 1


def test_reload_term_while_a_model_is_loaded_ends_the_server_and_tells(models):
    config = json.loads((models / "two" / "config.json").read_text())
    config["delay_ms"] = 3000.0
    (models / "two" / "config.json").write_text(json.dumps(config))
    with served(models, "--lame-duck-s", "0") as up:
        outcome = []
        asked = threading.Thread(target=lambda: outcome.append(reload(
            models, "--model", str(models / "two"), "--wait")))
        asked.start()
        wait_until("the new generation", lambda: any(
            row["generation"] == 2 for row in up.info()["processes"]), 20)
        os.kill(up.pid, signal.SIGTERM)
        assert up.process.wait(10) == 0
        asked.join(30)
        assert outcome == [(1, "nothing has changed: the server is ending\n")]
        assert not (models / "command.sock").exists()


def test_reload_without_a_server_says_so(models):
    status, words = reload(models)
    assert status == 2 and "command.sock" in words and "running" in words


def test_reload_nonsense_on_the_socket_is_hung_up_on(models):
    with served(models) as up:
        for nonsense in (b"hello", b"[]", b'{"type": "reload"}', b'{"type": "reload", "model": 3}'):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(10)
                client.connect(str(models / "command.sock"))
                client.send(nonsense)
                assert client.recv(1000) == b""
        assert up.info()["last_reload"] is None and labels(up.port)[0] == "one-0"
