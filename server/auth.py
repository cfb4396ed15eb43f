"""Who may ask: API keys from a file, and the Origin check that keeps web pages out."""

import hmac
import ipaddress
from collections.abc import Collection, Sequence

from server.errors import OperatorError


def load_keys(path: str) -> tuple[bytes, ...]:
    """The keys of a file, one a line; blank lines and lines that begin with # are left out.

    Raises OperatorError (exit code 2) where the file cannot be read, holds no key, or holds one
    that no header can carry.
    """
    try:
        with open(path, "rb") as file:
            lines = [line.strip() for line in file.read().splitlines()]
    except OSError as error:
        raise OperatorError(f"--api-keys {path}: {error.strerror}; name a file with one key "
                            "a line") from None
    keys = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not keys:
        raise OperatorError(f"--api-keys {path}: holds no key; write one a line")
    for number, key in enumerate(keys, 1):
        if any(byte < 0x21 or byte > 0x7E for byte in key):
            raise OperatorError(f"--api-keys {path}: key {number} has a character that no header "
                                "can carry; use visible ASCII without spaces")
    return keys


def presented_key(authorization: bytes | None, x_api_key: bytes | None) -> bytes | None:
    """The key of a request: X-API-Key, or the token of `Authorization: Bearer` (RFC 6750 2.1)."""
    if x_api_key is not None:
        return x_api_key
    if authorization is not None and authorization[:7].lower() == b"bearer ":
        return authorization[7:].strip()
    return None


def is_known(keys: Sequence[bytes], presented: bytes | None) -> bool:
    """Whether `presented` is one of `keys`; takes the same time whichever it is, if any."""
    found = False
    for key in keys:
        found |= hmac.compare_digest(key, presented or b"")
    return found


def is_allowed_origin(origin: str, host: str, allowed: Collection[str]) -> bool:
    """Whether a page of `origin` may send requests to the server that it called `host`.

    An origin is scheme://host[:port] (RFC 6454 7). This server's own is http or https with the
    request's Host, if that is localhost or an address: any other name may be a stranger's that was
    made to resolve to this machine (DNS rebinding), so it needs to be in `allowed`, as `null` and
    everything else does.
    """
    lowered, host = origin.lower(), host.lower()
    if lowered in {name.lower() for name in allowed}:
        return True
    return _is_unforgeable(host) and lowered in (f"http://{host}", f"https://{host}")


def _is_unforgeable(host: str) -> bool:
    """Whether a Host (host[:port]) needs no name service: localhost or a literal address."""
    name = host.rpartition(":")[0] if host.rpartition("]")[2].count(":") else host
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
