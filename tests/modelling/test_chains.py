"""How long instructions wait for each other, by basic block."""

from __future__ import annotations

import pytest

from cudamaster.devices.cpu import chains, instructions

Line = tuple[int, str, str]


def cycles(*lines: str, following: dict[int, list[int]] | None = None, starts: tuple[int, ...] = (0,)) -> list[float]:
    """Of each block of code whose lines have the addresses 0, 1, 2 ...; blocks begin at `starts`."""
    code: list[Line] = []
    for address, line in enumerate(lines):
        name, _, operands = line.partition(" ")
        code.append((address, name, operands.strip()))
    ends = (*starts[1:], len(code))
    blocks = [code[start:end] for start, end in zip(starts, ends, strict=True)]
    found = chains.of_blocks(blocks, following or {}, instructions._of_instruction, instructions._of_call)
    return [found[start] for start in starts]


def test_additions_that_need_each_other_come_one_after_another() -> None:
    assert cycles(*["addss %xmm1,%xmm0"] * 8) == [8 * 4]


def test_additions_that_do_not_are_there_together() -> None:
    assert cycles(*(f"addss %xmm9,%xmm{n}" for n in range(8))) == [4]


def test_a_loop_costs_what_it_hands_on() -> None:
    """Four sums beside each other: one addition a pass, as one sum; a chain of four in it costs four."""
    beside = [f"addss %xmm9,%xmm{n}" for n in range(4)]
    assert cycles(*beside, "jne 0 <loop>", following={0: [0]}) == [4]
    assert cycles("addss %xmm9,%xmm0", "jne 0 <loop>", following={0: [0]}) == [4]
    assert cycles(*["addss %xmm9,%xmm0"] * 4, "jne 0 <loop>", following={0: [0]}) == [16]


def test_values_are_followed_through_the_functions_own_memory() -> None:
    kept = ("addss %xmm1,%xmm0", "movss %xmm0,0x8(%rsp)", "call 4000 <__tsan_write4>", "movss 0x8(%rsp),%xmm2")
    assert cycles(*kept, "addss %xmm1,%xmm2") == [8]


def test_what_a_call_forgets_is_not_handed_on() -> None:
    assert cycles("addss %xmm1,%xmm0", "call 4000 <__tsan_write4>", "addss %xmm1,%xmm0") == [4]


def test_exact_divisions_come_one_after_another() -> None:
    """They go around their long way by a branch, measured: two independent ones take twice as long as one."""
    assert cycles("divss %xmm1,%xmm0") == [60]
    assert cycles("divss %xmm1,%xmm0", "divss %xmm3,%xmm2") == [120]


@pytest.mark.parametrize(("second", "longest"), [("0x100(%rsp)", 70), ("0x200(%rsp)", 35)])
def test_products_of_fragments_wait_for_their_own_sums(second: str, longest: float) -> None:
    """Into one accumulator they come one after another, into two together."""
    code = []
    for sums in ("0x100(%rsp)", second):
        code += [f"lea {sums},%rdi", "lea 0x10(%rsp),%rsi", "lea 0x30(%rsp),%rdx", "mov %rdi,%rcx",
                 "call 4000 <_ZN6nvcuda4wmma8mma_syncI16>"]  # fmt: skip
    assert cycles(*code) == [longest]
