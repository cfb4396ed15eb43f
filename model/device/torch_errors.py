"""What torch's errors mean to who uses a port.

TorchScript passes on an error's words and forgets its type: what an operation inside a compiled
network raised stands in the last line but a trace's that begins with the type's name.
"""

from __future__ import annotations

import re

import torch

from model.device.port import DeviceBroken, OutOfMemory

IN_TORCHSCRIPT = "The following operation failed in the TorchScript interpreter"
# "RuntimeError: " is TorchScript's own, for any type; a second name is that of a Python error.
WORDS = re.compile(r"^\w*Error: (.*)$", re.M)
NO_MEMORY = re.compile(r"out of memory|OutOfMemory: ")


def meaning(error: RuntimeError) -> OutOfMemory | DeviceBroken:
    """What to raise instead."""
    words = said(error)
    if isinstance(error, torch.OutOfMemoryError) or NO_MEMORY.search(words):
        return OutOfMemory(words)
    return DeviceBroken(words)


def said(error: BaseException) -> str:
    """The line of an error that says what is wrong."""
    text = str(error).strip() or type(error).__name__
    found = WORDS.findall(text) if text.startswith(IN_TORCHSCRIPT) else []
    return found[-1] if found else text.splitlines()[0]
