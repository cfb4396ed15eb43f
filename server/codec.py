"""The bytes of the house's messages: a writer for each, and one reader for all.

AF_UNIX SOCK_SEQPACKET; little-endian structs; header u16 type, u16 version, u32 count of entries.
A message is at most LIMIT_BYTES, because larger ones meet EMSGSIZE at the kernel's default buffers;
what one turn of a loop produced is cut at the border of a job. Token ids travel as one opaque run
of bytes that the dispatcher forwards unread. The reader raises MessageError for whatever does not
fit.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import isnan

from server.actions import Answer
from server.dispatch import Answered
from server.held import Lone, Packed
from server.messages import (CACHE, ENGINE_KINDS, HIGH, LIMIT_BYTES, LOW, RESULT_OK, VERSION, Batch,
                             Cancel, Done, EngineHello, Failed, FrontHello, Group, Job, Jobs,
                             LoneJobs, MessageError, Note, Notes, PackedBatch, Refusal, Refused,
                             Result, Results, State, Type)

_HEADER = struct.Struct("<HHI")
_GROUP = struct.Struct("<QQdBII")       # group, connection, deadline, priority, count, here
_JOB = struct.Struct("<QIIIBB")         # job, tokens, split, ids' bytes, deaths, sends
_GROUP_OF_ONE = struct.Struct(_GROUP.format + _JOB.format[1:])
# group, connection, deadline, priority, job, tokens, split, ids' bytes, deaths, sends; the ids of
# all come after the last of them.
LONE = struct.Struct("<QQdBQIIIBB")
_RESULT = struct.Struct("<QBBHHIIH")    # job, status, kind, engine, batch size, µs, µs, classes
_REFUSED = struct.Struct("<QBI")        # group, reason, retry ms
_NOTE = struct.Struct("<QB")            # job, deaths
# ready, engines, dispatcher's incarnation, backlogs ms, whether it is full
_STATE = struct.Struct("<?HQdd?")
_FRONT_HELLO = struct.Struct("<HQI")    # front, incarnation, generation
_ENGINE_HELLO = struct.Struct("<BHQIH")  # kind, index, incarnation, generation, classes
_COST = struct.Struct("<IId")           # texts, tokens, ms
# Of a batch come its rows' sizes in bytes, u32, their splits, u32, and the ids of all.
_BATCH = struct.Struct("<QB")           # batch, priority
# What an engine reads and writes once a batch: an enumeration's members are found slowly.
_BATCH_KIND, _DONE_KIND = int(Type.BATCH), int(Type.DONE)
_BATCH_HEAD = struct.Struct(_HEADER.format + _BATCH.format[1:])
BATCH_HEAD_BYTES = _BATCH_HEAD.size
_DONE = struct.Struct("<QIHI")          # batch, µs, classes, padding
_DONE_HEAD = struct.Struct(_HEADER.format + _DONE.format[1:])
_FAILED = struct.Struct("<QB")          # batch, fatal


def encode_front_hello(hello: FrontHello) -> bytes:
    return _HEADER.pack(Type.FRONT_HELLO, VERSION, 1) + _FRONT_HELLO.pack(
        hello.front, hello.incarnation, hello.generation)


def encode_engine_hello(hello: EngineHello) -> bytes:
    points = b"".join(_COST.pack(*point) for point in hello.costs)
    return _HEADER.pack(Type.ENGINE_HELLO, VERSION, len(hello.costs)) + _ENGINE_HELLO.pack(
        hello.kind, hello.index, hello.incarnation, hello.generation, hello.classes) + points


def encode_jobs(groups: Iterable[Group]) -> list[bytes]:
    """As few messages as hold all groups, cut between jobs; a cut group continues in the next."""
    messages: list[bytes] = []
    parts: list[bytes] = []         # of the message being filled, without its header
    size, heads = _HEADER.size, 0
    for group in groups:
        jobs, at = group.jobs, 0
        if len(jobs) == 1:      # most requests: one call for both heads
            job = jobs[0]
            need = _GROUP_OF_ONE.size + len(job.ids)
            if need <= LIMIT_BYTES - size:
                parts += (_GROUP_OF_ONE.pack(
                    group.group, group.connection, group.deadline, group.priority, group.count, 1,
                    job.job, job.tokens, job.split, len(job.ids), job.deaths, job.sends), job.ids)
                size, heads = size + need, heads + 1
                continue
        while at < len(jobs):
            taken: list[bytes] = []
            room = LIMIT_BYTES - size - _GROUP.size
            first = at
            while at < len(jobs):
                job = jobs[at]
                need = _JOB.size + len(job.ids)
                if need > room:
                    break
                room -= need
                taken += (_JOB.pack(job.job, job.tokens, job.split, len(job.ids), job.deaths,
                                    job.sends), job.ids)
                at += 1
            if at > first:
                parts.append(_GROUP.pack(group.group, group.connection, group.deadline,
                                         group.priority, group.count, at - first))
                parts += taken
                size, heads = LIMIT_BYTES - room, heads + 1
            if at < len(jobs):
                messages.append(_HEADER.pack(Type.JOBS, VERSION, heads) + b"".join(parts))
                parts, size, heads = [], _HEADER.size, 0
    if heads:
        messages.append(_HEADER.pack(Type.JOBS, VERSION, heads) + b"".join(parts))
    return messages


def encode_lone(requests: Sequence[Packed]) -> list[bytes]:
    """As `encode_jobs`, of requests that have one text each: most turns' message in one piece."""
    message = b"".join([_HEADER.pack(Type.LONE, VERSION, len(requests)),
                        *[one[2] for one in requests], *[one[3] for one in requests]])
    return [message] if len(message) <= LIMIT_BYTES else encode_jobs(map(read_lone, requests))


def read_lone(packed: Packed) -> Lone:
    """The group and job that were packed; fields that do not travel but `opened_at` are not set."""
    lone = Lone()
    _, lone.opened_at, head, lone.ids = packed
    (lone.group, lone.connection, lone.deadline, lone.priority, lone.job, lone.tokens, lone.split,
     _, lone.deaths, lone.sends) = LONE.unpack(head)
    return lone


def encode_results(results: Iterable[Result]) -> list[bytes]:
    return cut_results(pack_results(results))


def cut_results(packed: Sequence[bytes]) -> list[bytes]:
    """Messages of what the next two functions give."""
    return _cut(Type.RESULTS, packed)


def pack_results(results: Iterable[Result]) -> list[bytes]:
    pack, most = _RESULT.pack, 0xFFFFFFFF
    return [
        pack(r.job, r.status, r.kind, r.engine, r.batch_size,
             r.queue_us if r.queue_us < most else most, r.infer_us if r.infer_us < most else most,
             len(r.logits) // 4) + r.logits
        for r in results]


def pack_answered(answered: Answered) -> list[bytes]:
    """As `pack_results`, of jobs that differ by their numbers and logits alone."""
    _, jobs, kind, engine, batch_size, queue_us, infer_us, width, logits = answered
    most = 0xFFFFFFFF
    alike = _RESULT.pack(0, RESULT_OK, kind, engine, batch_size, min(queue_us, most),
                         min(infer_us, most), width // 4)[8:]
    return [job.to_bytes(8, "little") + alike + logits[at:at + width]
            for job, at in zip(jobs, range(0, len(logits), width))]


def encode_cancel(jobs: Sequence[int]) -> list[bytes]:
    return _cut(Type.CANCEL, [job.to_bytes(8, "little") for job in jobs])


def encode_refused(refusals: Iterable[Refusal]) -> list[bytes]:
    return _cut(Type.REFUSED, [_REFUSED.pack(r.group, r.reason, r.retry_ms) for r in refusals])


def encode_notes(notes: Iterable[Note]) -> list[bytes]:
    return _cut(Type.NOTE, [_NOTE.pack(note.job, note.deaths) for note in notes])


def encode_state(state: State) -> bytes:
    return _HEADER.pack(Type.STATE, VERSION, 1) + _STATE.pack(
        state.ready, state.engines, state.incarnation, state.backlog_high_ms,
        state.backlog_low_ms, state.is_full)


def encode_batch(batch: Batch) -> bytes:
    ids, splits = [], []
    for row in batch.rows:
        ids.append(row.ids)
        splits.append(row.split)
    return encode_packed(PackedBatch(batch.batch, batch.priority, list(map(len, ids)), splits,
                                     b"".join(ids)))


def encode_packed(batch: PackedBatch) -> bytes:
    sizes, splits = batch.sizes, batch.splits
    return b"".join((
        _HEADER.pack(Type.BATCH, VERSION, len(sizes)), _BATCH.pack(batch.batch, batch.priority),
        struct.pack(f"<{2 * len(sizes)}I", *sizes, *splits), batch.ids))


def encode_done(done: Done, rows: int) -> bytes:
    return _DONE_HEAD.pack(_DONE_KIND, VERSION, rows, done.batch, min(done.infer_us, 0xFFFFFFFF),
                           done.classes, done.padding) + done.logits


def encode_failed(failed: Failed) -> bytes:
    reason = failed.reason.encode("utf-8", "replace")[:1000]
    return _HEADER.pack(Type.FAILED, VERSION, 1) + _FAILED.pack(
        failed.batch, failed.fatal) + reason


def _cut(kind: Type, entries: Sequence[bytes]) -> list[bytes]:
    size = _HEADER.size + sum(map(len, entries))
    if entries and size <= LIMIT_BYTES:
        return [_HEADER.pack(kind, VERSION, len(entries)) + b"".join(entries)]
    messages, part, size = [], [], _HEADER.size
    for entry in entries:
        if size + len(entry) > LIMIT_BYTES:
            messages.append(_HEADER.pack(kind, VERSION, len(part)) + b"".join(part))
            part, size = [], _HEADER.size
        part.append(entry)
        size += len(entry)
    if part:
        messages.append(_HEADER.pack(kind, VERSION, len(part)) + b"".join(part))
    return messages


def decode(data: bytes) -> object:
    """The message that `data` holds, as one of the classes above. Raises MessageError."""
    try:
        kind, version, count = _HEADER.unpack_from(data)
        if version != VERSION:
            raise MessageError(f"protocol version {version}, this process speaks {VERSION}")
        reader = _READERS.get(kind)
        if reader is None:
            raise MessageError(f"unknown message type {kind}")
        message, end = reader(data, count)
    except (struct.error, IndexError) as error:
        raise MessageError(f"cut message of {len(data)} bytes: {error}") from None
    if end != len(data):
        raise MessageError(f"message of type {kind} has {len(data)} bytes, its entries {end}")
    return message


def read_batch_head(data: bytes) -> tuple[int, int] | None:
    """(batch, its rows) of a message that begins as a batch does; None for any other, which
    `decode` reads or refuses."""
    if len(data) < BATCH_HEAD_BYTES:
        return None
    kind, version, rows, batch, priority = _BATCH_HEAD.unpack_from(data)
    if kind != _BATCH_KIND or version != VERSION or priority not in (HIGH, LOW):
        return None
    return batch, rows


def read_answers(data: bytes) -> list[Answer] | None:
    """The results of a message as plain tuples, where all have as many logits, as those of one
    model do that are answered; None for any other message, which `decode` reads or refuses."""
    if len(data) < _HEADER.size + _RESULT.size:
        return None
    kind, version, count = _HEADER.unpack_from(data)
    if kind != Type.RESULTS or version != VERSION:
        return None
    classes = _RESULT.unpack_from(data, _HEADER.size)[7]
    entry = _answer_of(classes)
    if len(data) != _HEADER.size + count * entry.size:
        return None
    answers = list(entry.iter_unpack(memoryview(data)[_HEADER.size:]))
    for answer in answers:
        if answer[7] != classes or answer[2] > CACHE:
            return None
    return answers


@lru_cache(maxsize=4)
def _answer_of(classes: int) -> struct.Struct:
    return struct.Struct(f"{_RESULT.format}{4 * classes}s")


def _read_jobs(data: bytes, count: int) -> tuple[Jobs, int]:
    groups, at, length = [], _HEADER.size, len(data)
    # A group has a job at least, so both heads are read at once, as most requests have one text.
    read, both_size = _GROUP_OF_ONE.unpack_from, _GROUP_OF_ONE.size
    for _ in range(count):
        (group, connection, deadline, priority, total, here,
         job, tokens, split, size, deaths, sends) = read(data, at)
        if priority not in (HIGH, LOW) or not 0 < here <= total or deadline != deadline:
            raise MessageError(f"group {group}: priority {priority}, {here} jobs of {total}")
        at += both_size
        end = at + size
        jobs = [Job(job, tokens, split, deaths, sends, data[at:end])]
        for _ in range(here - 1) if here > 1 else ():
            job, tokens, split, size, deaths, sends = _JOB.unpack_from(data, end)
            at = end + _JOB.size
            end = at + size
            jobs.append(Job(job, tokens, split, deaths, sends, data[at:end]))
        if end > length:        # then it ends the last job of the message
            raise MessageError(f"job {job}: {size} bytes of ids, {length - at} are left")
        at = end
        groups.append(Group(group, connection, priority, deadline, total, jobs))
    return Jobs(groups), at


def _read_lone(data: bytes, count: int) -> tuple[LoneJobs, int]:
    at = _HEADER.size + LONE.size * count
    if not count or at > len(data):
        raise MessageError(f"{count} lone jobs in {len(data)} bytes")
    lone = LoneJobs(*zip(*LONE.iter_unpack(data[_HEADER.size:at])), data[at:])
    if max(lone.priorities) > LOW or any(map(isnan, lone.deadlines)):
        raise MessageError(f"lone jobs: priorities {set(lone.priorities)}, or a deadline is none")
    return lone, at + sum(lone.sizes)


def _read_results(data: bytes, count: int) -> tuple[Results, int]:
    results, at = [], _HEADER.size
    read, head_size, size = _RESULT.unpack_from, _RESULT.size, len(data)
    for _ in range(count):
        job, status, kind, engine, batch_size, queue_us, infer_us, classes = read(data, at)
        at += head_size
        end = at + 4 * classes
        if end > size or kind > CACHE:
            raise MessageError(f"result of job {job} does not fit")
        results.append(Result(job, status, kind, engine, batch_size, queue_us, infer_us,
                              data[at:end]))
        at = end
    return Results(results), at


def _read_cancel(data: bytes, count: int) -> tuple[Cancel, int]:
    return Cancel(list(struct.unpack_from(f"<{count}Q", data, _HEADER.size))), \
        _HEADER.size + 8 * count


def _read_refused(data: bytes, count: int) -> tuple[Refused, int]:
    end = _HEADER.size + count * _REFUSED.size
    return Refused([Refusal(*fields) for fields in
                    _REFUSED.iter_unpack(_run(data, end))]), end


def _read_notes(data: bytes, count: int) -> tuple[Notes, int]:
    end = _HEADER.size + count * _NOTE.size
    return Notes([Note(*fields) for fields in _NOTE.iter_unpack(_run(data, end))]), end


def _run(data: bytes, end: int) -> bytes:
    if end > len(data):
        raise MessageError(f"message of {len(data)} bytes, its entries take {end}")
    return data[_HEADER.size:end]


def _read_state(data: bytes, _: int) -> tuple[State, int]:
    return State(*_STATE.unpack_from(data, _HEADER.size)), _HEADER.size + _STATE.size


def _read_front_hello(data: bytes, _: int) -> tuple[FrontHello, int]:
    return FrontHello(*_FRONT_HELLO.unpack_from(data, _HEADER.size)), \
        _HEADER.size + _FRONT_HELLO.size


def _read_engine_hello(data: bytes, count: int) -> tuple[EngineHello, int]:
    head = _ENGINE_HELLO.unpack_from(data, _HEADER.size)
    at = _HEADER.size + _ENGINE_HELLO.size
    if head[0] >= len(ENGINE_KINDS):
        raise MessageError(f"unknown engine kind {head[0]}")
    costs = [_COST.unpack_from(data, at + number * _COST.size) for number in range(count)]
    return EngineHello(*head, costs), at + count * _COST.size


def _read_batch(data: bytes, count: int) -> tuple[PackedBatch, int]:
    batch, priority = _BATCH.unpack_from(data, _HEADER.size)
    if priority not in (HIGH, LOW):
        raise MessageError(f"batch {batch}: priority {priority}")
    at = _HEADER.size + _BATCH.size
    heads = list(struct.unpack_from(f"<{2 * count}I", data, at))
    at += 8 * count
    sizes, splits = heads[:count], heads[count:]
    return PackedBatch(batch, priority, sizes, splits, data[at:]), at + sum(sizes)


def _read_done(data: bytes, count: int) -> tuple[Done, int]:
    batch, infer_us, classes, padding = _DONE.unpack_from(data, _HEADER.size)
    at = _HEADER.size + _DONE.size
    return Done(batch, infer_us, classes, data[at:], padding), at + 4 * classes * count


def _read_failed(data: bytes, _: int) -> tuple[Failed, int]:
    batch, fatal = _FAILED.unpack_from(data, _HEADER.size)
    reason = data[_HEADER.size + _FAILED.size:].decode("utf-8", "replace")
    return Failed(batch, bool(fatal), reason), len(data)


_READERS = {
    Type.FRONT_HELLO: _read_front_hello, Type.ENGINE_HELLO: _read_engine_hello,
    Type.JOBS: _read_jobs, Type.CANCEL: _read_cancel, Type.RESULTS: _read_results,
    Type.REFUSED: _read_refused, Type.NOTE: _read_notes, Type.STATE: _read_state,
    Type.BATCH: _read_batch, Type.DONE: _read_done, Type.FAILED: _read_failed,
    Type.LONE: _read_lone,
}
