"""Readings through the real pynvml over a scripted driver, compiled and in Python."""

import os
import subprocess
import sys

import psutil
import pytest

from server.device_source import DeviceLost, NoDevices, Unread
from server.nvml import Nvml
from tests.nvml_stand_in import build_library, stand_in

GIB = 1 << 30
ONE = f"gpu GPU-a {80 * GIB} {60 * GIB}\n"
TWO = ONE + f"gpu GPU-b {80 * GIB} {50 * GIB}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(params=["compiled", "python"])
def driver(request, library, monkeypatch, tmp_path):
    """Call it with a script to have that driver."""
    if request.param == "compiled" and library is None:
        pytest.skip("no C compiler: the stub driver runs as Python functions only")
    stand_in(monkeypatch, library if request.param == "compiled" else None)
    script = tmp_path / "script"
    monkeypatch.setenv("NVML_SCRIPT", str(script))
    return script.write_text


def test_nvml_two_devices_are_read_by_uuid(driver):
    driver(TWO)
    nvml = Nvml(None)
    assert nvml.uuids == ["GPU-a", "GPU-b"]
    assert nvml.name("GPU-b") == "Stub GPU"
    assert nvml.memory("GPU-b") == (80 * GIB, 50 * GIB)
    driver(f"gpu GPU-b {80 * GIB} {GIB}\n" + ONE)       # other places, as after a hot plug
    nvml = Nvml("1,0")
    assert nvml.uuids == ["GPU-a", "GPU-b"] and nvml.memory("GPU-b")[1] == GIB


@pytest.mark.parametrize("script, variable, words", [
    ("", None, "lists no device"), (ONE, "", "names none of NVML's 1 devices"),
    (ONE, "GPU-x", "names none"), ("rc nvmlInit 9\n", None, "Driver Not Loaded"),
    ("rc nvmlInit 18\n", None, "NVML: "), ("rc nvmlInit 4\n" + ONE, None, "NVML: "),
    (ONE + "rc nvmlDeviceGetCount 999\n", None, "NVML: "),
])
def test_nvml_without_a_device_says_why(driver, script, variable, words):
    driver(script)
    with pytest.raises(NoDevices, match=words):
        Nvml(variable)


@pytest.mark.parametrize("code", [3, 13, 25])
def test_nvml_older_driver_is_asked_the_older_way(driver, code):
    driver(ONE + f"rc nvmlDeviceGetMemoryInfo_v2 {code}\n")
    assert Nvml(None).memory("GPU-a") == (80 * GIB, 60 * GIB)


def test_nvml_unified_memory_is_the_hosts(driver):
    driver(ONE + "rc nvmlDeviceGetMemoryInfo_v2 3\nrc nvmlDeviceGetMemoryInfo 3\n")
    nvml = Nvml(None)
    for _ in range(2):
        total, free = nvml.memory("GPU-a")
        assert total == psutil.virtual_memory().total and 0 < free <= total


def test_nvml_missing_fields_are_left_out(driver):
    driver(ONE + "rc nvmlDeviceGetName 3\nrc nvmlDeviceGetMigMode 13\n")
    nvml = Nvml(None)
    assert nvml.name("GPU-a") == "" and nvml.memory("GPU-a") == (80 * GIB, 60 * GIB)


@pytest.mark.parametrize("code", [79, 95, 119, 120])
def test_nvml_device_that_its_driver_gives_up_is_told_once(driver, code):
    driver(TWO)
    nvml = Nvml(None)
    assert nvml.lost() == {}
    driver(TWO + f"xid GPU-b {code}\n")
    (told,) = nvml.lost().items()
    assert told[0] == "GPU-b" and told[1].startswith(f"Xid {code}: ")
    assert nvml.lost() == {}


@pytest.mark.parametrize("code", [13, 31, 43, 45, 48, 94])
def test_nvml_fault_that_a_process_ends_of_loses_no_device(driver, code):
    driver(TWO)
    nvml = Nvml(None)
    driver(TWO + f"xid GPU-a {code}\nxid GPU-x 79\n")
    assert nvml.lost() == {}


def test_nvml_several_faults_are_told_in_one_look(driver):
    driver(TWO)
    nvml = Nvml(None)
    driver(TWO + "xid GPU-a 13\nxid GPU-a 79\nxid GPU-b 95\n")
    assert sorted(nvml.lost()) == ["GPU-a", "GPU-b"]


def test_nvml_fault_of_a_device_loses_its_slices_and_not_a_neighbours(driver):
    slices = TWO + f"mig MIG-1 {20 * GIB} {9 * GIB}\nmig MIG-2 {20 * GIB} {9 * GIB}\n"
    driver(slices)
    nvml = Nvml("MIG-1")
    driver(slices + "xid GPU-a 79\n")
    assert nvml.lost() == {}
    driver(slices + "xid GPU-a 79\nxid GPU-b 79\n")
    assert list(nvml.lost()) == ["MIG-1"]


@pytest.mark.parametrize("failing", ["nvmlEventSetCreate 13", "nvmlDeviceRegisterEvents 3",
                                     "nvmlEventSetWait 999"])
def test_nvml_driver_without_reports_of_faults_is_read_all_the_same(driver, failing):
    script = ONE + f"rc {failing}\n"
    driver(script)
    nvml = Nvml(None)
    driver(script + "xid GPU-a 79\n")
    assert nvml.lost() == {} and nvml.memory("GPU-a") == (80 * GIB, 60 * GIB)


def test_nvml_faults_are_watched_again_after_the_driver_was_reloaded(driver):
    driver(ONE)
    nvml = Nvml(None)
    driver(ONE + "rc nvmlDeviceGetMemoryInfo_v2 1\n")
    with pytest.raises(Unread):
        nvml.memory("GPU-a")
    driver(ONE + "xid GPU-a 79\n")
    assert list(nvml.lost()) == ["GPU-a"]


@pytest.mark.parametrize("code", [15, 16, 28])
def test_nvml_device_that_is_gone_is_lost_and_its_neighbour_is_not(driver, code):
    driver(TWO)
    nvml = Nvml(None)
    driver(TWO + f"rc nvmlDeviceGetMemoryInfo_v2 {code}\n")
    with pytest.raises(DeviceLost):
        nvml.memory("GPU-a")
    driver(TWO)
    assert nvml.memory("GPU-b") == (80 * GIB, 50 * GIB)


@pytest.mark.parametrize("code", [1, 10, 999, 4, 26])
def test_nvml_failed_reading_is_no_reading_and_the_next_one_is(driver, code):
    driver(ONE)
    nvml = Nvml(None)
    driver(ONE + f"rc nvmlDeviceGetMemoryInfo_v2 {code}\n")
    with pytest.raises(Unread):
        nvml.memory("GPU-a")
    driver(ONE)
    assert nvml.memory("GPU-a") == (80 * GIB, 60 * GIB)


def test_nvml_device_without_a_number_is_left_out(driver):
    driver(TWO + "rc nvmlDeviceGetUUID 15\n")
    with pytest.raises(NoDevices, match="lists no device"):
        Nvml(None)


def test_nvml_cut_device_gives_its_slices(driver):
    driver(ONE + f"mig MIG-1 {20 * GIB} {15 * GIB}\nmig MIG-2 {20 * GIB} {5 * GIB}\n"
           + f"gpu GPU-b {80 * GIB} {50 * GIB}\n")
    nvml = Nvml(None)
    assert nvml.uuids == ["GPU-b", "MIG-1", "MIG-2"]
    assert nvml.memory("MIG-2") == (20 * GIB, 5 * GIB)
    assert Nvml("MIG-1").uuids == ["MIG-1"]


CHILD = """
import sys
from server.device_source import NoDevices
from server.nvml import Nvml
try:
    nvml = Nvml(None)
    print(nvml.uuids, nvml.memory(nvml.uuids[0]))
except NoDevices as error:
    print(error)
print("torch" in sys.modules)
"""


def _child(repo, **variables: str) -> list[str]:
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    return subprocess.run([sys.executable, "-c", CHILD], cwd=repo, env={**environment, **variables},
                          capture_output=True, text=True, check=True, timeout=60
                          ).stdout.splitlines()


def test_nvml_library_is_found_as_the_driver_would_be(repo, library, tmp_path):
    if library is None:
        pytest.skip("no C compiler: there is no library to be found")
    script = tmp_path / "script"
    script.write_text(ONE)
    assert _child(repo, LD_LIBRARY_PATH=str(library.parent), NVML_SCRIPT=str(script)) == [
        f"['GPU-a'] ({80 * GIB}, {60 * GIB})", "False"]


def test_nvml_without_a_library_is_one_sentence(repo):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a driver")
    said, has_torch = _child(repo)
    assert said.startswith("NVML: ") and has_torch == "False"
