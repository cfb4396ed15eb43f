"""Which devices CUDA_VISIBLE_DEVICES means, as full UUIDs (pure).

The variable is read as the CUDA runtime and torch read it, oddities included, for an engine that
runs where its operator did not want it is worse than none. Each engine then gets its one UUID,
which stays right in containers, where indices are counted anew.
"""

from collections.abc import Sequence

NO_DEVICES = ("", "-1", "NoDevFiles")


def visible(variable: str | None, uuids: Sequence[str], mig: Sequence[str] = ()) -> list[str]:
    """The devices to use, in order. `variable` is None where it is not set, `uuids` are whole
    devices in PCI order, `mig` the slices of those that are cut into slices.

    Examples, for devices GPU-a, GPU-b, GPU-c: "2,0" is [GPU-c, GPU-a]; "0,9,1" is [GPU-a], for
    the first index that is not there ends the list; "0,0" is []; "GPU-b,0" is [GPU-b].
    """
    if variable is None:
        return [*uuids, *mig]
    variable = variable.strip()
    if variable in NO_DEVICES:
        return []
    for prefix, known in (("GPU-", uuids), ("MIG-", mig)):
        if variable.startswith(prefix):
            return _by_prefix(variable, prefix, known)
    return _by_index(variable, uuids)


def _by_prefix(variable: str, prefix: str, known: Sequence[str]) -> list[str]:
    """UUIDs, which may be cut short as long as they mean one device."""
    found: list[str] = []
    for word in (part.strip() for part in variable.split(",")):
        meant = [uuid for uuid in known if uuid.startswith(word)]
        # A slice that the driver does not list may be there all the same: it is asked by name.
        if prefix == "MIG-" and not meant and word.startswith(prefix):
            meant = [word]
        if not word.startswith(prefix) or len(meant) != 1:
            break
        if meant[0] in found:
            return []
        found.append(meant[0])
    return found


def _by_index(variable: str, uuids: Sequence[str]) -> list[str]:
    found: list[int] = []
    for word in variable.split(","):
        index = _leading_number(word.strip())
        if index in found:
            return []
        if not 0 <= index < len(uuids):
            break
        found.append(index)
    return [uuids[index] for index in found]


def _leading_number(word: str) -> int:
    """What strtoul(3) makes of a word: 1 of "1gpu2", and -1 of one that begins with no number."""
    sign = word[:1] if word[:1] in ("+", "-") else ""
    digits = len(sign)
    while digits < len(word) and word[digits] in "0123456789":
        digits += 1
    return int(word[:digits]) if digits > len(sign) else -1
