"""Flags and environment: one table of settings that feeds parsing, checks, --help and the README.

Precedence: command line, then the environment variable FIREBRICK_<NAME>, then the default. All
problems are reported at once, in one OperatorError with exit code 2.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

from server.errors import OperatorError

DEFAULT_MODEL = str(Path(__file__).resolve().parent.parent / "models" / "sms-spam")
SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Setting:
    """One row of the table. `kind` is text, int, float, size (bytes, with K, M, G), choice,
    list (comma-separated) or switch; `low` and `high` are inclusive bounds."""

    name: str
    group: str
    kind: str
    default: Any
    help: str
    unit: str = ""
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    shown_default: str = ""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "FIREBRICK_" + self.name.upper()


SETTINGS = (
    Setting("model", "model", "text", DEFAULT_MODEL,
            "checkpoint folder in Hugging Face layout, or a bundle of tools.build",
            shown_default="the shipped sms-spam"),
    Setting("device", "model", "choice", "auto",
            "where programs run: auto takes the GPUs that there are, with the CPU cores behind "
            "them; cuda does not start where there is none; recorder plays a GPU on a CPU core, "
            "for tests",
            choices=("auto", "cpu", "cuda", "recorder")),
    Setting("precision", "model", "choice", "auto",
            "arithmetic of the model; auto takes the fastest that a bundle's gate let pass, and "
            "fp32 for a checkpoint",
            choices=("auto", "fp32", "bf16", "fp16", "int8", "fp8")),
    Setting("truncate", "model", "choice", "auto",
            "auto cuts a text to the model's limit, never answers 422 to a longer one",
            choices=("auto", "never")),
    Setting("host", "network", "text", "127.0.0.1", "address to listen on, IPv4 or IPv6"),
    Setting("port", "network", "int", 8000,
            "TCP port; 0 takes a free one and prints it; none with --uds unless it is given",
            high=65535),
    Setting("uds", "network", "text", "",
            "path of a Unix socket to listen on, instead of TCP unless --port is given",
            shown_default="none"),
    Setting("share_port", "network", "switch", False,
            "start beside a server on the same port, for upgrades"),
    Setting("allow_origin", "network", "list", (),
            "origins of web pages that may send requests, comma-separated"),
    Setting("api_keys", "network", "text", "",
            "file with one key a line; requests must carry one", shown_default="no keys"),
    Setting("fronts", "processes", "int", 0,
            "processes that speak HTTP; 0: one for each 8 cores, at least 2",
            high=256, shown_default="0"),
    Setting("engines", "processes", "int", 0,
            "processes that run the model, one thread each; 0: one for each core that the "
            "affinity mask and the cgroup quota allow", high=1024, shown_default="0"),
    Setting("engine_nice", "processes", "int", 0,
            "niceness of engines; with more they yield to other programs, and under overload to "
            "the fronts, which then refuse where engines could answer", low=-20, high=19),
    Setting("max_wait_ms", "load", "float", 2000,
            "estimated wait above which a request is refused with 429", unit="ms", low=1),
    Setting("max_age_s", "load", "float", 60,
            "longest stay of an accepted request before it is answered 503", unit="s", low=0.1),
    Setting("high_share", "load", "float", 0.8,
            "share of capacity that high priority may take while low priority waits", high=1),
    Setting("outage_s", "load", "float", 10,
            "time without any ready engine after which requests get 503", unit="s"),
    Setting("give_up_s", "load", "float", 120,
            "time without any ready engine after which the server ends with exit code 5",
            unit="s", low=1),
    Setting("max_texts", "limits", "int", 256, "texts in one JSON request; more get 413",
            low=1, high=10000),
    Setting("max_body", "limits", "size", 4 << 20, "request body; a longer one gets 413",
            unit="bytes", low=1024, high=1 << 30, shown_default="4M"),
    Setting("read_timeout", "limits", "float", 10,
            "time for a whole request to arrive; a slower one gets 408", unit="s", low=0.1),
    Setting("records", "limits", "text", "",
            "folder of record files that requests may name", shown_default="none"),
    Setting("socket", "stop", "text", "",
            "path of the Unix socket for python -m tools.reload, which is printed at start",
            shown_default="firebrick-PID.sock in the user's runtime folder or /tmp"),
    Setting("lame_duck_s", "stop", "float", 2,
            "time after TERM in which /readyz says 503 and requests are still taken", unit="s"),
    Setting("drain_s", "stop", "float", 25,
            "time after that in which accepted requests are answered", unit="s"),
    Setting("cache_mb", "answers", "int", 0,
            "memory for answers that are kept for texts that come again; while there is any, "
            "equal texts in flight are computed once; 0: none", unit="MiB", high=1 << 20),
    Setting("gpu_tokens", "gpu", "int", 16384,
            "most padded tokens in one launch; larger ones take more memory and add latency",
            unit="tokens", low=16, high=1 << 20),
    Setting("gpu_graph_mb", "gpu", "int", 8192,
            "memory for captured graphs, at most half of what is free; what does not fit runs "
            "without a graph", unit="MiB", high=1 << 20),
    Setting("gpu_watch_ms", "gpu", "float", 300,
            "time between two readings of a GPU's memory", unit="ms", low=20, high=2000),
    Setting("gpu_tight_mb", "gpu", "int", 512,
            "free memory below which an engine gives back what it can: others may fail soon",
            unit="MiB", high=1 << 20),
    Setting("gpu_tight_share", "gpu", "float", 0.02,
            "the same as a share of the GPU; the larger of the two counts", high=0.9),
    Setting("gpu_critical_mb", "gpu", "int", 192,
            "free memory below which an engine leaves the GPU to others and CPU cores serve",
            unit="MiB", high=1 << 20),
    Setting("gpu_critical_share", "gpu", "float", 0.005,
            "the same as a share of the GPU; the larger of the two counts", high=0.9),
    Setting("gpu_hold_s", "gpu", "float", 30,
            "time that a GPU must have room again before it is used again: shorter flaps with "
            "neighbours that come and go", unit="s"),
    Setting("gpu_back_off_s", "gpu", "float", 30,
            "least time between an engine's end and its next start, doubled by each end until "
            "one has served 10 minutes; a start costs seconds of a core and of the GPU", unit="s"),
    Setting("gpu_longest_back_off_s", "gpu", "float", 600,
            "what that time does not grow beyond", unit="s"),
    Setting("faults", "gpu", "text", "",
            "file that scripts the recorder's memory, speed and faults", shown_default="none"),
    Setting("log_text", "answers", "switch", False,
            "write request texts to the log; they are private otherwise"),
)

GROUPS = {
    "model": "model", "network": "network", "processes": "processes",
    "load": "load: what happens when more comes than can be computed",
    "limits": "limits of a request", "stop": "reloading and stopping", "answers": "answers",
    "gpu": "GPUs: when an engine leaves one and comes back",
}

Settings = make_dataclass("Settings", [(s.name, Any) for s in SETTINGS], frozen=True)
Settings.__doc__ = "The value of every row of SETTINGS, by its name; sizes in bytes."


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of printing a usage text and exiting."""

    def error(self, message: str) -> None:
        raise OperatorError(f"{message}; python -m server --help lists the flags")


class _Once(argparse.Action):
    """Stores a value (True for a switch) and refuses a flag that is given twice."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: Any, option_string: str | None = None) -> None:
        if hasattr(namespace, self.dest):
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values if self.nargs is None else "true")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Any:
    """The Settings of a command line (without the program's name) and an environment.

    Raises OperatorError(exit_code=2) with every problem in one text; `--help` prints and exits 0
    as argparse does.
    """
    given = vars(_build_parser().parse_args(list(argv)))
    values, problems = {}, []
    for setting in SETTINGS:
        raw, source = given.get(setting.name), setting.flag
        if raw is None and setting.variable in environ:
            raw, source = environ[setting.variable], setting.variable
        if raw is None:
            values[setting.name] = setting.default
            continue
        try:
            values[setting.name] = _convert(setting, raw)
        except ValueError as error:
            problems.append(f"{source} {raw!r}: {error}{_kubernetes_hint(source, raw)}")
    if values.get("uds") and "port" not in given and "FIREBRICK_PORT" not in environ:
        values["port"] = None
    if not problems and values["precision"] == "fp8" and values["device"] == "cpu":
        problems.append("--precision: fp8 is for GPUs only; use --precision int8 or auto")
    if not problems and values["faults"] and values["device"] != "recorder":
        problems.append("--faults: only a device that is played has scripted faults; add --device "
                        "recorder or leave it out")
    if problems:
        raise OperatorError("; ".join(problems))
    return Settings(**values)


def _kubernetes_hint(source: str, raw: str) -> str:
    """Kubernetes sets FIREBRICK_PORT=tcp://… in every pod beside a Service named firebrick."""
    if source == "FIREBRICK_PORT" and raw.startswith("tcp://"):
        return " (Kubernetes set it for a Service; give the pod enableServiceLinks: false)"
    return ""


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m server", allow_abbrev=False, argument_default=argparse.SUPPRESS,
        description="Serve a text classifier over HTTP on this machine's cores.",
        epilog="Each flag is also an environment variable, --max-wait-ms for example "
               "FIREBRICK_MAX_WAIT_MS; the command line wins.")
    for group, title in GROUPS.items():
        section = parser.add_argument_group(title)
        for setting in SETTINGS:
            if setting.group != group:
                continue
            text = f"{setting.help} ({describe_default(setting)})".replace("%", "%%")
            if setting.kind == "switch":
                section.add_argument(setting.flag, dest=setting.name, nargs=0, action=_Once,
                                     help=text)
            else:
                metavar = "|".join(setting.choices) or setting.unit.upper() or "VALUE"
                section.add_argument(setting.flag, dest=setting.name, metavar=metavar,
                                     action=_Once, help=text)
    return parser


def describe_default(setting: Setting) -> str:
    """The default as --help and the README show it: `default 2000 ms`, `default off`."""
    shown = setting.shown_default or setting.default
    if setting.kind == "switch":
        shown = "off"
    elif setting.kind == "list":
        shown = "none"
    unit = f" {setting.unit}" if setting.unit and not setting.shown_default else ""
    return f"default {shown}{unit}"


def _convert(setting: Setting, raw: str) -> Any:
    """The value of `raw`; a ValueError says what is wrong with it and what would be right."""
    if setting.kind == "text":
        if not raw:
            raise ValueError("is empty")
        return raw
    if setting.kind == "list":
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if setting.kind == "switch":
        if raw.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            raise ValueError("must be true or false")
        return raw.lower() in ("1", "true", "yes", "on")
    if setting.kind == "choice":
        if raw not in setting.choices:
            raise ValueError(f"must be one of {', '.join(setting.choices)}")
        return raw
    value = _number(setting.kind, raw)
    if not setting.low <= value <= setting.high:
        bounds = f"at least {setting.low:g}" if setting.high == math.inf \
            else f"between {setting.low:g} and {setting.high:g}"
        raise ValueError(f"must be {bounds}{' ' + setting.unit if setting.unit else ''}")
    return value


def _number(kind: str, raw: str) -> float:
    digits, factor = raw.strip(), 1
    if kind == "size" and digits[-1:].upper() in SIZE_UNITS:
        digits, factor = digits[:-1], SIZE_UNITS[digits[-1].upper()]
    try:
        if kind == "float":
            value = float(digits)
            if not math.isfinite(value):
                raise ValueError
            return value
        if not digits.lstrip("-").isascii() or "_" in digits:
            raise ValueError
        return int(digits) * factor
    except ValueError:
        wanted = {"float": "a number", "int": "a whole number",
                  "size": "a size such as 500000, 512K or 4M"}[kind]
        raise ValueError(f"must be {wanted}") from None
