"""Names of x86-64 registers, and what a call may change of them: for those who read a traced build's disassembly."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

# The whole register, by the name of any of its parts.
NAMES = {
    short: wide
    for wide, shorts in (
        *((f"r{x}x", (f"r{x}x", f"e{x}x", f"{x}x", f"{x}l", f"{x}h")) for x in "abcd"),
        *((f"r{x}", (f"r{x}", f"e{x}", x, f"{x}l")) for x in ("si", "di", "bp", "sp")),
        *((f"r{n}", (f"r{n}", f"r{n}d", f"r{n}w", f"r{n}b")) for n in range(8, 16)),
    )
    for short in shorts
}
ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
LOST = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", *(f"xmm{n}" for n in range(16)))
OPERAND = re.compile(r"(?:[^,(]|\([^)]*\))+")
MEMORY = re.compile(r"^(?P<offset>(?:%fs:)?-?(?:0x)?[0-9a-f]*)\((?P<base>%\w+)?(?:,(?P<index>%\w+)?(?:,\d)?)?\)$")
CALLED = re.compile(r"<([^>+@]+)(?:@plt)?>")
_WHOLE = frozenset(NAMES.values())


def matching(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """`re.match` of a pattern, for texts that come again and again: names of instructions, operands, functions."""
    return lru_cache(maxsize=1 << 16)(re.compile(pattern).match)


@lru_cache(maxsize=1 << 16)
def operands_of(text: str) -> tuple[str, ...]:
    """An instruction's operands, the last one is what it changes."""
    return tuple(each.strip() for each in OPERAND.findall(text))


@lru_cache(maxsize=1 << 16)
def memory_of(operand: str) -> re.Match[str] | None:
    """The parts of an operand in memory, None for others."""
    return MEMORY.match(operand)


def is_whole(operand: str) -> bool:
    """Whether an operand is a register of 64 bits."""
    return operand.startswith("%") and operand[1:] in _WHOLE
