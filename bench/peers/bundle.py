"""What ours is served from: of a plain checkpoint the bundle that tools.build makes, which is kept.

Peers serve files that were exported and quantised for them, so ours gets what a user makes who
serves for speed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.figures import ROOT
from loader.manifest import MANIFEST

BUILD_TIMEOUT_S = 900.0


def served_folder(folder: str, texts: Path, cache: Path) -> tuple[str, str]:
    """The folder to serve, and what it is, for readers. A checkpoint itself where tools.build makes
    no bundle of it, as where the gate refuses 8 bits; then a sentence on stderr says why."""
    if (Path(folder) / MANIFEST).is_file():
        return folder, "a bundle"
    bundle = cache / "bundle"
    if not (bundle / MANIFEST).is_file():
        shutil.rmtree(bundle, ignore_errors=True)
        refusal = _build(folder, texts, bundle)
        if refusal:
            print(f"ours is served from the plain checkpoint: {refusal}", file=sys.stderr)
            return folder, "the plain checkpoint"
    return str(bundle), "the bundle that tools.build makes of it"


def _build(folder: str, texts: Path, bundle: Path) -> str:
    """"", or in a sentence why there is no bundle; `texts` are what the gate judges by."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    try:
        built = subprocess.run([sys.executable, "-m", "tools.build", str(Path(folder).resolve()),
                                "-o", str(bundle.resolve()), "--eval", str(texts.resolve())],
                               cwd=ROOT, capture_output=True, text=True, check=False,
                               timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"tools.build was not done within {BUILD_TIMEOUT_S:g} s"
    said = built.stderr.strip().splitlines() or ["tools.build said nothing"]
    return said[-1] if built.returncode else ""
