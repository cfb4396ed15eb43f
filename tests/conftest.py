"""Fixtures that find test material: the clone, the shared folder beside it, the real checkpoint."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
MINILM_BUILD_TIMEOUT_S = 600  # the script downloads 84 MB


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of this clone."""
    return REPO


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden checkpoints, texts and tokenizers that lies beside the clone."""
    folder = REPO.parent / "shared"
    if not (folder / "checkpoints" / "MANIFEST.json").is_file():
        pytest.skip("no shared/ folder beside the clone: its golden checkpoints are not at hand")
    return folder


@pytest.fixture(scope="session")
def minilm(request: pytest.FixtureRequest) -> Path:
    """The real checkpoint minilm-trec6: FIREBRICK_MINILM, or built once and kept in the temporary
    folder by the script in shared/."""
    named = os.environ.get("FIREBRICK_MINILM")
    if named:
        folder = Path(named)
        if not (folder / "model.safetensors").is_file():
            pytest.fail(f"FIREBRICK_MINILM={named} holds no model.safetensors", pytrace=False)
        return folder
    folder = Path(tempfile.gettempdir()) / f"firebrick-{os.getuid()}-minilm-trec6"
    if (folder / "model.safetensors").is_file():
        return folder
    script = request.getfixturevalue("shared") / "checkpoints" / "build_minilm_trec6.py"
    if not script.is_file():
        pytest.skip("no build_minilm_trec6.py in shared/, and FIREBRICK_MINILM is not set")
    # Built beside its place and renamed, so that a broken or parallel build leaves no half of one.
    scratch = Path(tempfile.mkdtemp(prefix="firebrick-minilm-"))
    try:
        built = subprocess.run([sys.executable, str(script), str(scratch / "model")],
                               capture_output=True, text=True, timeout=MINILM_BUILD_TIMEOUT_S)
        if built.returncode != 0:
            last = (built.stderr.strip() or "no words").splitlines()[-1]
            pytest.skip(f"minilm-trec6 could not be built, set FIREBRICK_MINILM: {last}")
        if not folder.exists():
            try:
                (scratch / "model").rename(folder)
            except OSError:  # another run was faster
                pass
    except subprocess.TimeoutExpired:
        pytest.skip(f"building minilm-trec6 took over {MINILM_BUILD_TIMEOUT_S} s, "
                    "set FIREBRICK_MINILM")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked gpu where there is no NVIDIA device node."""
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
