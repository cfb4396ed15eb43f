"""The GNU assembler's word on instructions; as a program it records the table of encodings.

    python -m tests.gnu_as

writes tests/fixtures/encodings.txt anew, which is wanted after a line more in instructions.py.
"""

import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.instruction_texts import NAMES, is_scalar, patterns, texts

TABLE = Path(__file__).resolve().parent / "fixtures" / "encodings.txt"
# Bases that need more bytes, offsets at both ends of one byte in their unit, and high registers.
CORNERS = [
    f"vaddps zmm{number}, zmm{31 - number}, [{base}{offset:+d}]"
    for number, (base, offset) in enumerate((
        ("rbp", 0), ("r13", 0), ("rsp", 0), ("r12", 0), ("rsp", 64), ("r12", -64), ("rax", 8128),
        ("rax", 8192), ("r9", -8192), ("r9", -8256), ("rdi", 65), ("rip", 0), ("rip", 4096)))
] + [
    "vmulps zmm31{k7}{z}, zmm30, [r15+508]{1to16}",
    "vmulps zmm16{k1}, zmm15, [rbx+512]{1to16}",
    "vmulps zmm8, zmm23, [rsi-512]{1to16}",
    "vmulps zmm8, zmm23, [rsi-516]{1to16}",
    "vmulps zmm8, zmm23, [rip+12]{1to16}",
    "vrndscaleps zmm20, [rip+128], 8",
    "vmovups [rbp+r13*8+0], zmm17",
    "vmovups [r13+rbp*1+0], zmm6",
    "vgatherdps zmm3{k3}, [r13+zmm29*4+0]",
    "vgatherdps zmm19{k3}, [rsp+zmm5*4+508]",
    "mov rax, qword ptr [rbp+0]",
    "mov r12, qword ptr [r13+127]",
    "mov rsp, qword ptr [rsp-129]",
    "imul rdx, qword ptr [rip+40], 3000",
]
# gas takes a shorter encoding where there are two; these make it take ours. (The wide general form
# of prefetcht1 and call differs in nothing, and VEX with three bytes not from that with two.)
HINTS = {"kmovw": "{vex3} ", "vmovss": "{evex} ", "prefetcht1": "rex.w ", "call": "rex.w "}


def for_gas(line: str) -> str:
    """The line so that gas chooses the encoding that we do."""
    mnemonic = line.split()[0]
    if line.endswith(" end"):
        return f"{'' if mnemonic == 'call' else '{disp32} '}{mnemonic} 9f\n9:"
    if is_scalar(mnemonic):
        return "{evex} " + line
    is_general = mnemonic[0] != "v" and "ptr" not in line and line.count(",") == 1
    return HINTS.get(mnemonic, "{load} " if is_general else "") + line


def is_here() -> bool:
    return bool(shutil.which("as") and shutil.which("objdump"))


def encode(lines: list[str]) -> list[bytes]:
    """What gas makes of each line. Raises CalledProcessError for a line that it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "lines.s", Path(folder) / "lines.o"
        source.write_text(".intel_syntax noprefix\n" + "\n".join(map(for_gas, lines)) + "\n")
        subprocess.run(["as", "--64", source, "-o", made], check=True)
        shown = subprocess.run(["objdump", "-d", "-w", "--insn-width=16", made], check=True,
                               capture_output=True, text=True).stdout
    found = [bytes.fromhex(row.split("\t")[1]) for row in shown.splitlines()
             if row.count("\t") >= 2]
    if len(found) != len(lines):
        raise ValueError(f"gas made {len(found)} instructions of {len(lines)} lines")
    return found


def chosen() -> list[str]:
    """The lines of the table: every instruction with each kind of operands, and the corners."""
    lines = [line for name in NAMES
             for line in texts(random.Random(name), name, max(2, len(patterns(name))))]
    return list(dict.fromkeys(lines + CORNERS))


if __name__ == "__main__":
    TABLE.write_text("".join(f"{code.hex()} {line}\n" for line, code in zip(
        chosen(), encode(chosen()))))
