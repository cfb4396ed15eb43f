"""bench/peers/search.py finds the best setup whatever the machine's speed does, and keeps it."""

import contextlib
import types
from dataclasses import replace

import pytest

from bench.client import Load
from bench.peers import search
from bench.peers.contender import PeerError
from bench.peers.search import known_settings
from bench.peers.settings import FOUND, STARTS, Settings
from bench.peers.standing import Round

PEER = "mosec-ct2"
START = STARTS[PEER][0]


class FakeStanding:
    """Peers whose rate is their batch's worth times the machine's speed, which halves each time a
    server was up."""

    def __init__(self, refused: int = 0) -> None:
        self.speed, self.refused = 1024.0, refused

    def all_up(self, chosen):
        return {peer: self._under(settings) for peer, settings in chosen.items()}

    @contextlib.contextmanager
    def trial(self, settings):
        if settings.batch == self.refused:
            raise PeerError("mosec-ct2 ended")
        self.speed /= 2
        yield types.SimpleNamespace(url="", pid=settings)

    def _under(self, settings):
        def play(texts, connections, seconds):
            worth = 100 - abs(settings.batch - 32) - 5 * settings.wait_ms
            return Round(Load("fake", worth * self.speed, 1.0, 1.0), 1.0)
        return types.SimpleNamespace(url="", setup=settings.describe(), round=play)


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Searches with a standing; the settings found, and the file that keeps them."""
    monkeypatch.setattr(search, "drive", lambda *_: None)
    store = tmp_path / "settings.json"

    def run(standing: FakeStanding) -> Settings:
        monkeypatch.setattr(search, "Under", lambda url, pid, setup: standing._under(pid))
        return search.search(standing, store, PEER, "short", tmp_path)
    return run, store


def test_search_finds_the_best_while_the_machine_slows_down(play):
    run, _ = play
    assert run(FakeStanding()) == replace(START, batch=32)


def test_search_passes_over_a_setup_that_does_not_start(play, capsys):
    run, _ = play
    assert run(FakeStanding(refused=32)) == START
    assert "mosec-ct2 ended" in capsys.readouterr().err


def test_search_keeps_what_it_found_for_that_traffic_alone(play):
    run, store = play
    found = run(FakeStanding())
    assert known_settings(store, "nobody", PEER, "short") == found
    assert known_settings(store, "nobody", PEER, "profile") == START


def test_known_settings_of_elsewhere_are_taken_where_nothing_is_kept(tmp_path, monkeypatch):
    other = replace(START, batch=8)
    monkeypatch.setitem(FOUND, ("mine", PEER, "short"), other)
    assert known_settings(tmp_path / "none", "mine", PEER, "short") == other
    assert known_settings(tmp_path / "none", "yours", PEER, "short") == START


def test_found_settings_are_each_of_their_peer():
    assert all(found.peer == peer and peer in STARTS for (_, peer, _), found in FOUND.items())
