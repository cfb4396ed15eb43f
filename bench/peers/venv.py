"""The scratch environment that peers run in: made beside the clone, never a dependency of ours.

    python -m bench.peers.venv [--folder DIR] [ort] [ct2] [openvino]
        [fastapi-ort] [mosec-ort] [mosec-ct2]

torch is not installed there: a .pth file lends that of the Python which makes it.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.figures import ROOT
from bench.peers.contender import PeerError

FOLDER = ROOT / ".bench-venv"
PACKAGES = {"ort": ("onnx", "onnxruntime", "sympy", "transformers<5"),
            "ct2": ("ctranslate2", "safetensors", "transformers<5"),
            "openvino": ("openvino", "nncf", "onnx", "transformers<5")}
SERVING = ("orjson", "tokenizers")
PACKAGES |= {"fastapi-ort": (*PACKAGES["ort"], *SERVING, "fastapi", "uvicorn", "httptools",
                             "uvloop"),
             "mosec-ort": (*PACKAGES["ort"], *SERVING, "mosec"),
             "mosec-ct2": (*PACKAGES["ct2"], *SERVING, "mosec")}
IMPORTS = {"ort": ("onnxruntime", "onnx", "transformers", "torch"),
           "ct2": ("ctranslate2", "transformers", "torch"),
           "openvino": ("openvino", "nncf", "onnx", "transformers", "torch")}
IMPORTS |= {"fastapi-ort": (*IMPORTS["ort"], *SERVING, "fastapi", "uvicorn", "httptools", "uvloop"),
            "mosec-ort": (*IMPORTS["ort"], *SERVING, "mosec"),
            "mosec-ct2": (*IMPORTS["ct2"], *SERVING, "mosec")}


def environment(folder: Path, peers: Iterable[str]) -> str:
    """The Python of the environment in `folder`, made where it is not there, with what the peers
    need; a peer that pip does not get is found out by `missing`. PeerError without any Python."""
    python = folder / "bin" / "python"
    if not python.is_file():
        print(f"making {folder} for the peers: some 2 GB, minutes", file=sys.stderr)
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True,
                              text=True, check=False)
        if made.returncode:
            raise PeerError(f"{sys.executable} -m venv {folder} failed: {_last(made.stderr)}")
        lent = Path(importlib.util.find_spec("torch").origin).parent.parent
        packages = next((folder / "lib").glob("python*/site-packages"))
        (packages / "lent.pth").write_text(f"{lent}\n")
    for peer in peers:
        if missing(str(python), peer):
            print(f"installing {', '.join(PACKAGES[peer])} for {peer}", file=sys.stderr)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-input",
                            "--disable-pip-version-check", *PACKAGES[peer]],
                           stdout=sys.stderr, check=False)
    return str(python)


def files_of(name: str, version: str) -> Path:
    """Where everything that is made of a model is kept: the engines' files, the setups that were
    found, our bundle."""
    return FOLDER / "models" / f"{name}-{version}"


def missing(python: str, peer: str) -> str:
    """"", or in one sentence why `peer` cannot run with `python`."""
    tried = subprocess.run([python, "-c", f"import {', '.join(IMPORTS[peer])}"], cwd=ROOT,
                           capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return ""
    return f"{peer} is left out, its packages do not load: {_last(tried.stderr)}"


def _last(said: str) -> str:
    return (said.strip().splitlines() or ["no words"])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.venv")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("peers", nargs="*", metavar="PEER", default=[],
                        help=f"some of {', '.join(PACKAGES)}; all when none is named")
    options = parser.parse_args()
    peers = options.peers or list(PACKAGES)
    for peer in peers:
        if peer not in PACKAGES:
            parser.error(f"there is no peer {peer}; there are {', '.join(PACKAGES)}")
    try:
        python = environment(options.folder, peers)
    except PeerError as error:
        parser.exit(2, f"{error}\n")
    problems = [problem for peer in peers if (problem := missing(python, peer))]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(python)
    parser.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
