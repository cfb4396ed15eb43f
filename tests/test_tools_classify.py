"""tools.classify: results in order, the same bytes whatever engines do, faults told by number."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loader.prepare import prepare
from loader.tokenizers.table import open_tokenizer
from loader.wire import ANSWER, FAILED, NO_LABEL, NOT_UTF8, OK, write_record
from model.families.echo import echo_logits
from model.families.table import FAMILIES
from model.scores import scores
from tests.tiny_checkpoint import VOCAB, WORDS, write_checkpoint

pytestmark = pytest.mark.sockets
TRAP = WORDS.index("z")


def echo_folder(folder: Path, **config: object) -> Path:
    write_checkpoint(folder, model_type="echo", architectures=..., **config)
    (folder / "model.safetensors").unlink()
    return folder


def texts(count: int, seed: int = 1) -> list[str]:
    """Words of the tiny vocabulary, without the trap."""
    rng = random.Random(seed)
    return [" ".join(rng.choices("abcdefghij", k=rng.randrange(1, 30))) for _ in range(count)]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "tools.classify", *map(str, arguments)]


def run(repo: Path, *arguments: object, **more: object) -> subprocess.CompletedProcess:
    return subprocess.run(command(*arguments), cwd=repo, capture_output=True, timeout=120, **more)


def expected(folder: Path, items: list[str]) -> list[dict]:
    """What each text's line must say, computed here."""
    prepared = prepare(str(folder), "x", FAMILIES)
    os.close(prepared.weights_fd)
    tokenizer, limit = open_tokenizer(prepared.tokenizer), prepared.card["max_tokens"]
    lines = []
    for text in items:
        ids, split, truncated = tokenizer.encode(text, None, limit)
        values = scores(echo_logits(ids, split, 2), "softmax")
        best = values.index(max(values))
        rounded = [float(f"{value:.6f}") for value in values]
        lines.append({"label": ("bad", "good")[best], "score": rounded[best],
                      "scores": dict(zip(("bad", "good"), rounded)), "tokens": len(ids),
                      "truncated": truncated})
    return lines


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts(3000)))
    return tmp_path / "texts.jsonl"


def test_classify_every_text_has_its_result_in_order(repo, tmp_path, jsonl):
    folder = echo_folder(tmp_path / "echo")
    done = run(repo, jsonl, "--model", folder, "--engines", 3)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected(folder, texts(3000))
    assert b"3,000 texts in " in done.stderr and b" 0 bad\n" in done.stderr


def test_classify_bytes_do_not_depend_on_engines_or_shards(repo, tmp_path, jsonl):
    folder = echo_folder(tmp_path / "echo")
    whole = run(repo, jsonl, "--model", folder, "--engines", 1).stdout
    assert run(repo, jsonl, "--model", folder, "--engines", 4).stdout == whole
    parts = b"".join(run(repo, jsonl, "--model", folder, "--shard", f"{index}/3").stdout
                     for index in range(3))
    assert parts == whole
    assert run(repo, jsonl, "--model", folder, "--skip", 2990).stdout == \
        b"".join(whole.splitlines(True)[2990:])


def test_classify_out_is_continued_with_skip(repo, tmp_path, jsonl):
    folder = echo_folder(tmp_path / "echo")
    whole = run(repo, jsonl, "--model", folder).stdout
    out = tmp_path / "out.jsonl"
    out.write_bytes(b"".join(whole.splitlines(True)[:1000]) + b'{"label": "b')
    done = run(repo, jsonl, "--model", folder, "--skip", 900, "-o", out)
    assert done.returncode == 2 and b"holds 1000 results, not 900; say --skip 1000" in done.stderr
    assert run(repo, jsonl, "--model", folder, "--skip", 1000, "-o", out).returncode == 0
    assert out.read_bytes() == whole
    assert run(repo, jsonl, "--model", folder, "-o", out).returncode == 0
    assert out.read_bytes() == whole


# A fault that strikes again and again where one text is alone would be that text's.
@pytest.mark.parametrize(("sent", "most"), [(signal.SIGKILL, 1000), (signal.SIGSEGV, 6)])
def test_classify_engines_that_die_change_no_byte(repo, tmp_path, jsonl, sent, most):
    whole = run(repo, jsonl, "--model", echo_folder(tmp_path / "fast")).stdout
    slow = echo_folder(tmp_path / "slow", delay_us_per_token=50.0)
    rng, killed = random.Random(3), 0
    with subprocess.Popen(command(jsonl, "--model", slow, "--engines", 3, "-o", tmp_path / "out"),
                          cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        out = tmp_path / "out"
        while process.poll() is None:
            engines = children(process.pid)
            if engines and killed < most and out.exists() and out.stat().st_size:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(engines), sent)
                    killed += 1
            time.sleep(0.02)
        message = process.stderr.read()
    assert process.returncode == 0, message
    assert killed > 3 and b"engines died and were replaced" in message
    assert (tmp_path / "out").read_bytes() == whole


def children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


@pytest.mark.parametrize("trap", ["exit", "segv", "raise", "nonsense"])
def test_classify_text_that_breaks_the_engine_fails_alone(repo, tmp_path, trap):
    folder = echo_folder(tmp_path / "echo", traps={trap: TRAP})
    lines = texts(200)
    lines[70] = "a z"
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n")
    done = run(repo, tmp_path / "t.tsv", "--model", folder, "--engines", 2)
    assert done.returncode == 1 and f"t.tsv:71: failed\n".encode() in done.stderr
    got = [json.loads(line) for line in done.stdout.splitlines()]
    want = expected(folder, lines)
    assert got[70] == {"error": "failed"}
    assert got[:70] == want[:70] and got[71:] == want[71:]


def test_classify_bad_lines_are_told_counted_and_keep_their_place(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo", type_vocab_size=1)
    lines = [b'{"text": "a", "user_id": 7}', b"{", b'{"text": "b", "text_pair": "c"}', b"\xff",
             b'{"text": "c", "user_id": "me"}']
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    done = run(repo, tmp_path / "t.jsonl", "--model", folder)
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and b" 3 bad" in done.stderr
    assert [line.get("user_id") for line in got] == [7, None, None, None, "me"]
    assert ["error" in line for line in got] == [False, True, True, True, False]
    told = [line for line in done.stderr.splitlines() if b"t.jsonl:" in line]
    assert [int(line.split(b":")[1]) for line in told] == [2, 3, 4]
    assert b"single texts only" in told[1] and b"not UTF-8" in told[2]


def test_classify_records_are_answered_as_records_or_lines(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo", traps={"raise": TRAP})
    lines = texts(50)
    (tmp_path / "t.fbr").write_bytes(b"".join(
        [*(write_record(text.encode(), None, 1000 + n) for n, text in enumerate(lines)),
         write_record(b"\xff", None, 5), write_record(b"z", None, 6)]))
    done = run(repo, tmp_path / "t.fbr", "--model", folder, "--to", "records")
    assert done.returncode == 1 and b"t.fbr:50: not UTF-8" in done.stderr
    answers = list(ANSWER.iter_unpack(done.stdout))
    want = expected(folder, lines)
    for number, (user_id, score, label, status) in enumerate(answers[:50]):
        assert (user_id, status) == (1000 + number, OK)
        assert ("bad", "good")[label] == want[number]["label"]
        assert score == pytest.approx(want[number]["score"], abs=1e-6)
    assert [(a[0], a[2], a[3]) for a in answers[50:]] == [(5, NO_LABEL, NOT_UTF8),
                                                          (6, NO_LABEL, FAILED)]
    done = run(repo, tmp_path / "t.fbr", "--model", folder, "--shard", "0/2")
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.pop("user_id") for line in got] == [1000 + n for n in range(len(got))]
    assert got == want[:len(got)] and 20 < len(got) < 30


def test_classify_standard_input_and_columns(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo")
    done = run(repo, "-", "--format", "tsv", "--columns", "label,text", "--model", folder,
               input=b"x\ta b\ny\tc\n")
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected(
        folder, ["a b", "c"])


@pytest.mark.parametrize(("arguments", "words"), [
    (["none.jsonl"], "none.jsonl: No such file"), (["none.fbr"], "none.fbr: No such file"),
    (["-", "--shard", "0/2"], "the standard input holds lines and is read as a whole"),
    (["-", "--format", "records"], "the standard input holds lines"),
    (["x.tsv", "--to", "records"], "--to records answers record files; pack"),
    (["x.tsv", "--model", "/none"], "'/none' is not there"),
    (["x.tsv", "-o", "/none/out"], "/none/out: No such file"),
    (["x.tsv", "-o", "SOURCE"], "x.tsv is the file to read; name another"),
    (["x.fbr"], "x.fbr: record 0 (at byte 0) is cut short"),
    (["x.tsv", "--shard", "2/2"], "is not K/N"), (["x.tsv", "--shard", "a"], "is not K/N"),
    (["x.tsv", "--engines", "0"], "is not a number from 1"),
    (["x.tsv", "--skip", "-1"], "is not a whole number")])
def test_classify_what_cannot_begin_is_refused_in_a_sentence(repo, tmp_path, arguments, words):
    for name in ("x.tsv", "x.fbr"):
        (tmp_path / name).write_bytes(b"a\n")
    folder = echo_folder(tmp_path / "echo")
    place = [str(tmp_path / arguments[0]) if arguments[0] != "-" else "-", *arguments[1:]]
    place = [place[0] if word == "SOURCE" else word for word in place]
    model = [] if "--model" in arguments else ["--model", folder]
    done = run(repo, *place, *model, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stdout == b""
    assert words in done.stderr.decode().splitlines()[-1]


def test_classify_records_are_continued_with_skip(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo")
    (tmp_path / "t.fbr").write_bytes(b"".join(
        write_record(text.encode(), None, n) for n, text in enumerate(texts(20))))
    out = tmp_path / "out"
    arguments = (tmp_path / "t.fbr", "--model", folder, "--to", "records", "-o", out)
    assert run(repo, *arguments).returncode == 0
    whole = out.read_bytes()
    assert len(whole) == 20 * 16
    out.write_bytes(whole[:7 * 16 + 5])
    assert run(repo, *arguments, "--skip", 7).returncode == 0
    assert out.read_bytes() == whole


def test_classify_engines_that_never_live_end_it(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo", traps={"exit": WORDS.index("a")})
    (tmp_path / "t.tsv").write_text("a\n" * 60)
    done = run(repo, tmp_path / "t.tsv", "--model", folder, "--engines", 1)
    assert done.returncode == 3 and b"died 100 times in a row" in done.stderr


def test_classify_interrupted_leaves_whole_lines_and_no_engine(repo, tmp_path, jsonl):
    slow = echo_folder(tmp_path / "slow", delay_us_per_token=1000.0)
    out = tmp_path / "out"
    # A shell starts what it runs in the background deaf to the signal, and children inherit that.
    with subprocess.Popen(command(jsonl, "--model", slow, "--engines", 2, "-o", out), cwd=repo,
                          stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(
                              signal.SIGINT, signal.SIG_DFL)) as process:
        while not (out.exists() and out.stat().st_size):
            assert process.poll() is None
            time.sleep(0.01)
        engines = children(process.pid)
        process.send_signal(signal.SIGINT)
        message = process.stderr.read()
    assert process.returncode == 130 and b"go on with --skip" in message
    assert out.read_bytes().endswith(b"\n") and b"Traceback" not in message
    assert len(engines) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in engines)


def test_classify_reader_that_leaves_ends_it_quietly(repo, tmp_path, jsonl):
    folder = echo_folder(tmp_path / "echo", delay_us_per_token=20.0)
    with subprocess.Popen(command(jsonl, "--model", folder), cwd=repo, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        message = process.stderr.read()
    assert message.startswith(b"echo, version ") and message.count(b"\n") == 1
    assert process.returncode == 1


def test_classify_memory_stays_flat(repo, tmp_path):
    folder = echo_folder(tmp_path / "echo")
    peaks = []
    for count in (10_000, 100_000):
        (tmp_path / "t.tsv").write_text("a b c d e f g h\n" * count)
        script = ("import resource, sys; from tools.classify import main; "
                  f"main([{str(tmp_path / 't.tsv')!r}, '--model', {str(folder)!r}, '--engines', "
                  f"'2', '-o', {str(tmp_path / 'out')!r}]); print(max(resource.getrusage(who)"
                  ".ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))")
        done = subprocess.run([sys.executable, "-c", script], cwd=repo, check=True,
                              capture_output=True)
        peaks.append(int(done.stdout))
        assert (tmp_path / "out").read_bytes().count(b"\n") == count
    assert peaks[1] - peaks[0] < 10 << 10  # KiB


def test_classify_trap_is_no_word_of_the_texts():
    assert TRAP < VOCAB and not any("z" in text for text in texts(3000))
