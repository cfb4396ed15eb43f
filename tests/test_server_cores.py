"""Cores by affinity and cgroup quota, versions 1 and 2, nested and seen from a container."""

import os

import pytest

from server import cores
from server.cores import cgroup_quota, usable_cores


def membership(tmp_path, text):
    file = tmp_path / "cgroup"
    file.write_text(text)
    return file


def put(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_cores_without_cgroups_have_no_quota(tmp_path):
    assert cgroup_quota(tmp_path / "absent", tmp_path) is None
    assert cgroup_quota(membership(tmp_path, "0::/\n"), tmp_path / "absent") is None


def test_cores_version_2_takes_the_narrowest_on_the_way_to_the_root(tmp_path):
    root = tmp_path / "fs"
    put(root / "a", cpu__max="150000 100000\n")
    put(root / "a" / "b", cpu__max="max 100000\n")
    put(root / "a" / "b" / "c", cpu__max="400000 100000\n")
    assert cgroup_quota(membership(tmp_path, "0::/a/b/c\n"), root) == 1.5


def test_cores_version_2_unlimited(tmp_path):
    put(tmp_path / "fs", cpu__max="max 100000\n")
    assert cgroup_quota(membership(tmp_path, "0::/\n"), tmp_path / "fs") is None


def test_cores_version_2_in_a_container_whose_path_is_the_hosts(tmp_path):
    put(tmp_path / "fs", cpu__max="200000 100000\n")
    text = "0::/system.slice/docker-0123.scope\n"
    assert cgroup_quota(membership(tmp_path, text), tmp_path / "fs") == 2.0


def test_cores_version_1(tmp_path):
    root = tmp_path / "fs"
    put(root / "cpu" / "docker" / "0123", cpu__cfs_quota_us="250000\n",
        cpu__cfs_period_us="100000\n")
    put(root / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    text = "12:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n1:name=systemd:/docker/0123\n"
    assert cgroup_quota(membership(tmp_path, text), root) == 2.5


def test_cores_version_1_mounted_by_its_joint_name(tmp_path):
    root = tmp_path / "fs"
    put(root / "cpu,cpuacct", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    text = "4:cpu,cpuacct:/docker/0123\n0::/\n"
    assert cgroup_quota(membership(tmp_path, text), root) == 3.0


def test_cores_nonsense_in_a_file_is_no_quota(tmp_path):
    put(tmp_path / "fs", cpu__max="lots\n")
    assert cgroup_quota(membership(tmp_path, "0::/\n"), tmp_path / "fs") is None


@pytest.mark.parametrize("affinity, quota, usable", [
    (8, None, 8), (8, 2.0, 2), (8, 2.9, 2), (8, 0.5, 1), (2, 16.0, 2), (1, None, 1)])
def test_cores_usable_are_whole_at_least_one_and_within_both(monkeypatch, affinity, quota, usable):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)))
    monkeypatch.setattr(cores, "cgroup_quota", lambda membership, root: quota)
    assert usable_cores() == usable
