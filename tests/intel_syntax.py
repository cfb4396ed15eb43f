"""An instruction as a line of text, in Intel's notation as GNU as reads it, through our assembler.

[rip+N] and "end" are what lies N bytes, or at once, behind the instruction.
"""

import re

from model.native.assembler import Assembler
from model.native.operands import Gpr, Mask, Mem, Tile, Zmm

GENERAL = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split()
GENERAL_32 = "eax ecx edx ebx esp ebp esi edi".split() + [f"r{n}d" for n in range(8, 16)]
KINDS = {"zmm": Zmm, "xmm": Zmm, "k": Mask, "tmm": Tile}
# The places where our names differ from the manual's: a Python word, or a form of its own.
RENAMED = {"or": "or_", "and": "and_", "call": "call_at"}


def our_name(mnemonic: str, first: str) -> str:
    """The method of an instruction, by how its first operand begins."""
    if mnemonic == "call" and first == "end":
        return "call"
    if mnemonic.startswith("v") and first.startswith("["):
        return mnemonic + "_to"
    if mnemonic == "kmovq" and not first.startswith("k"):
        return "kmovq_from"
    return RENAMED.get(mnemonic, mnemonic)


def parse_memory(text: str) -> Mem:
    """[base + index * scale ± offset], a vector as index too."""
    base = index = None
    scale, offset, label = 1, 0, ""
    for sign, term in re.findall(r"([+-]?)([a-z0-9*]+)", text.strip("[]")):
        if term.isdigit():
            offset += int(sign + term)
        elif term == "rip":
            label = "end"
        elif "*" in term:
            name, digits = term.split("*")
            index, scale = parse_operand(name), int(digits)
        else:
            base = Gpr(GENERAL.index(term))
    return Mem(base, index, scale, offset, label)


def parse_operand(text: str) -> Gpr | Zmm | Mask | Tile | Mem | int | str:
    """One operand without its braces."""
    for size in ("qword", "dword", "word"):
        text = text.removeprefix(f"{size} ptr ")
    if text.startswith("["):
        return parse_memory(text)
    if text == "end":
        return text
    for names in (GENERAL, GENERAL_32):
        if text in names:
            return Gpr(names.index(text))
    found = re.fullmatch(r"([a-z]+)(\d+)", text)
    return KINDS[found[1]](int(found[2])) if found else int(text)


def assemble(line: str) -> bytes:
    """The code of one instruction."""
    mnemonic, _, rest = line.partition(" ")
    texts = [text.strip() for text in rest.split(",")] if rest else []
    options = {}
    operands = []
    for text in texts:
        bare, *braces = re.split(r"[{}]+", text.rstrip("}"))
        operand = parse_operand(bare)
        for brace in braces:
            if brace == "1to16":
                operand = operand.to_all
            elif brace == "z":
                options["zero"] = True
            else:
                options["mask"] = Mask(int(brace[1:]))
        operands.append(operand)
    a = Assembler()
    getattr(a, our_name(mnemonic, texts[0] if texts else ""))(*operands, **options)
    a.label("end")
    return a.finish()[0]
