"""CUDA_VISIBLE_DEVICES in every form, with the meaning that CUDA and torch give it."""

import pytest

from server.visible import visible

UUIDS = ["GPU-a1", "GPU-a2", "GPU-b1", "GPU-c1"]
MIG = ["MIG-1", "MIG-22"]
A1, A2, B1, C1 = UUIDS

CASES = [
    (None, [*UUIDS, *MIG]), ("", []), ("  ", []), ("-1", []), ("NoDevFiles", []),
    ("0", [A1]), ("2,0", [B1, A1]), ("3,2,1,0", [C1, B1, A2, A1]), (" 1 , 3 ", [A2, C1]),
    ("0,2,-1,1", [A1, B1]), ("0,9,1", [A1]), ("9", []), ("0,0", []), ("2,0,2", []), ("0,,1", [A1]),
    ("1gpu2,2x", [A2, B1]), ("+1", [A2]), ("x", []), ("0,GPU-b1", [A1]), ("1e9", [A2]),
    ("GPU-b1", [B1]), ("GPU-b", [B1]), ("GPU-b,GPU-a2", [B1, A2]), ("GPU-b,0", [B1]),
    ("GPU-a", []), ("GPU-b,GPU-a,GPU-c", [B1]), ("GPU-x", []), ("GPU-b,GPU-x,GPU-c", [B1]),
    ("GPU-b,GPU-b1", []), ("gpu-b1", []),
    ("MIG-22", ["MIG-22"]), ("MIG-22,MIG-1", ["MIG-22", "MIG-1"]), ("MIG-22,0", ["MIG-22"]),
    ("MIG-unlisted", ["MIG-unlisted"]), ("MIG-1,MIG-1", []),
]


@pytest.mark.parametrize("variable, wanted", CASES, ids=[repr(case[0]) for case in CASES])
def test_visible_variable_means_these_devices(variable, wanted):
    assert visible(variable, UUIDS, MIG) == wanted


def test_visible_agrees_with_torch_on_lists_of_numbers(monkeypatch):
    import torch
    for variable, _ in CASES:
        if variable is None or "GPU-" in variable or "MIG-" in variable:
            continue
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        theirs = []
        for index in torch.cuda._parse_visible_devices():
            if index >= len(UUIDS):
                break
            theirs.append(UUIDS[index])
        assert visible(variable, UUIDS) == theirs, variable
