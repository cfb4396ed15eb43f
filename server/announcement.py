"""The lines on stdout that say where the server answers, and how to ask it (pure)."""

import shlex

from server.listeners import shown_address

EXAMPLE = '{"text": "Win a free phone now"}'


def announcement(host: str, port: int | None, uds: str, card: dict, engines: int, api_keys: str,
                 command_socket: str) -> bytes:
    """The ready line, and below it a curl command that works when pasted, and one for a new model.

    `port` is None where only the Unix socket `uds` is listened on. `api_keys` is the file of keys
    or empty; the command reads a key from it, so that none is shown. `command_socket` is where the
    server takes orders, or empty.
    """
    if port is not None:
        url = f"http://{shown_address(host, port)}"
        curl = f"curl {_globless(url)}/infer -d {shlex.quote(EXAMPLE)}"
    else:
        url = f"unix:{uds}"
        curl = f"curl --unix-socket {shlex.quote(uds)} http://localhost/infer " \
            f"-d {shlex.quote(EXAMPLE)}"
    if api_keys:
        curl += f' -H "X-API-Key: $(grep -v \'^ *#\' {shlex.quote(api_keys)} | grep -m1 .)"'
    reload = f"python -m tools.reload --wait --socket {shlex.quote(command_socket)}\n" \
        if command_socket else ""
    return (f"ready {url} model={card['name']} version={card['version']} engines={engines} "
            f"precision={card['precision']}\n{curl}\n{reload}").encode()


def _globless(url: str) -> str:
    """curl and shells take the brackets of an IPv6 address for patterns."""
    return f"-g '{url}'" if "[" in url else url
