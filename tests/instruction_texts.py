"""Every instruction that our assembler knows, as lines of text with operands by chance."""

import random

from model.native.assembler import ARITHMETIC, JUMPS
from model.native.instructions import EVEX, VEX
from tests.intel_syntax import GENERAL, GENERAL_32

# A word an operand: z a vector, x its lowest lane; M memory, S memory with an index, V with a
# vector of them, B memory that may be spread over the lanes; k mask, t tile, r and e general
# registers of 64 and 32 bits; qword, dword and word memory of that name; i8, i32, i5 numbers; end
# as in intel_syntax.
PATTERNS = {
    "mov": ["r r", "r qword", "qword r", "r i32", "qword i32"],
    "movsxd": ["r dword"], "movzx": ["r word"], "lea": ["r M"], "shl": ["r i5"], "shr": ["r i5"],
    "imul": ["r r i32", "r qword i32", "r r", "r qword"], "bsf": ["r r", "r qword"],
    "vcmpps": ["k z z i8", "k z B i8"],
    "cmovg": ["r r", "r qword"], "prefetcht1": ["M"], "push": ["r"], "pop": ["r"],
    "call_at": ["qword"], "kmovw": ["k e"], "kmovq": ["k r"],
    "kmovq_from": ["r k"], "vpcmpeqb": ["k z z", "k z M"], "bzhi": ["r r r"], "ldtilecfg": ["M"],
    "sttilecfg": ["M"], "tilerelease": [""], "tilezero": ["t"], "tileloadd": ["t S"],
    "tilestored": ["S t"], "tdpbusd": ["t t t"], "vgatherdps": ["z V"], "vmovss_to": ["M x"],
    **{name: ["end"] for name in JUMPS},
    **{name + "_" * (name in ("or", "and")): ["r r", "r qword", "r i32", "qword i32"]
       for name in ARITHMETIC},
}
NAMES = sorted({*EVEX, *VEX, *PATTERNS})
SIZES = {"qword": "qword ptr ", "dword": "dword ptr ", "word": "word ptr "}
# gas has shorter encodings of its own for small numbers, which we do without.
LARGE = 1 << 20


def patterns(name: str) -> list[str]:
    """The operands that an instruction takes; of vector instructions their order tells."""
    if name in PATTERNS:
        return PATTERNS[name]
    form = EVEX[name]
    if is_scalar(name):
        return [" ".join("x" * len(form.order)), " ".join("x" * (len(form.order) - 1)) + " M"]
    # Parts of 32 bits can be spread; moves and parts of other sizes cannot.
    spreads = form.wide == 0 and not name.startswith("vmov") and name[-1] not in "bw"
    memory = "B" if form.size == 64 and spreads else "M"
    words = ["i8" if letter == "i" else memory if letter == "m" else "z" for letter in form.order]
    with_memory = " ".join(words)
    return [with_memory] if form.size != 64 or form.order[0] == "m" else [
        with_memory.replace(memory, "z"), with_memory]


def is_scalar(name: str) -> bool:
    """Whether it works on the lowest lane alone, so that the length of the vector is ignored."""
    return name.removesuffix("_to").endswith("ss") and "broadcast" not in name


def memory(rng: random.Random, kind: str) -> str:
    base, index = rng.choice(GENERAL), ""
    if kind == "V":
        index = f"+zmm{rng.randrange(16, 32)}*{rng.choice((1, 2, 4, 8))}"
    elif kind == "S" or rng.random() < 0.5:
        name = rng.choice([name for name in GENERAL if name != "rsp"])  # which cannot be one
        index = f"+{name}*{rng.choice((1, 2, 4, 8))}"
    offset = rng.choice((0, 4, 64, -64, 127 * 64, 128 * 64, -128 * 64, -129 * 64,
                         rng.randrange(-200, 200), rng.randrange(-LARGE, LARGE)))
    is_ours = kind not in "SV" and rng.random() < 0.05  # of the code itself
    place = f"[rip{abs(offset):+d}]" if is_ours else f"[{base}{index}{offset:+d}]"
    spread = "{1to16}" if kind == "B" and rng.random() < 0.5 else ""
    return SIZES.get(kind, "") + place + spread


def operand(rng: random.Random, kind: str) -> str:
    if kind in ("z", "x"):
        return f"{kind}mm{rng.randrange(32)}"
    if kind in ("k", "t"):
        return f"k{rng.randrange(1, 8)}" if kind == "k" else f"tmm{rng.randrange(8)}"
    if kind in ("r", "e"):
        return rng.choice(GENERAL if kind == "r" else GENERAL_32)
    if kind == "i32":
        return str(rng.choice((1, -1)) * rng.randrange(1000, LARGE))
    if kind in ("i8", "i5"):
        return str(rng.randrange(256) if kind == "i8" else rng.randrange(2, 64))
    return kind if kind == "end" else memory(rng, kind)


def text(rng: random.Random, name: str, pattern: str) -> str:
    """One line for the instruction with these operands."""
    kinds = pattern.split()
    operands = [operand(rng, kind) for kind in kinds]
    if kinds == ["t"] * 3:
        operands = [f"tmm{number}" for number in rng.sample(range(8), 3)]  # none may be another
    if name == "vgatherdps":
        operands[0] = f"zmm{rng.randrange(16)}{{k{rng.randrange(1, 8)}}}"   # no index of its own
    elif name in EVEX and rng.random() < 0.4:
        operands[0] += f"{{k{rng.randrange(1, 8)}}}"
        if kinds[0] in "zx" and rng.random() < 0.5:
            operands[0] += "{z}"
    if kinds == ["r", "i32"] and operands[0] == "rax":
        operands[0] = "r8"  # gas has a shorter encoding for rax
    mnemonic = name.removesuffix("_to").removesuffix("_at").removesuffix("_from").removesuffix("_")
    return f"{mnemonic} {', '.join(operands)}".strip()


def texts(rng: random.Random, name: str, count: int) -> list[str]:
    """So many lines of an instruction, with all its kinds of operands in turn."""
    kinds = patterns(name)
    return [text(rng, name, kinds[place % len(kinds)]) for place in range(count)]
