"""CUDA is touched in GPU engines and in gpucheck's parts alone: one file calls it, and whoever
imports that file does so when it runs."""

import ast
import os
import subprocess
import sys

import pytest

from tests.style_rules import imports, read_sources

CUDA_FILE = "model.device.cuda"
CALLERS = {"server.gpu_engine", "tools.gpucheck.rig"}
# Everything that another process of the house starts with; engines come out of the forkserver.
ROLES = {"master": "server.master", "front": "server.front", "dispatcher": "server.dispatcher",
         "preparer": "server.preparer", "forkserver": "server.forkserver",
         "engine": "server.engine", "gpu_watch": "server.gpu_watch", "gpu_start":
         "server.gpu_start"}


def _chain(node: ast.AST) -> str:
    """a.b.c of an attribute; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def test_cuda_is_named_in_one_file_only(repo):
    found = {source.module for source in read_sources(repo).values()
             if source.folder in ("server", "model", "loader")
             for node in ast.walk(source.tree)
             if _chain(node).startswith(("torch.cuda", "torch.backends.cuda", "torch._C._cuda"))}
    assert found == {CUDA_FILE}


def test_cuda_file_is_imported_where_devices_are_opened_and_only_when_they_are(repo):
    sources = read_sources(repo)
    importers = {source.module for source in sources.values() if source.folder != "tests"
                 for _, module, name in imports(source)
                 if module == CUDA_FILE or f"{module}.{name}" == CUDA_FILE}
    assert importers == CALLERS
    at_start = {f"{module}.{name}" for caller in CALLERS
                for _, module, name in imports(sources[caller], True)}
    assert CUDA_FILE not in at_start


CHILD = """
import sys
from importlib import import_module
import_module(sys.argv[1])
torch = sys.modules.get("torch")
print(CUDA_FILE in sys.modules, torch is not None and torch.cuda.is_initialized())
""".replace("CUDA_FILE", repr(CUDA_FILE))


@pytest.mark.parametrize("role", ROLES)
def test_cuda_is_not_initialised_by_what_a_role_starts_with(repo, role):
    said = subprocess.run([sys.executable, "-c", CHILD, ROLES[role]], cwd=repo, env=os.environ,
                          capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert said == ["False", "False"]
