"""The style of this repository as functions: a source goes in, (line, problem) pairs come out."""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAX_LINE = 100

OWN = ("server", "loader", "model", "tools", "bench", "tests")
# Who may import whom; every folder may import itself.
EDGES = {
    "server": {"model", "loader"},
    "model": {"loader"},
    "loader": set(),
    "tools": {"server", "model", "loader"},
    "bench": {"server", "model", "loader"},
    "tests": {"server", "model", "loader", "tools", "bench"},
}
THIRD_PARTY = {"numpy", "torch", "psutil", "pynvml"}
TEST_ONLY = {"pytest", "_pytest"}
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager"}

PURE = ("server.http1", "server.inflight", "server.scheduler", "server.admission", "server.costs",
        "server.pool", "server.linked", "server.supervise", "server.generation", "server.orders",
        "server.reloads", "server.returns", "server.leases", "server.self_test", "server.messages",
        "server.dispatch", "server.pressure", "server.visible", "model.grid", "model.scores",
        "server.sharing", "server.cache", "server.turns", "server.jobqueue")
# What a pure module must not reach: the outside world, clocks, and chance that is not handed in.
IMPURE = {"socket", "selectors", "select", "ssl", "os", "io", "pathlib", "tempfile", "shutil",
          "mmap", "time", "threading", "multiprocessing", "subprocess", "signal", "asyncio",
          "secrets", "uuid", "logging", "fcntl", "resource", "ctypes", "torch", "psutil",
          "pynvml"}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
# Started in the processes that hold no program; torch costs them seconds and 150 MB each.
TORCH_FREE = ("server.__main__", "server.master", "server.front", "server.dispatcher",
              "server.preparer", "server.settings", "server.processes", "server.gpu_watch",
              "server.nvml")

# Newer than Python 3.10: modules, and names by module.
TOO_NEW = {
    "tomllib": None,
    "typing": {"Self", "Never", "LiteralString", "assert_never", "assert_type", "reveal_type",
               "override", "NotRequired", "Required", "Unpack", "TypeVarTuple",
               "dataclass_transform"},
    "enum": {"StrEnum", "ReprEnum", "verify", "EnumCheck", "member", "nonmember"},
    "datetime": {"UTC"},
    "asyncio": {"TaskGroup", "Runner", "timeout"},
    "contextlib": {"chdir"},
    "hashlib": {"file_digest"},
    "itertools": {"batched"},
    "warnings": {"deprecated"},
    "builtins": {"ExceptionGroup", "BaseExceptionGroup"},
}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

Problem = tuple[int, str]


@dataclass
class Source:
    """One Python file: `path` relative to the repository, with slashes."""

    path: str
    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text, self.path, feature_version=(3, 10))

    @property
    def module(self) -> str:
        name = self.path.removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    @property
    def folder(self) -> str:
        return self.path.split("/")[0]

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


def read_sources(root: Path) -> dict[str, Source]:
    """Module name -> source, of every Python file in our folders."""
    found = {}
    for folder in OWN:
        for path in sorted((root / folder).rglob("*.py")):
            source = Source(path.relative_to(root).as_posix(), path.read_text("utf-8"))
            found[source.module] = source
    return found


def imports(source: Source, at_start_only: bool = False) -> Iterator[tuple[int, str, str | None]]:
    """(line, module, name or None) of each import; `at_start_only` leaves out what runs later:
    functions' bodies, and what stands under `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [source.tree]
    while waiting:
        node = waiting.pop()
        if at_start_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if at_start_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = source.module.split(".")
                is_package = source.path.endswith("/__init__.py")
                parents = parents[:len(parents) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, base, alias.name
        waiting.extend(ast.iter_child_nodes(node))


def size(source: Source) -> Iterator[Problem]:
    """Files, functions and lines stay small enough to read."""
    count = len(source.text.splitlines())
    if count > MAX_FILE_LINES:
        yield count, f"{count} lines; a file has at most {MAX_FILE_LINES}: split it"
    for number, line in enumerate(source.lines, 1):
        if len(line) > MAX_LINE:
            yield number, f"{len(line)} characters; a line has at most {MAX_LINE}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (node.lineno, f"{node.name} has {length} lines; a function has at most "
                                    f"{MAX_FUNCTION_LINES}")


def whitespace(source: Source) -> Iterator[Problem]:
    """No tabs, no trailing blanks, one newline at the end."""
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if "\t" in line:
            yield number, "a tab"
    if source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield len(source.lines), "a file ends with one newline"


def docstring(source: Source) -> Iterator[Problem]:
    """Each module says what it is for; an __init__.py says nothing else."""
    if not ast.get_docstring(source.tree):
        yield 1, "no docstring: its first sentence is the module's one responsibility"
    elif source.path.endswith("__init__.py") and len(source.tree.body) > 1:
        yield source.tree.body[1].lineno, "an __init__.py holds a docstring only"


def unfinished(source: Source) -> Iterator[Problem]:
    """Notes to oneself belong in an issue."""
    for number, line in enumerate(source.lines, 1):
        found = UNFINISHED.search(line)
        if found:
            yield number, f"{found.group()}: do it, or file an issue"


def vague_name(source: Source) -> Iterator[Problem]:
    """A module is named after what it does."""
    for part in source.module.split("."):
        if part in VAGUE_NAMES:
            yield 1, f"{part!r} does not say what the module does"


def swallowed(source: Source) -> Iterator[Problem]:
    """No bare except, and no `except Exception: pass`."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield node.lineno, "a bare except also takes KeyboardInterrupt: name what is expected"
        elif (ast.unparse(node.type) in ("Exception", "BaseException")
              and all(isinstance(step, ast.Pass) for step in node.body)):
            yield node.lineno, "an exception is swallowed: name what is expected, or report it"


def dependencies(source: Source) -> Iterator[Problem]:
    """The standard library, ours, and four others."""
    allowed = THIRD_PARTY | set(sys.stdlib_module_names) | set(OWN) | {"__future__"}
    if source.folder == "tests":
        allowed |= TEST_ONLY
    for line, module, _ in imports(source):
        if module.split(".")[0] not in allowed:
            yield line, f"{module} is no dependency of ours"


def edges(source: Source) -> Iterator[Problem]:
    """server -> model -> loader; nobody imports tools, bench or tests."""
    for line, module, _ in imports(source):
        target = module.split(".")[0]
        if target in EDGES and target != source.folder and target not in EDGES[source.folder]:
            yield line, f"{source.folder} must not import {target}"


def too_new(source: Source) -> Iterator[Problem]:
    """Python 3.10 runs all of it."""
    for line, module, name in imports(source):
        known = TOO_NEW.get(module, set())
        if known is None or name in known:
            yield line, f"{module} {name or ''} is newer than Python 3.10"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in (TOO_NEW.get(node.value.id) or ()):
                yield node.lineno, f"{node.value.id}.{node.attr} is newer than Python 3.10"
        elif isinstance(node, ast.Name) and node.id in TOO_NEW["builtins"]:
            yield node.lineno, f"{node.id} is newer than Python 3.10"


def hints(source: Source) -> Iterator[Problem]:
    """Public functions carry type hints on every argument and the result."""
    if source.folder == "tests":
        return
    holders = [source.tree, *(node for node in source.tree.body if isinstance(node, ast.ClassDef)
                              and not node.name.startswith("_"))]
    for holder in holders:
        for node in holder.body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            asked = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            bare = [one.arg for one in asked
                    if one.annotation is None and one.arg not in ("self", "cls")]
            if node.returns is None:
                bare.append("the result")
            if bare:
                yield node.lineno, f"{node.name}: no type hint for {', '.join(bare)}"


def reachable(start: str, sources: Mapping[str, Source]) -> dict[str, list[str]]:
    """Everything that importing `start` imports -> the chain of our modules that leads there."""
    chains: dict[str, list[str]] = {start: [start]}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        if here not in sources:
            continue
        for _, module, name in imports(sources[here], at_start_only=True):
            as_module = f"{module}.{name}"
            target = as_module if as_module in sources else module
            if target not in chains:
                chains[target] = [*chains[here], target]
                waiting.append(target)
    return chains


def pure_reach(sources: Mapping[str, Source]) -> Iterator[tuple[str, int, str]]:
    """(path, line, problem): pure modules reach no clock, no system and no torch, at any depth."""
    for start in PURE:
        if start not in sources:
            continue
        for target, chain in reachable(start, sources).items():
            if target.split(".")[0] in IMPURE:
                yield sources[start].path, 1, "pure, but reaches " + " -> ".join(chain)
        for line, module, _ in imports(sources[start]):
            if module.split(".")[0] in IMPURE:
                yield sources[start].path, line, f"pure, but imports {module}"
        for node in ast.walk(sources[start].tree):
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                    and node.func.id in IMPURE_CALLS):
                yield sources[start].path, node.lineno, f"pure, but calls {node.func.id}"


def torch_reach(sources: Mapping[str, Source]) -> Iterator[tuple[str, int, str]]:
    """(path, line, problem): processes without a program start without torch."""
    for start in TORCH_FREE:
        if start not in sources:
            continue
        for target, chain in reachable(start, sources).items():
            if target.split(".")[0] == "torch":
                yield sources[start].path, 1, "starts torch: " + " -> ".join(chain)


FILE_RULES: tuple[Callable[[Source], Iterator[Problem]], ...] = (
    size, whitespace, docstring, unfinished, vague_name, swallowed, dependencies, edges, too_new,
    hints)
HOUSE_RULES = (pure_reach, torch_reach)
