"""The repository keeps its style, and each rule of it catches a bad line."""

import configparser
import re
from pathlib import Path

import pytest

from server.settings import SETTINGS, describe_default
from tests import style_rules
from tests.style_rules import FILE_RULES, HOUSE_RULES, Source, read_sources

# (path, rule): the reason why that file is better off without the rule.
EXEMPT: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module")
def sources(repo: Path) -> dict[str, Source]:
    return read_sources(repo)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_style_each_file_keeps_the_rule(rule, sources):
    problems = [f"{source.path}:{line}: {problem}"
                for source in sources.values() if (source.path, rule.__name__) not in EXEMPT
                for line, problem in rule(source)]
    assert not problems, f"{rule.__doc__}\n" + "\n".join(problems)


@pytest.mark.parametrize("rule", HOUSE_RULES, ids=lambda rule: rule.__name__)
def test_style_the_house_keeps_the_rule(rule, sources):
    problems = [f"{path}:{line}: {problem}" for path, line, problem in rule(sources)]
    assert not problems, f"{rule.__doc__}\n" + "\n".join(problems)


def test_style_exemptions_are_still_needed(sources):
    rules = {rule.__name__: rule for rule in FILE_RULES}
    files = {source.path: source for source in sources.values()}
    for path, rule in EXEMPT:
        assert list(rules[rule](files[path])), f"{path} keeps {rule} by now: drop the exemption"


DOC = '"""What it is for."""\n'
BAD = [
    ("size", "server/a.py", DOC + "\n" * 400),
    ("size", "server/a.py", DOC + "x = '" + "y" * 100 + "'\n"),
    ("size", "server/a.py", DOC + "def f():\n" + "    x = 1\n" * 70),
    ("whitespace", "server/a.py", DOC + "x = 1 \n"),
    ("whitespace", "server/a.py", DOC + "if x:\n\ty = 1\n"),
    ("whitespace", "server/a.py", DOC + "x = 1"),
    ("whitespace", "server/a.py", DOC + "x = 1\n\n"),
    ("docstring", "server/a.py", "x = 1\n"),
    ("docstring", "server/a.py", ""),
    ("docstring", "server/__init__.py", DOC + "import os\n"),
    ("unfinished", "server/a.py", DOC + "x = 1  # TO" + "DO: later\n"),
    ("unfinished", "server/a.py", DOC + "# FIX" + "ME\n"),
    ("vague_name", "server/utils.py", DOC),
    ("vague_name", "loader/helpers/text.py", DOC),
    ("swallowed", "server/a.py", DOC + "try:\n    f()\nexcept:\n    raise\n"),
    ("swallowed", "server/a.py", DOC + "try:\n    f()\nexcept Exception:\n    pass\n"),
    ("dependencies", "server/a.py", DOC + "import requests\n"),
    ("dependencies", "server/a.py", DOC + "def f():\n    from tokenizers.x import y\n"),
    ("dependencies", "server/a.py", DOC + "import pytest\n"),
    ("edges", "loader/a.py", DOC + "import model.grid\n"),
    ("edges", "loader/a.py", DOC + "from server import errors\n"),
    ("edges", "model/a.py", DOC + "def f():\n    from server.errors import E\n"),
    ("edges", "server/a.py", DOC + "from tools.train import x\n"),
    ("edges", "server/a.py", DOC + "import bench.front\n"),
    ("edges", "tools/a.py", DOC + "import bench.front\n"),
    ("edges", "bench/a.py", DOC + "from tests import house\n"),
    ("edges", "server/a.py", DOC + "from tests.house import House\n"),
    ("too_new", "server/a.py", DOC + "import tomllib\n"),
    ("too_new", "server/a.py", DOC + "from typing import Self\n"),
    ("too_new", "server/a.py", DOC + "import enum\nclass A(enum.StrEnum):\n    X = 'x'\n"),
    ("too_new", "server/a.py", DOC + "raise ExceptionGroup('x', [])\n"),
    ("hints", "server/a.py", DOC + "def f(x):\n    return x\n"),
    ("hints", "server/a.py", DOC + "class A:\n    def f(self, x: int):\n        return x\n"),
]


@pytest.mark.parametrize("rule, path, text", BAD, ids=lambda value: None)
def test_style_rule_bad_line_is_caught(rule, path, text):
    assert list(getattr(style_rules, rule)(Source(path, text)))


def test_style_every_rule_has_a_bad_line():
    assert {rule for rule, _, _ in BAD} == {rule.__name__ for rule in FILE_RULES}


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_style_rule_good_file_passes(rule):
    text = DOC + ("import numpy as np\n\nfrom loader.wire import read_records\n\n\n"
                  "def f(x: int) -> int:\n    try:\n        return x\n    except ValueError:\n"
                  "        raise\n")
    assert not list(rule(Source("server/a.py", text)))


def test_style_syntax_newer_than_310_is_caught():
    with pytest.raises(SyntaxError):
        Source("server/a.py", DOC + "try:\n    f()\nexcept* ValueError:\n    pass\n")


def house(**files: str) -> dict[str, Source]:
    made = [Source(name.replace("__", "/") + ".py", DOC + text) for name, text in files.items()]
    return {source.module: source for source in made}


@pytest.mark.parametrize("files", [
    {"server__http1": "import socket\n"},
    {"server__http1": "from time import monotonic\n"},
    {"server__http1": "import os.path\n"},
    {"server__costs": "def f():\n    import time\n"},
    {"model__grid": "x = open('y')\n"},
    {"server__scheduler": "import server.costs\n", "server__costs": "from server import link\n",
     "server__link": "import socket\n"},
    {"server__inflight": "from server.messages import Job\n",
     "server__messages": "try:\n    import torch\nexcept ImportError:\n    raise\n"},
], ids=lambda value: None)
def test_style_pure_module_reaching_the_world_is_caught(files):
    assert list(style_rules.pure_reach(house(**files)))


def test_style_pure_module_with_structs_and_numpy_passes():
    files = {"server__http1": "import re\nfrom server.errors import ClientError\n",
             "server__errors": "from dataclasses import dataclass\n",
             "server__messages": "import struct\nimport numpy\n"}
    assert not list(style_rules.pure_reach(house(**files)))


def test_style_torch_in_a_front_is_caught_through_others():
    files = {"server__front": "from model.families import table\n",
             "model__families__table": "from model.families.bert import FAMILY\n",
             "model__families__bert": "import torch\n"}
    problems = list(style_rules.torch_reach(house(**files)))
    assert problems == [("server/front.py", 1, "starts torch: server.front -> "
                         "model.families.table -> model.families.bert -> torch")]


def test_style_torch_inside_a_function_passes():
    files = {"server__front": "from model.families import table\n",
             "model__families__table": "from typing import TYPE_CHECKING\n"
                                       "if TYPE_CHECKING:\n    import torch\n"
                                       "def build():\n    import torch\n"}
    assert not list(style_rules.torch_reach(house(**files)))


def test_style_relative_import_is_followed():
    source = Source("model/families/bert.py", DOC + "from . import table\nfrom ..grid import x\n")
    assert {row[1:] for row in style_rules.imports(source)} == {
        ("model.families", "table"), ("model.grid", "x")}


def test_style_pins_satisfy_what_the_metadata_asks(repo):
    config = configparser.ConfigParser()
    config.read(repo / "setup.cfg")
    asked = (config["options"]["install_requires"]
             + config["options.extras_require"]["test"]).split("\n")
    names = {re.split(r"[<>=]", line)[0].strip() for line in asked if line and line[0] != "#"}
    pinned = {}
    for line in (repo / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r'[a-z0-9-]+==[0-9.]+(; python_version [<>=]+ "[0-9.]+")?', line)
            pinned.setdefault(line.split("==")[0], []).append(line)
    assert names <= set(pinned)
    assert pinned["torch"] == ["torch==2.13.0"]


def test_style_every_package_is_in_the_metadata(repo, sources):
    config = configparser.ConfigParser()
    config.read(repo / "setup.cfg")
    patterns = config["options.packages.find"]["include"].split()
    for source in sources.values():
        if source.folder != "tests":
            package = ".".join(source.path.split("/")[:-1])
            assert package in patterns or package.split(".")[0] + ".*" in patterns, package


def test_style_data_beside_the_code_is_in_the_metadata(repo):
    config = configparser.ConfigParser()
    config.read(repo / "setup.cfg")
    data = config["options.package_data"]
    assert data["tools.deploy"] == "*"
    everywhere = tuple(one.strip().lstrip("*") for one in data["*"].split(","))
    for folder in ("server", "loader", "model", "tools", "bench"):
        for path in (repo / folder).rglob("*"):
            # What benchmarks wrote is for readers of the clone; no program reads it.
            if path.is_file() and "__pycache__" not in path.parts and path.parent not in (
                    repo / "tools" / "deploy", repo / "bench" / "results"):
                suffixes = everywhere + ((".lua",) if folder == "bench" else ())
                assert path.suffix == ".py" or path.suffix in suffixes, path


def test_style_makefile_each_verb_explains_itself(repo):
    text = (repo / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: help (.*)$", text, re.M).group(1).split()
    explained = re.findall(r"^([a-z-]+):.*## .+$", text, re.M)
    assert declared == explained
    assert explained == ["serve", "test", "check", "check-invariance", "sim", "chaos", "bench",
                         "train-default", "venv", "clean"]


def test_style_readme_flag_table_equals_the_settings(repo):
    readme = repo / "README.md"
    if not readme.is_file():
        pytest.skip("no README.md yet")
    expected = [f"| `{one.flag}` | {describe_default(one).removeprefix('default ')} | {one.help} |"
                for one in SETTINGS]
    found = [line for line in readme.read_text().splitlines() if line.startswith("| `--")]
    assert found == expected, "README's table should be:\n" + "\n".join(expected)
