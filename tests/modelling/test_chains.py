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


def test_what_comes_behind_a_branch_waits_for_what_decides_it() -> None:
    """An addition behind a comparison."""
    code = ("cmp %eax,%ebx", "jne 3 <end>", "addss %xmm1,%xmm0", "ret")
    assert cycles(*code, following={0: [2, 3], 2: [3], 3: []}, starts=(0, 2, 3)) == [0, 5 + 4, 0]


def test_a_pass_of_a_loop_of_several_blocks_waits_for_its_branch() -> None:
    """The comparison and the jump back, which take longer than the addition that is handed on."""
    code = ("addss %xmm9,%xmm0", "cmp %eax,%ebx", "jne 0 <loop>")
    assert sum(cycles(*code, following={0: [1], 1: [0]}, starts=(0, 1))) == 5 + 6


def test_a_loop_of_one_block_is_unrolled() -> None:
    """Four passes share its counting, and nothing waits for its branch."""
    assert cycles("add $0x1,%eax", "jne 0 <loop>", following={0: [0]}) == [5 / 4]
    assert cycles("addss %xmm9,%xmm0", "cmp %eax,%ebx", "jne 0 <loop>", following={0: [0]}) == [4]


def test_a_loop_that_stands_for_one_instruction_has_no_branch() -> None:
    code = ("call 4000 <cudamaster_cpu_lane>", "addss %xmm9,%xmm1", "cmp %eax,%ebx", "jne 0 <loop>")
    assert sum(cycles(*code, following={0: [1], 1: [0]}, starts=(0, 1))) == 5


def test_the_innermost_loop_counts() -> None:
    """A sum that begins anew in each pass of the outer one."""
    code = ("xorps %xmm0,%xmm0", "addss %xmm9,%xmm0", "jne 1 <inner>", "jmp 0 <outer>")
    assert cycles(*code, following={0: [1], 1: [1, 3], 3: [0]}, starts=(0, 1, 3))[1] == 4


def test_zeroes_wait_for_nothing() -> None:
    assert cycles("addss %xmm1,%xmm0", "xorps %xmm0,%xmm0", "addss %xmm1,%xmm0") == [4]


def test_a_choice_waits_for_its_comparison() -> None:
    assert cycles("cmp %eax,%ebx", "cmovl %ecx,%edx") == [5 + 5]


def test_places_of_the_stack_are_the_same_behind_a_push() -> None:
    kept = ("addss %xmm1,%xmm0", "movss %xmm0,0x8(%rsp)", "push %rbx", "movss 0x10(%rsp),%xmm2")
    assert cycles(*kept, "addss %xmm1,%xmm2") == [8]
    ones = (*kept[:3], "popcnt %ecx,%edx", kept[3])  # takes nothing from the stack
    assert cycles(*ones, "addss %xmm1,%xmm2") == [8]


def test_elements_of_an_array_are_one_value() -> None:
    """The latest of them."""
    kept = ("addss %xmm1,%xmm0", "movss %xmm0,0x10(%rsp,%rax,4)", "movss %xmm9,0x10(%rsp,%rcx,4)")
    assert cycles(*kept, "movss 0x10(%rsp,%rdx,4),%xmm2", "addss %xmm1,%xmm2") == [8]


def test_a_vector_that_is_kept_is_four_words() -> None:
    kept = ("addss %xmm1,%xmm0", "movaps %xmm0,0x10(%rsp)", "movss 0x14(%rsp),%xmm2")
    assert cycles(*kept, "addss %xmm1,%xmm2") == [8]


@pytest.mark.parametrize(("sets_up", "longest"), [("mov %rsp,%rbp", 8), ("nop", 4)])
def test_a_frame_is_the_functions_own_memory(sets_up: str, longest: float) -> None:
    """Elsewhere %rbp is a pointer like others, and what memory brings is there at once."""
    kept = (sets_up, "addss %xmm1,%xmm0", "movss %xmm0,-0x8(%rbp)", "movss -0x8(%rbp),%xmm2")
    assert cycles(*kept, "addss %xmm1,%xmm2") == [longest]


def test_products_of_registers_are_given_some_on_the_stack() -> None:
    """A quarter of a product of 16 x 16 x 16 each, the second of which adds to the first."""
    one = ("lea 0x100(%rsp),%rax", "push %rax", "call 4000 <_ZN14cudamaster_cpu3ptx8mma_syncE>", "add $0x8,%rsp")
    assert cycles(*one, *one) == [2 * 35 / 4]


def test_what_points_where_is_known_in_a_loop() -> None:
    """An accumulator whose address was made before it."""
    code = ("lea 0x100(%rsp),%rbx", "nop", "mov %rbx,%rdi", "mov %rbx,%rcx",
            "call 4000 <_ZN6nvcuda4wmma8mma_syncI16>", "jne 2 <loop>")  # fmt: skip
    assert cycles(*code, following={0: [2], 2: [2]}, starts=(0, 2)) == [0, 35]


@pytest.mark.parametrize(
    ("line", "longest"),
    [
        ("mulss %xmm1,%xmm0", 4),
        ("addsd %xmm1,%xmm0", 8),
        ("cvttss2si %xmm1,%eax", 5),
        ("imul %ecx,%edx", 5),
        ("call 4000 <_Z6__expff>", 20 + 4),
        ("call 4000 <_Z15__shfl_xor_syncjfii>", 24),
        ("call 4000 <sinf>", 100),
    ],
)
def test_latencies_are_those_that_were_measured(line: str, longest: float) -> None:
    assert cycles(line) == [longest]
