"""Flags, environment variables, their precedence and their refusals."""

import pytest

from server.errors import OperatorError
from server.settings import SETTINGS, parse


def refusal(argv, environ=None):
    with pytest.raises(OperatorError) as refused:
        parse(argv, environ or {})
    assert refused.value.exit_code == 2
    return refused.value.message


def test_parse_nothing_gives_the_defaults():
    settings = parse([], {})
    assert all(getattr(settings, row.name) == row.default for row in SETTINGS)


def test_parse_command_line_wins_over_environment():
    environ = {"FIREBRICK_PORT": "9000", "FIREBRICK_MAX_WAIT_MS": "5"}
    settings = parse(["--port", "9001"], environ)
    assert (settings.port, settings.max_wait_ms) == (9001, 5.0)


def test_parse_sizes_lists_and_switches():
    settings = parse(["--max-body", "64K", "--allow-origin", "http://a, http://b",
                      "--share-port"], {"FIREBRICK_LOG_TEXT": "no"})
    assert settings.max_body == 65536
    assert settings.allow_origin == ("http://a", "http://b")
    assert settings.share_port is True and settings.log_text is False


@pytest.mark.parametrize("argv,words", [
    (["--port", "x"], "whole number"), (["--port", "65536"], "between 0 and 65535"),
    (["--port", "1_0"], "whole number"), (["--port", "1", "--port", "1"], "twice"),
    (["--share-port", "--share-port"], "twice"), (["--por", "1"], "--por"),
    (["--unknown"], "--unknown"), (["stray"], "stray"), (["--max-body", ""], "size"),
    (["--max-body", "4T"], "size"), (["--max-age-s", "nan"], "number"),
    (["--high-share", "1.5"], "between 0 and 1"), (["--model", ""], "empty"),
    (["--device", "tpu"], "one of auto, cpu"), (["--faults", "f"], "--device recorder"),
    (["--precision", "fp8", "--device", "cpu"], "GPUs only"),
    (["--cache-mb", "1"], "caches no answers"),
    (["--port"], "expected one argument"),
])
def test_parse_wrong_flag_is_refused_in_words(argv, words):
    assert words in refusal(argv)


def test_parse_reports_all_problems_at_once():
    message = refusal(["--port", "x"], {"FIREBRICK_DEVICE": "tpu", "FIREBRICK_SHARE_PORT": "2"})
    assert all(part in message for part in ("--port", "FIREBRICK_DEVICE", "FIREBRICK_SHARE_PORT"))


def test_parse_port_set_by_kubernetes_is_explained():
    assert "enableServiceLinks" in refusal([], {"FIREBRICK_PORT": "tcp://10.0.0.1:8000"})


def test_parse_foreign_variables_are_left_alone():
    parse([], {"FIREBRICK_SERVICE_HOST": "10.0.0.1"})


def test_parse_help_names_every_flag_with_its_default(capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["--help"], {})
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(row.flag in shown for row in SETTINGS)
    assert shown.count("(default") == len(SETTINGS)


@pytest.mark.parametrize("argv, environ, port", [
    (["--uds", "/run/x"], {}, None), (["--uds", "/run/x", "--port", "0"], {}, 0),
    (["--uds", "/run/x"], {"FIREBRICK_PORT": "81"}, 81), ([], {"FIREBRICK_UDS": "/run/x"}, None)])
def test_parse_unix_socket_replaces_tcp_unless_a_port_is_given(argv, environ, port):
    assert parse(argv, environ).port == port
