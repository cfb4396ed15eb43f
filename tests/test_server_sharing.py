"""Equal texts are computed once, whoever goes away; faults stay with those who waited for them."""

import math
import random
import struct
from collections import Counter

import pytest

from server.dispatch import SendNotes, SendRefused, SendResults
from server.messages import (CACHE, CPU, HIGH, LOW, Done, EngineHello, Failed, Group, Job, Reason)
from tests.scheduler_desk import COSTS, FRONT, Desk

OTHER = (1, 200)


def ids_of(text, tokens):
    return text.to_bytes(4, "little") * (tokens // 2)


def logits_of(ids, split):
    """What the engines of these tests answer: it tells texts and splits apart."""
    return struct.pack("<2f", int.from_bytes(ids[:4], "little"), split)


class SharingDesk(Desk):
    """A desk with a cache and two fronts, whose texts are numbers."""

    def __init__(self, engines=1, cache_bytes=1 << 20, **policy):
        super().__init__(engines, cache_bytes=cache_bytes, **policy)
        self.scheduler.front_hello(OTHER)
        self.asked = {}

    def ask_for(self, *texts, source=FRONT, tokens=10, split=10, priority=LOW, connection=1,
                deadline=math.inf, sends=1, deaths=0):
        """The jobs of a group with these texts."""
        jobs = []
        for text in texts:
            jobs.append(Job(self.next_job, tokens, split, deaths, sends, ids_of(text, tokens)))
            self.asked[self.next_job] = (text, split)
            self.next_job += 1
        self.scheduler.jobs(source, [Group(self.next_job, connection, priority, deadline,
                                           len(jobs), jobs)], self.now)
        return [job.job for job in jobs]

    def texts_at(self, index, incarnation=1):
        return [[int.from_bytes(row.ids[:4], "little") for row in batch.rows]
                for batch in self.running[index, incarnation]]

    def compute(self, index=0, incarnation=1, logits=None):
        batch = self.running[index, incarnation].pop(0)
        assert self.scheduler.done(index, incarnation, Done(batch.batch, 1000, 2, b"".join(
            logits or logits_of(row.ids, row.split) for row in batch.rows)), self.now)
        return self.answers()

    def answers(self):
        """(source, job) → result of what is sent now; each is the right one."""
        found = {}
        for action in self.act().get(SendResults, []):
            for result in action.results:
                assert (action.source, result.job) not in found
                found[action.source, result.job] = result
        return found

    def know(self, text, **given):
        """Asks for a text and has it computed, so that it is kept."""
        self.ask_for(text, **given)
        self.act()
        self.compute()


def test_sharing_known_text_is_answered_at_once_and_without_an_engine():
    desk = SharingDesk()
    desk.know(7)
    (job,) = desk.ask_for(7, source=OTHER)
    answers = desk.answers()
    assert answers[OTHER, job].kind == CACHE
    assert answers[OTHER, job].logits == logits_of(ids_of(7, 10), 10)
    assert desk.texts_at(0) == [] and desk.scheduler.sharing.counts == [1, 0, 1]


def test_sharing_same_ids_of_another_split_are_another_text():
    desk = SharingDesk()
    desk.know(7, split=10)
    desk.ask_for(7, split=4)
    assert desk.answers() == {} and desk.texts_at(0) == [[7]]
    desk.ask_for(7, split=5)
    desk.act()
    assert sum(desk.texts_at(0), []) == [7, 7]


def test_sharing_without_a_cache_nobody_shares():
    desk = SharingDesk(cache_bytes=0)
    desk.know(7)
    desk.ask_for(7, 7)
    assert desk.answers() == {} and desk.texts_at(0) == [[7, 7]]
    assert desk.scheduler.sharing.counts == [0, 0, 0]


def test_sharing_twins_of_two_fronts_are_computed_once():
    desk = SharingDesk()
    (first,) = desk.ask_for(7)
    (queued,) = desk.ask_for(7, source=OTHER)
    desk.act()
    (late,) = desk.ask_for(7, source=OTHER, connection=2)
    assert desk.act() == {} or desk.texts_at(0) == [[7]]
    answers = desk.compute()
    assert set(answers) == {(FRONT, first), (OTHER, queued), (OTHER, late)}
    assert {result.logits for result in answers.values()} == {logits_of(ids_of(7, 10), 10)}
    assert all(result.kind == CPU for result in answers.values())
    assert desk.scheduler.sharing.counts == [0, 2, 1]


def test_sharing_hit_is_answered_though_the_queue_is_full():
    desk = SharingDesk(max_jobs=2)
    desk.know(7)
    desk.ask_for(1, tokens=300)
    desk.act()
    desk.ask_for(2, 3)
    (job,) = desk.ask_for(7)
    assert (FRONT, job) in desk.answers()


def test_sharing_refused_group_gets_no_answer_though_a_part_is_known():
    desk = SharingDesk(max_jobs=2)
    desk.know(7)
    desk.ask_for(1, tokens=300)
    desk.act()
    desk.ask_for(2, 3)
    desk.ask_for(7, 4)
    acted = desk.act()
    assert [action.refusal.reason for action in acted[SendRefused]] == [Reason.FULL]
    assert SendResults not in acted


def test_sharing_joining_costs_no_wait_and_is_not_refused():
    desk = SharingDesk(max_wait_ms=50)
    desk.ask_for(0, tokens=300)
    desk.act()
    desk.ask_for(1, tokens=400)
    desk.ask_for(2, tokens=400, connection=99)
    waited = desk.scheduler.wait_ms(LOW)
    for connection in range(50):
        desk.ask_for(2, tokens=400, connection=connection)
    assert desk.scheduler.wait_ms(LOW) == waited and SendRefused not in desk.act()
    desk.ask_for(3, tokens=400)
    assert len(desk.act()[SendRefused]) == 1


def test_sharing_high_job_does_not_wait_as_its_low_twin_does():
    desk = SharingDesk(max_wait_ms=1e9, high_share=1.0)
    desk.ask_for(0, tokens=450)
    desk.act()
    for text in range(1, 20):
        desk.ask_for(text, tokens=450)
    (low,) = desk.ask_for(99, tokens=450)
    (high,) = desk.ask_for(99, tokens=450, priority=HIGH, source=OTHER)
    desk.compute()
    assert desk.texts_at(0)[0] == [99]
    assert set(desk.compute()) == {(FRONT, low), (OTHER, high)}


def test_sharing_jobs_deadline_is_its_own():
    desk = SharingDesk(max_wait_ms=1e9)
    desk.ask_for(0, tokens=450)
    desk.act()
    for text in range(1, 20):
        desk.ask_for(text, tokens=450)
    (patient,) = desk.ask_for(99, tokens=10)
    (urgent,) = desk.ask_for(99, tokens=10, deadline=1.2, connection=2)
    desk.now = 1.15
    desk.compute()
    assert 99 in desk.texts_at(0)[0]
    assert {(FRONT, patient), (FRONT, urgent)} <= set(desk.compute())


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("leaves", ["cancel", "front"])
def test_sharing_twin_that_goes_away_takes_nobody_with_it(is_running, leaves):
    desk = SharingDesk()
    desk.ask_for(0, tokens=300)
    desk.act()
    (first,) = desk.ask_for(7)
    (second,) = desk.ask_for(7, source=OTHER)
    if is_running:
        desk.compute()
        assert desk.texts_at(0) == [[7]]
    if leaves == "cancel":
        desk.scheduler.cancel(FRONT, [first])
    else:
        desk.scheduler.front_gone(FRONT)
    if not is_running:
        desk.compute()
    assert set(desk.compute()) == {(OTHER, second)}


def test_sharing_text_whose_jobs_all_left_is_kept_if_it_was_computed():
    desk = SharingDesk()
    (job,) = desk.ask_for(7)
    desk.act()
    desk.scheduler.cancel(FRONT, [job])
    assert desk.compute() == {}
    (again,) = desk.ask_for(7)
    assert desk.answers()[FRONT, again].kind == CACHE


def test_sharing_cost_is_counted_for_the_twin_that_is_left():
    desk = SharingDesk(max_wait_ms=1e9)
    desk.ask_for(0, tokens=300)
    desk.act()
    (first,) = desk.ask_for(7, tokens=100)
    wait_ms = desk.scheduler.wait_ms(LOW)
    (high,) = desk.ask_for(7, tokens=100, priority=HIGH)
    assert desk.scheduler.wait_ms(HIGH) == desk.scheduler.wait_ms(LOW) == wait_ms
    desk.scheduler.cancel(FRONT, [high])
    assert (desk.scheduler.wait_ms(HIGH), desk.scheduler.wait_ms(LOW)) == (0.0, wait_ms)
    desk.scheduler.cancel(FRONT, [first])
    assert desk.scheduler.wait_ms(LOW) == 0.0


def test_sharing_twins_of_a_dead_batch_are_suspects_together_and_computed_once():
    desk = SharingDesk(engines=2)
    desk.ask_for(0, tokens=300)
    desk.act()
    jobs = [desk.ask_for(7, connection=number)[0] for number in range(3)]
    desk.act()
    (late,) = desk.ask_for(7, source=OTHER)
    notes = desk.die(1, fault=True)[SendNotes]
    assert sorted(note.job for action in notes for note in action.notes) == [*jobs, late]
    assert desk.scheduler.recomputed == 1
    (later,) = desk.ask_for(7, connection=9)
    desk.ask_for(8)
    desk.compute()
    assert desk.texts_at(0)[0] == [7]
    answers = desk.compute()
    assert {job for _, job in answers} == {*jobs, late, later}


def test_sharing_answer_after_a_fault_or_of_a_suspect_is_not_kept():
    desk = SharingDesk(engines=2)
    desk.ask_for(7)
    desk.act()
    desk.die(0, fault=False)
    desk.compute(1)
    desk.ask_for(7, sends=6)
    desk.act()
    assert desk.compute(1)
    desk.ask_for(7)
    assert desk.answers() == {} and desk.texts_at(1) == [[7]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sharing_logits_that_are_not_finite_are_not_kept(value):
    desk = SharingDesk()
    desk.ask_for(7)
    desk.act()
    assert len(desk.compute(logits=struct.pack("<2f", 1.0, value))) == 1
    desk.ask_for(7)
    assert desk.answers() == {}


def test_sharing_later_twin_counts_only_the_faults_that_it_waited_through():
    desk = SharingDesk(engines=4)
    (first,) = desk.ask_for(7)
    desk.act()
    for index in (0, 1):
        desk.die(index, fault=True)
    (later,) = desk.ask_for(7, source=OTHER)
    desk.act()
    notes = [(note.job, note.deaths) for action in desk.die(2, fault=True)[SendNotes]
             for note in action.notes]
    assert sorted(notes) == [(first, 3), (later, 1)]
    assert set(desk.compute(3)) == {(OTHER, later)}


def test_sharing_held_twin_is_answered_by_the_others_run():
    desk = SharingDesk(engines=4)
    (held,) = desk.ask_for(7)
    desk.act()
    for index in range(3):
        desk.die(index)                     # three deaths, none judged: held
    (other,) = desk.ask_for(7, source=OTHER)
    desk.act()
    assert set(desk.compute(3)) == {(FRONT, held), (OTHER, other)}
    desk.scheduler.death(0, 1, True)
    assert SendNotes not in desk.act()


def test_sharing_job_that_comes_as_a_suspect_runs_by_itself():
    desk = SharingDesk(engines=2)
    (sound,) = desk.ask_for(7)
    (suspect,) = desk.ask_for(7, source=OTHER, deaths=1)
    desk.act()
    assert [desk.texts_at(index) for index in (0, 1)] == [[[7]], [[7]]]
    answers = [desk.compute(index) for index in (0, 1)]
    assert sorted(job for found in answers for _, job in found) == [sound, suspect]


@pytest.mark.parametrize("seed", range(30))
def test_sharing_random_lives_answer_every_job_once_and_leave_nothing(seed):
    Walk(seed).play()


class Walk:
    """Fronts, cancels, deaths of engines and of fronts at random, against plain bookkeeping."""

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.desk = SharingDesk(engines=3, cache_bytes=rng.choice((500, 3_000, 1 << 20)),
                                max_wait_ms=1e9, high_share=rng.choice((0.0, 0.8, 1.0)))
        self.texts = rng.choice((3, 12))
        self.open = {}                      # (source, job) → (text, split)
        self.lives = Counter({0: 1, 1: 1, 2: 1})
        self.poison = {0} if rng.random() < 0.5 else set()
        self.hits = 0

    def play(self):
        rng = self.rng
        for _ in range(600):
            self.desk.now += rng.random() * 0.01
            rng.choice((self.ask, self.ask, self.step, self.step, self.step, self.step,
                        self.cancel, self.kill, self.front_dies))()
            self.settle()
        self.poison = set()
        for _ in range(3000):
            if not self.open:
                break
            self.step()
            self.settle()
        assert not self.open
        queue, sharing = self.desk.scheduler._queue, self.desk.scheduler.sharing
        assert (queue.count, queue.size_bytes, queue.backlog_ms) == (0, 0, [0.0, 0.0])
        running = [key for key in self.lives if self.desk.running[key, self.lives[key]]]
        assert running or not sharing._twins
        assert self.hits and sharing.counts[1]

    def ask(self):
        rng, source = self.rng, self.rng.choice((FRONT, OTHER))
        texts = [rng.randrange(self.texts) for _ in range(rng.choice((1, 1, 3)))]
        split = rng.choice((3, 10))
        jobs = self.desk.ask_for(*texts, source=source, split=split, priority=rng.randint(0, 1),
                                 tokens=10, connection=rng.randrange(4),
                                 deaths=int(rng.random() < 0.05))
        for job, text in zip(jobs, texts):
            self.open[source, job] = text, split

    def step(self):
        index = self.rng.randrange(3)
        key = index, self.lives[index]
        if not self.desk.running[key]:
            return
        batch = self.desk.running[key][0]
        if self.poison & {int.from_bytes(row.ids[:4], "little") for row in batch.rows}:
            self.kill(index, True)
        elif self.rng.random() < 0.03:
            self.desk.running[key].pop(0)
            self.desk.scheduler.failed(*key, Failed(batch.batch, False, "x"))
        else:
            self.desk.running[key].pop(0)
            self.desk.scheduler.done(*key, Done(batch.batch, 1000, 2, b"".join(
                logits_of(row.ids, row.split) for row in batch.rows)), self.desk.now)

    def cancel(self):
        if self.open:
            source, job = self.rng.choice(list(self.open))
            del self.open[source, job]
            self.desk.scheduler.cancel(source, [job])

    def front_dies(self):
        if self.rng.random() < 0.1:
            source = self.rng.choice((FRONT, OTHER))
            self.desk.scheduler.front_hello(source)
            self.open = {key: text for key, text in self.open.items() if key[0] != source}

    def kill(self, index=None, fault=False):
        index = self.rng.randrange(3) if index is None else index
        life = self.lives[index]
        self.lives[index] += 1
        self.desk.scheduler.engine_gone(index, life)
        self.desk.scheduler.death(index, life, fault)
        self.desk.running[index, life + 1] = []
        self.desk.scheduler.engine_hello(EngineHello(0, index, life + 1, 1, 2, COSTS))

    def settle(self):
        """Everything that is sent fits somebody who waits for it; nobody's books are wrong."""
        acted = self.desk.act()
        for action in acted.get(SendResults, []):
            for result in action.results:
                text, split = self.open.pop((action.source, result.job))
                assert result.logits == logits_of(ids_of(text, 10), split)
                self.hits += result.kind == CACHE
        for action in acted.get(SendNotes, []):
            for note in action.notes:
                if note.deaths >= 3:
                    del self.open[action.source, note.job]
        held = self.desk.scheduler._by_source
        assert {(source, job) for source in held for job in held[source]} == set(self.open)
