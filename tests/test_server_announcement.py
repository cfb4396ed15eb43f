"""The ready line and the command below it."""

import shlex

import pytest

from server.announcement import EXAMPLE, announcement

CARD = {"name": "sms-spam", "version": "78bb73a2", "precision": "fp32"}


def lines(host="127.0.0.1", keys=""):
    text = announcement(host, 8000, "", CARD, 2, keys, "/run/fire brick.sock").decode()
    assert text.endswith("\n")
    *shown, reload = text.splitlines()
    assert shlex.split(reload) == ["python", "-m", "tools.reload", "--wait", "--socket",
                                   "/run/fire brick.sock"]
    return shown


def test_announcement_is_a_ready_line_and_a_command():
    ready, curl = lines()
    assert ready == ("ready http://127.0.0.1:8000 model=sms-spam version=78bb73a2 engines=2 "
                     "precision=fp32")
    assert shlex.split(curl) == ["curl", "http://127.0.0.1:8000/infer", "-d", EXAMPLE]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_announcement_ipv6_survives_shell_and_curl(host):
    ready, curl = lines(host)
    assert ready.startswith("ready http://[::1]:8000 ")
    assert shlex.split(curl)[:3] == ["curl", "-g", "http://[::1]:8000/infer"]


def test_announcement_with_keys_reads_one_and_shows_none(tmp_path):
    _, curl = lines(keys=str(tmp_path / "my keys"))
    words = shlex.split(curl)
    assert words[-2] == "-H" and words[-1].startswith("X-API-Key: $(")
    assert str(tmp_path / "my keys") in shlex.split(words[-1][len("X-API-Key: $("):-1])


def test_announcement_of_a_unix_socket_alone_tells_curl_its_path():
    ready, curl = announcement("127.0.0.1", None, "/run/a b", CARD, 2, "", "").decode().splitlines()
    assert ready.startswith("ready unix:/run/a b model=sms-spam ")
    assert shlex.split(curl) == ["curl", "--unix-socket", "/run/a b", "http://localhost/infer",
                                 "-d", EXAMPLE]
