"""Due times leave room, and only faults count."""

import math

import pytest

from server.leases import due_s, is_fault


def test_leases_due_leaves_room_for_slow_machines():
    cpu_s, wall_s = due_s(100.0)
    assert cpu_s == pytest.approx(1.8) and wall_s == pytest.approx(18.0)
    assert due_s(0.0)[0] >= 1.0 and math.isfinite(due_s(0.0)[1])


@pytest.mark.parametrize("cause", ["exit-0", "sigkill", "sigterm"])
def test_leases_ordered_end_is_a_fault_only_where_we_killed(cause):
    assert not is_fault(cause) and is_fault(cause, killed_by_us=True)
