"""API keys and the Origin check."""

import pytest

from server.auth import is_allowed_origin, is_known, load_keys, presented_key
from server.errors import OperatorError


def test_load_keys_blank_lines_and_comments_are_left_out(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# team a\nalpha\n\n  beta  \n")
    assert load_keys(str(path)) == (b"alpha", b"beta")


@pytest.mark.parametrize("content", ["", "# none\n", "two words\n", "k\u00e9y\n"])
def test_load_keys_unusable_file_is_refused(tmp_path, content):
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(OperatorError) as refused:
        load_keys(str(path))
    assert refused.value.exit_code == 2 and str(path) in refused.value.message


def test_load_keys_missing_file_is_refused(tmp_path):
    with pytest.raises(OperatorError, match="No such file"):
        load_keys(str(tmp_path / "none"))


def test_presented_key_comes_from_either_header():
    assert presented_key(b"Bearer abc", None) == b"abc"
    assert presented_key(b"bearer  abc ", None) == b"abc"
    assert presented_key(b"Basic abc", None) is None
    assert presented_key(b"Bearer abc", b"xyz") == b"xyz"
    assert presented_key(None, None) is None


def test_is_known_only_whole_keys():
    keys = (b"alpha", b"beta")
    assert is_known(keys, b"beta") and is_known(keys, b"alpha")
    assert not any(is_known(keys, key) for key in (b"", b"alph", b"alphabeta", None, b"ALPHA"))


def test_is_allowed_origin_own_host_and_named_ones():
    assert is_allowed_origin("http://localhost:8000", "localhost:8000", ())
    assert is_allowed_origin("https://127.0.0.1", "127.0.0.1", ())
    assert is_allowed_origin("http://[::1]:8000", "[::1]:8000", ())
    assert is_allowed_origin("http://[::1]", "[::1]", ())
    assert is_allowed_origin("http://LOCALHOST", "localhost", ())
    # A stranger's name that resolves to this machine is no page of this server.
    assert not is_allowed_origin("http://evil.example:8000", "evil.example:8000", ())
    assert not is_allowed_origin("http://localhost:8001", "localhost:8000", ())
    assert not is_allowed_origin("null", "localhost", ())
    assert not is_allowed_origin("http://", "", ())
    assert is_allowed_origin("https://tools.example", "localhost", ("https://tools.example",))
