"""The pickle inside a torch file, read by a machine that can only build tables of tensors.

Python's own unpickler calls what the file names. Here a name is looked up in a list of eight, and
what it makes is one of the small types below: nothing of the file is ever imported or run. The
machine knows the instructions of protocol 2 that torch.save writes, and no others.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from loader.errors import CheckpointError, shown

STEP_LIMIT = 500_000  # instructions; a tensor takes 40 of them
SIZE_LIMIT = 1 << 48  # so that no product is ever large enough to matter
# Storage classes by what their elements are called in the safetensors format.
STORAGES = {f"torch.{name}Storage": dtype for name, dtype in {
    "Float": "F32", "Half": "F16", "BFloat16": "BF16", "Double": "F64", "Long": "I64",
    "Int": "I32", "Short": "I16", "Char": "I8", "Byte": "U8", "Bool": "BOOL"}.items()}
TABLE = "collections.OrderedDict"
TENSOR, OLD_TENSOR = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"
PARAMETER = "torch._utils._rebuild_parameter"
CALLABLE = (TABLE, TENSOR, OLD_TENSOR, PARAMETER)


class Name(NamedTuple):
    """One of the names that a file may use; standing for itself, never imported."""

    text: str


class Storage(NamedTuple):
    """A row of `count` elements which the file holds under `key`."""

    key: str
    dtype: str
    count: int


class View(NamedTuple):
    """A tensor: elements of a storage from `offset` on; offset and strides count elements.

    Nothing of it is checked against the storage yet, but that all are whole numbers from 0 on and
    that there are as many strides as sizes.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Where the arguments of an instruction begin on the stack."""


class _BadPickle(Exception):
    """The reason why a pickle is refused, as the end of a sentence."""


MARK = _Mark()
BROKEN = "is no sound pickle; download it again"


def read_pickle(data: bytes, at: int, file: str) -> tuple[Any, int]:
    """The value of the pickle that begins at `at`, and where it ends.

    Tables are dicts (an OrderedDict too) with texts as keys. Raises CheckpointError, also where
    the pickle asks for anything that is no tensor, and where `data` ends before it does.
    """
    machine = _Machine(data, at)
    try:
        return machine.run(), machine.at
    except _BadPickle as reason:
        raise CheckpointError(f"{file} {reason}.") from None
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        # Its end in the middle, an empty stack, a number of the memo that was not given.
        raise CheckpointError(f"{file} {BROKEN}.") from None


class _Machine:
    def __init__(self, data: bytes, at: int) -> None:
        self.at = at
        self._data = data
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(STEP_LIMIT):
            code = self._data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self._stack.pop()
            handler = HANDLERS.get(code)
            if handler is None:
                raise _BadPickle(f"holds the instruction {code:#04x}, which torch.save does not "
                                 "write; save the model as safetensors")
            handler(self)
        raise _BadPickle(f"holds more than {STEP_LIMIT} instructions; save the model as "
                         "safetensors")

    # What an instruction is followed by.

    def number(self, form: str) -> Any:
        value, = struct.unpack_from(form, self._data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self, form: str) -> str:
        length = self.number(form)
        end = self.at + length
        if end > len(self._data):
            raise _BadPickle(BROKEN)
        text = self._data[self.at:end].decode("utf-8")
        self.at = end
        return text

    def line(self) -> str:
        end = self._data.find(b"\n", self.at, self.at + 300)
        if end < 0:
            raise _BadPickle(BROKEN)
        text = self._data[self.at:end].decode("utf-8")
        self.at = end + 1
        return text

    # The stack and the memo.

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def since_mark(self) -> list[Any]:
        stack = self._stack
        place = len(stack) - 1
        while stack[place] is not MARK:  # IndexError at the bottom
            place -= 1
            if place < 0:
                raise _BadPickle(BROKEN)
        items = stack[place + 1:]
        del stack[place:]
        return items

    def tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise _BadPickle(BROKEN)
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self.push(items)

    def put(self, form: str) -> None:
        self._memo[self.number(form)] = self._stack[-1]

    def get(self, form: str) -> None:
        self.push(self._memo[self.number(form)])

    def integer(self) -> None:
        """LONG1: little-endian two's complement of so many bytes."""
        length = self.number("<B")
        self.push(int.from_bytes(self._data[self.at:self.at + length], "little", signed=True))
        self.at += length

    # Tables and lists.

    def fill(self, items: list[Any]) -> None:
        table = self._stack[-1]
        if not isinstance(table, dict) or len(items) % 2:
            raise _BadPickle(BROKEN)
        for key, value in zip(items[::2], items[1::2]):
            if not isinstance(key, str):
                raise _BadPickle("holds a table whose keys are no texts; save the model as "
                                 "safetensors")
            table[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise _BadPickle(BROKEN)
        self._stack[-1].extend(items)

    def pop_some(self, count: int) -> list[Any]:
        self.tuple_of(count)
        return list(self._stack.pop())

    # What other readers would import and call.

    def name(self) -> None:
        text = f"{self.line()}.{self.line()}"
        if text not in CALLABLE and text not in STORAGES:
            raise _BadPickle(f"asks for {shown(text)}, which no tensor needs and which is never "
                             "run; do not trust this file, download a safetensors one")
        self.push(Name(text))

    def call(self) -> None:
        function, arguments = self.pop_some(2)
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise _BadPickle(BROKEN)
        if function.text == TABLE and not arguments:
            self.push({})
        elif function.text in (TENSOR, OLD_TENSOR) and len(arguments) >= 4:
            self.push(_view(*arguments[:4]))
        elif function.text == PARAMETER and arguments and isinstance(arguments[0], View):
            self.push(arguments[0])
        else:
            raise _BadPickle(f"calls {function.text} in a way that torch does not; save the model "
                             "as safetensors")

    def set_state(self) -> None:
        """A state dict carries the versions of its modules, which do not matter here."""
        table, _ = self.pop_some(2)
        if not isinstance(table, dict):
            raise _BadPickle(BROKEN)
        self.push(table)

    def storage(self) -> None:
        place = self._stack.pop()
        if not isinstance(place, tuple) or not 5 <= len(place) <= 6 or place[0] != "storage" \
                or not isinstance(place[1], Name) or place[1].text not in STORAGES \
                or not isinstance(place[2], str) or not _is_size(place[4]) \
                or place[5:] not in ((), (None,)):
            raise _BadPickle("names a storage in a way that is not read here; save the model as "
                             "safetensors")
        self.push(Storage(place[2], STORAGES[place[1].text], place[4]))


def _view(storage: Any, offset: Any, shape: Any, strides: Any) -> View:
    if not isinstance(storage, Storage) or not _is_size(offset) \
            or not _are_sizes(shape) or not _are_sizes(strides) or len(shape) != len(strides):
        raise _BadPickle("holds a tensor whose offset, sizes or strides are no whole numbers from "
                         "0 on; save the model as safetensors")
    return View(storage, offset, shape, strides)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SIZE_LIMIT


def _are_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_size, value))


# Instruction → what it does; the names are those of Python's pickletools.
HANDLERS = {
    0x80: lambda m: m.number("<B"),                        # PROTO
    ord("}"): lambda m: m.push({}),                        # EMPTY_DICT
    ord("]"): lambda m: m.push([]),                        # EMPTY_LIST
    ord(")"): lambda m: m.push(()),                        # EMPTY_TUPLE
    ord("("): lambda m: m.push(MARK),                      # MARK
    ord("t"): lambda m: m.push(tuple(m.since_mark())),     # TUPLE
    0x85: lambda m: m.tuple_of(1),                         # TUPLE1
    0x86: lambda m: m.tuple_of(2),                         # TUPLE2
    0x87: lambda m: m.tuple_of(3),                         # TUPLE3
    ord("q"): lambda m: m.put("<B"),                       # BINPUT
    ord("r"): lambda m: m.put("<I"),                       # LONG_BINPUT
    ord("h"): lambda m: m.get("<B"),                       # BINGET
    ord("j"): lambda m: m.get("<I"),                       # LONG_BINGET
    ord("X"): lambda m: m.push(m.text("<I")),              # BINUNICODE
    ord("U"): lambda m: m.push(m.text("<B")),              # SHORT_BINSTRING, of Python 2
    ord("K"): lambda m: m.push(m.number("<B")),            # BININT1
    ord("M"): lambda m: m.push(m.number("<H")),            # BININT2
    ord("J"): lambda m: m.push(m.number("<i")),            # BININT
    0x8A: lambda m: m.integer(),                           # LONG1
    ord("G"): lambda m: m.push(m.number(">d")),            # BINFLOAT
    ord("N"): lambda m: m.push(None),                      # NONE
    0x88: lambda m: m.push(True),                          # NEWTRUE
    0x89: lambda m: m.push(False),                         # NEWFALSE
    ord("s"): lambda m: m.fill(m.pop_some(2)),             # SETITEM
    ord("u"): lambda m: m.fill(m.since_mark()),            # SETITEMS
    ord("a"): lambda m: m.extend(m.pop_some(1)),           # APPEND
    ord("e"): lambda m: m.extend(m.since_mark()),          # APPENDS
    ord("c"): lambda m: m.name(),                          # GLOBAL
    ord("R"): lambda m: m.call(),                          # REDUCE
    ord("b"): lambda m: m.set_state(),                     # BUILD
    ord("Q"): lambda m: m.storage(),                       # BINPERSID
}
