"""The script of a recorded device: read when it changes, each fault once for all processes."""

import pytest

from model.device.script import MIB, Script, ScriptError, parse, write


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "faults")


def test_script_change_is_read_at_the_next_question(path):
    write(path, "memory 1000 900  # plenty\n")
    script = Script(path)
    assert script.memory() == (1000 * MIB, 900 * MIB) and script.launch_s(10) == 0
    write(path, "memory 1000 1.5\nspeed 2.5\n")
    assert script.memory() == (1000 * MIB, MIB * 3 // 2) and script.launch_s(2) == 5e-6


def test_script_tells_what_the_device_computes_in(path):
    assert Script().arithmetic() == ("fp32", "fp8", "int8")
    write(path, "arithmetic fp16 int8\n")
    assert Script(path).arithmetic() == ("fp16", "int8")


def test_script_tells_what_the_device_computes_in(path):
    assert Script().arithmetic() == ("fp32", "fp8", "int8")
    write(path, "arithmetic fp16 int8\n")
    assert Script(path).arithmetic() == ("fp16", "int8")


def test_script_fault_strikes_once_whoever_reads_the_file(path):
    write(path, "speed 1\nonce replay hang\nonce capture error 2\n")
    first, second = Script(path), Script(path)
    assert first.take("replay") == "hang"
    assert second.take("replay") is None and first.take("replay") is None
    assert second.take("capture") is None and second.take("capture") == "error"
    assert Script(path).launch_s(1) == 1e-6, "what is no fault stays"


def test_script_same_fault_twice_strikes_twice(path):
    write(path, "once replay memory\nonce replay memory\n")
    assert [Script(path).take("replay") for _ in range(3)] == ["memory", "memory", None]


def test_script_without_a_file_has_no_fault():
    script = Script()
    assert script.take("replay") is None and script.memory()[1] > 0


@pytest.mark.parametrize("line", ["memory 5", "speed fast", "once replay boredom",
                                  "once lunch hang", "arithmetic", "arithmetic fp64",
                                  "once replay hang soon", "twice x hang"])
def test_script_line_that_says_nothing_is_refused_by_number(line):
    with pytest.raises(ScriptError, match="line 2"):
        parse("# a comment\n" + line)


def test_script_launch_without_a_graph_takes_more_and_no_tokens_take_nothing(path):
    write(path, "speed 2\neager 300\n")
    script = Script(path)
    assert script.launch_s(10) == pytest.approx(20e-6)
    assert script.launch_s(10, is_eager=True) == pytest.approx(320e-6)
    assert script.launch_s(0, is_eager=True) == 0
