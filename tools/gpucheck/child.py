"""A part's own process: opens the device, runs the part, and says when it has ended."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
from pathlib import Path

from model.device.script import write
from tools.gpucheck import sizes
from tools.gpucheck.parts import ENDED, PARTS
from tools.gpucheck.report import Report
from tools.gpucheck.rig import NoDevice, Rig, opener

# A recorded device: room enough, slow enough to be seen, and slower without a graph.
SCRIPT = "memory 65536 60000\nspeed 1\neager 300\n"


def main() -> None:
    """`child PART KIND`: lines of the report on stdout, at last one that says {"ended": PART}."""
    name, kind = sys.argv[1:]
    faulthandler.enable()
    is_dry = kind == "recorder"
    report = Report(name, lambda line: print(line, flush=True), is_dry)
    chosen = sizes.DRY if is_dry else sizes.QUICK if name == "first" else sizes.FULL
    with tempfile.TemporaryDirectory() as folder:
        faults = str(Path(folder) / "faults") if is_dry else ""
        if is_dry:
            write(faults, SCRIPT)
        try:
            PARTS[name].load()(Rig(kind, chosen, report, faults, opener(kind, faults)))
        except NoDevice as error:
            report.claim("has_a_device", False, str(error))
    print(json.dumps({ENDED: name}), flush=True)
    sys.stderr.flush()
    os._exit(0)     # without finalisers: on a device they may hang, and all is said


if __name__ == "__main__":
    main()
