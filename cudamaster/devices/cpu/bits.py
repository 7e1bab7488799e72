"""A bit for each register, for the flags and for each byte of the stack, by which steering.py follows values."""

from __future__ import annotations

from cudamaster.devices.cpu.x86 import ARGUMENTS, LOST, NAMES

_WHOLE = tuple(dict.fromkeys(NAMES.values()))
REGISTERS = {name: 1 << number for number, name in enumerate((*_WHOLE, *(f"xmm{number}" for number in range(16))))}
FLAGS = 1 << len(REGISTERS)
FIRST_WORD = len(REGISTERS) + 1
WORDS = -1 << FIRST_WORD  # all places of the stack


def bits_of(*names: str) -> int:
    """The bits of registers, by the names of their widest parts."""
    return sum({REGISTERS[name] for name in names})


SCRATCH = bits_of(*LOST) | FLAGS  # what a call may leave otherwise
INTEGERS = bits_of(*ARGUMENTS)
PASSED = INTEGERS | bits_of(*(f"xmm{number}" for number in range(8)))
RESULTS = bits_of("rax", "rdx", "xmm0", "xmm1")
