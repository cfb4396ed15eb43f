"""The watch's rounds: what is told of each device, and what a failing one costs the others."""

import time

from server.device_source import RECORDED_UUID, DeviceLost, NoDevices, Unread, open_source
from server.gpu_watch import BLIND_AFTER, Watch
from server.processes import Control
from model.device.script import write

import pytest


class Scripted:
    """A source whose answers are given beforehand, by device."""

    def __init__(self, **answers: list) -> None:
        self.uuids = list(answers)
        self.answers = answers

        self.given_up: dict[str, str] = {}

    def name(self, uuid: str) -> str:
        return ""

    def lost(self) -> dict[str, str]:
        return self.given_up

    def memory(self, uuid: str) -> tuple[int, int]:
        answer = self.answers[uuid].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _rounds(source, count: int) -> list[list[dict]]:
    ours, theirs = Control.pair()
    watch = Watch(source, theirs)
    told = []
    for _ in range(count):
        watch.round()
        told.append([message for message, _ in ours.receive()])
    ours.close()
    theirs.close()
    return told


def test_watch_reading_says_when_it_was_made():
    before = time.monotonic()
    ((message,),) = _rounds(Scripted(a=[(10, 5)]), 1)
    assert before <= message.pop("at") <= time.monotonic()
    assert message == {"type": "reading", "uuid": "a", "total": 10, "free": 5}


def test_watch_lost_device_is_told_once_and_its_neighbour_goes_on():
    told = _rounds(Scripted(a=[(10, 5), DeviceLost("fell off the bus")], b=[(10, 6)] * 3), 3)
    assert [[(m["type"], m["uuid"]) for m in row] for row in told] == [
        [("reading", "a"), ("reading", "b")], [("device_lost", "a"), ("reading", "b")],
        [("reading", "b")]]


def test_watch_device_that_its_driver_gives_up_is_told_once_and_read_no_more():
    source = Scripted(a=[], b=[(10, 6)] * 2)
    source.given_up = {"a": "Xid 79"}
    told = _rounds(source, 2)
    assert [[(m["type"], m["uuid"]) for m in row] for row in told] == [
        [("device_lost", "a"), ("reading", "b")], [("reading", "b")]]
    assert told[0][0]["why"] == "Xid 79"


def test_watch_blind_device_is_silent_and_logged_once(capfd):
    failures = [Unread("busy")] * (BLIND_AFTER + 2)
    told = _rounds(Scripted(a=[*failures, (10, 5)]), len(failures) + 1)
    assert [len(row) for row in told] == [0] * len(failures) + [1]
    assert capfd.readouterr().err.count("event=device_unread") == 1


def test_watch_recorded_device_is_read_from_the_script(tmp_path):
    path = str(tmp_path / "faults")
    write(path, "memory 100 50\n")
    source = open_source("recorder", path, "")
    assert source.uuids == [RECORDED_UUID] and source.memory(RECORDED_UUID)[1] == 50 << 20
    write(path, "once watch lost\n")
    with pytest.raises(DeviceLost):
        source.memory(RECORDED_UUID)


def test_watch_variable_that_hides_all_devices_leaves_none_to_watch():
    with pytest.raises(NoDevices):
        open_source("cuda", "", "")
