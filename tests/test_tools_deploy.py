"""The deployment examples: accepted by the programs that read them, and true to our flags."""

import re
import shutil
import subprocess
import sys

import pytest

from server.settings import SETTINGS
from tests.house import ROOT

DEPLOY = ROOT / "tools" / "deploy"
FLAGS = {setting.flag for setting in SETTINGS}
VARIABLES = {setting.variable for setting in SETTINGS}
EXAMPLES = ("firebrick.service", "haproxy.cfg", "nginx.conf", "kubernetes.yaml", "Dockerfile")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def number(text, key):
    return int(re.search(rf"{key}[\":=, ]+(\d+)", text).group(1))


@pytest.mark.parametrize("name", EXAMPLES)
def test_deploy_example_names_only_flags_and_variables_that_exist(name):
    text = (DEPLOY / name).read_text()
    ours = "\n".join(line for line in text.splitlines()
                     if "docker " not in line and "extra-index" not in line and "apt" not in line)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) - {"--wait", "--from",
                                                                   "--security-opt", "--read-only"}
    assert named - {"--tmpfs", "--cap-drop"} <= FLAGS
    assert set(re.findall(r"FIREBRICK_[A-Z_]+", text)) <= VARIABLES


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_deploy_unit_is_clean_for_systemd(tmp_path):
    text = (DEPLOY / "firebrick.service").read_text()
    # What it starts is looked for on this machine.
    text = text.replace("/opt/firebrick/.venv/bin/python", sys.executable)
    (tmp_path / "firebrick.service").write_text(text)
    assert run("systemd-analyze", "verify", str(tmp_path / "firebrick.service")) == (0, "")


@pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy here")
def test_deploy_haproxy_takes_its_configuration():
    assert run("haproxy", "-c", "-f", str(DEPLOY / "haproxy.cfg"))[0] == 0


@pytest.mark.skipif(not shutil.which("nginx"), reason="no nginx here")
def test_deploy_nginx_takes_its_configuration():
    status, words = run("nginx", "-t", "-c", str(DEPLOY / "nginx.conf"), "-e", "stderr")
    assert status == 0, words


def test_deploy_times_leave_room_for_lame_duck_and_drain():
    defaults = {setting.name: setting.default for setting in SETTINGS}
    unit = (DEPLOY / "firebrick.service").read_text()
    assert number(unit, "TimeoutStopSec") > defaults["lame_duck_s"] + defaults["drain_s"] + 5
    pod = (DEPLOY / "kubernetes.yaml").read_text()
    rest = number(pod, "--lame-duck-s") + number(pod, "--drain-s") \
        + int(re.search(r"sleep\((\d+)\)", pod).group(1))
    assert number(pod, "terminationGracePeriodSeconds") > rest + 5
    proxy = (DEPLOY / "haproxy.cfg").read_text()
    seen_after_ms = int(re.search(r"inter (\d+)ms", proxy).group(1)) * number(proxy, " fall")
    assert seen_after_ms < 1000 * defaults["lame_duck_s"], "a lame duck is seen before it ends"
    assert number(proxy, "timeout server") > defaults["max_age_s"]
    assert number((DEPLOY / "nginx.conf").read_text(), "proxy_read_timeout") \
        > defaults["max_age_s"]
