"""The two lines on stdout that say where the server answers and how to ask it (pure)."""

import shlex

from server.listeners import shown_address

EXAMPLE = '{"text": "Win a free phone now"}'


def announcement(host: str, port: int, card: dict, engines: int, api_keys: str) -> bytes:
    """The ready line, and below it a curl command that works when pasted.

    `api_keys` is the file of keys or empty; the command reads a key from it, so that none is shown.
    """
    url = f"http://{shown_address(host, port)}"
    curl = f"curl {_globless(url)}/infer -d {shlex.quote(EXAMPLE)}"
    if api_keys:
        curl += f' -H "X-API-Key: $(grep -v \'^ *#\' {shlex.quote(api_keys)} | grep -m1 .)"'
    return (f"ready {url} model={card['name']} version={card['version']} engines={engines} "
            f"precision={card['precision']}\n{curl}\n").encode()


def _globless(url: str) -> str:
    """curl and shells take the brackets of an IPv6 address for patterns."""
    return f"-g '{url}'" if "[" in url else url
