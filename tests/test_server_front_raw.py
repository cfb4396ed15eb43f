"""The corpus of raw requests against a live server: every answer, in order, however it is cut."""

import socket

import pytest

from tests.house import ROOT, House
from tests.raw_cases import read_cases

pytestmark = pytest.mark.sockets
ECHO = str(ROOT / "tests" / "fixtures" / "echo")
CASES = read_cases()
DRIBBLED_BYTES = 400
CUTS_A_CASE = 4


@pytest.fixture(scope="module")
def house():
    with House(["--model", ECHO, "--fronts", "1", "--engines", "1"]) as up:
        yield up
        assert [line for line in up.log if b"front_fault" in line or b"died" in line] == []


def talk(house, pieces):
    """All that a server says to a client that sends pieces and half-closes."""
    with socket.create_connection(("127.0.0.1", house.port), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = b""
        try:
            for piece in pieces:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass        # refused and closed already; what was said before is still to be read
        while True:
            data = client.recv(65536)
            if not data:
                return said
            said += data


def read_answers(said, methods):
    """[(status, says close)] of the answers in `said`; checks what every answer carries."""
    answers = []
    while said:
        head, separator, said = said.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        assert separator and lines[0].startswith("HTTP/1.1 "), head
        status = int(lines[0].split()[1])
        if status == 100:
            continue
        fields = dict(line.split(": ", 1) for line in lines[1:])
        assert len(fields) == len(lines) - 1, lines
        assert fields["Server"] == "firebrick" and fields["Date"] and fields["X-Trace-Id"]
        assert float(fields["X-Latency-ms"]) >= 0
        if methods[len(answers):len(answers) + 1] != ["HEAD"]:
            size = int(fields["Content-Length"])
            assert len(said) >= size
            said = said[size:]
        answers.append((status, fields.get("Connection") == "close"))
    return answers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_front_case_is_answered_whole_cut_and_dribbled(house, case):
    sent, methods = case.sent, [line.split()[1] for line in case.events if line[:5] == "head "]
    plays = [[sent]]
    stride = max(1, len(sent) // CUTS_A_CASE)
    plays += [[sent[:cut], sent[cut:]] for cut in range(stride, len(sent), stride)]
    if len(sent) <= DRIBBLED_BYTES:
        plays.append([sent[at:at + 1] for at in range(len(sent))])
    for pieces in plays:
        assert read_answers(talk(house, pieces), methods) == case.answers
