"""What a front holds of a lone text, packed as it travels: it fares like a group of one."""

import random

from server import codec
from server.actions import Answers, Finish, SendCancel, SendGroups
from server.inflight import NEVER, InFlight, Limits
from server.messages import (CACHE, LOW, RESULT_FAILED, RESULT_OK, Note, Notes, Reason, Refusal,
                             Refused, Result, Results, Row, State)

ENDS = ("'ok'", "'failed'", "'refused'", "'deadline'", "'aged'", "'cancel'")


def moved(held):
    """What the next actions send, cancel and end, in no order."""
    found = []
    for packed in held.take_lone():
        lone = codec.read_lone(packed)
        found.append((lone.group, lone.job, lone.deaths, lone.sends, lone.ids))
    for action in held.take_actions():
        if isinstance(action, SendGroups):
            found += [(group.group, job.job, job.deaths, job.sends, job.ids)
                      for group in action.groups for job in group.jobs]
        elif isinstance(action, SendCancel):
            found += [("cancel", job) for job in action.cancel.jobs]
        elif isinstance(action, Answers):
            found += [(group, "ok", answer[8]) for group, answer in action.answered]
        elif isinstance(action, Finish):
            logits = [result.logits for result in action.outcome.results]
            found.append((action.group, action.outcome.kind, *logits))
    return sorted(map(repr, found))


def test_held_lone_text_fares_like_a_group_of_one():
    reached = set()
    for seed in range(30):
        reached |= fares_alike(random.Random(seed))
    assert reached == set(ENDS)


def fares_alike(rng):
    """Plays one script with lone texts and with groups of one; the ends that were reached."""
    now, reached = 1.0, set()
    limits = Limits(max_age_s=4.0, cache_bytes=rng.choice((0, 1 << 20)))
    pair = [InFlight(0, 7, 1, limits, 0.0) for _ in range(2)]
    steps = ("open", "open", "open", "move", "move", "answer", "answer", "refuse", "note",
             "cancel", "link", "died")
    for held in pair:
        held.link_up(0.5)
    for number in range(1, 400):
        now += rng.choice((0.0, 0.01, 0.3))
        step, life = rng.choice(steps), rng.randint(1, 3)
        group = rng.randint(max(1, number - 20), number)
        job = rng.randint(max(1, number - 120), number)
        some = [rng.randint(max(1, number - 120), number) for _ in range(20)]
        results = [Result(one, rng.choice((RESULT_OK, RESULT_OK, RESULT_FAILED)),
                          rng.choice((0, CACHE)), 0, 1, 2, 3, bytes([one % 256] * 4))
                   for one in some]
        row = Row(3, 3, bytes([rng.randrange(200)] * 6))
        deadline, deaths = rng.choice((None, now + 1.0)), rng.choice((1, 1, 3))
        if step in ("move", "answer"):      # only what was sent is answered
            ours, theirs = map(moved, pair)
            assert ours == theirs
            reached.update(word for word in ENDS if word in "".join(ours))
        for held, is_lone in zip(pair, (True, False)):
            if step == "open" and is_lone:
                held.open_lone(number, 9, LOW, NEVER if deadline is None else deadline, 3, 3,
                               row.ids, now)
            elif step == "open":
                held.open(number, 9, LOW, deadline, [row], now)
            elif step == "answer":
                held.receive(Results(results), now)
            elif step == "refuse":
                held.receive(Refused([Refusal(group, Reason.WAIT, 5)]), now)
            elif step == "note":
                held.receive(Notes([Note(job, deaths)]), now)
            elif step == "cancel":
                held.cancel(group)
            elif step == "link":
                held.link_down(now)
                held.link_up(now)
                held.receive(State(True, 1, life, 0.0, 0.0), now)
            elif step == "died":
                held.dispatcher_died(life, True)
            held.tick(now)
        assert pair[0].open_jobs == pair[1].open_jobs
        assert pair[0].due_at() == pair[1].due_at()
    return reached
