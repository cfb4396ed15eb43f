"""How many cores this process may use: affinity and the cgroup's quota, versions 1 and 2."""

import os
from pathlib import Path


def usable_cores() -> int:
    """At least 1; a quota is rounded down, because half a core delays a whole engine."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(1, min(cores, int(quota)) if quota is not None else cores)


def cgroup_quota(membership: Path, root: Path) -> float | None:
    """Cores that the narrowest limit on the way to the root allows; None without one.

    `membership` is /proc/self/cgroup, `root` where cgroups are mounted (cgroups(7)).
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, read = root, _version_2
        elif "cpu" in controllers.split(","):
            base, read = root / "cpu", _version_1
            base = base if base.is_dir() else root / controllers
        else:
            continue
        folder = base / path.lstrip("/")
        # In a container the path is the host's and the mount begins at the container's own.
        for place in (folder, *folder.parents):
            if not place.is_relative_to(base):
                break
            limit = read(place)
            if limit is not None:
                limits.append(limit)
    return min(limits, default=None)


def _version_2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _version_1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 else None
