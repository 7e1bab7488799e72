"""Which loads wait for others: values followed through registers, the stack and conversions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cudamaster.devices.cpu import origins

Line = tuple[int, str, str]
READ = "4000 <__tsan_read4>"


def found(*lines: str, following: dict[int, list[int]] | None = None, starts: tuple[int, ...] = (0,)) -> object:
    """Origins of loads in code whose lines have the addresses 0, 1, 2 ...; blocks begin at `starts`."""
    return origins_of(lines, following or {}, starts).of_addresses


def origins_of(lines: Sequence[str], following: dict[int, list[int]], starts: tuple[int, ...]) -> origins.Origins:
    """The same, with all that is found."""
    code: list[Line] = []
    for address, line in enumerate(lines):
        name, _, operands = line.partition(" ")
        code.append((address, name, operands.strip()))
    ends = (*starts[1:], len(code))
    blocks = [code[start:end] for start, end in zip(starts, ends, strict=True)]
    return origins.of_loads(blocks, following, lambda target: target == "converted")


# rbx holds an index's address, rbp an array: the load at 2 brings the index, that at 7 uses it.
GATHER = (
    "mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%rax", "lea 0x0(%rbp,%rax,4),%r12", "mov %r12,%rdi",
    "nop", f"call {READ}", "movss (%r12),%xmm0",
)  # fmt: skip


def test_a_gather_waits_for_its_index() -> None:
    assert found(*GATHER) == {7: [2]}


def test_what_is_made_of_an_index_waits_for_it() -> None:
    """And what overwrites it does not: the number of its bits is popcnt, which is no pop."""
    assert found(*GATHER[:3], "popcnt %rax,%rcx", "lea 0x0(%rbp,%rcx,4),%rdi", f"call {READ}", "nop") == {6: [2]}
    assert found(*GATHER[:3], "popcnt %r13,%rax", "lea 0x0(%rbp,%rax,4),%rdi", f"call {READ}", "nop") == {}


def test_loads_from_a_common_base_do_not_wait_for_each_other() -> None:
    assert found("mov %rbx,%rdi", f"call {READ}", "mov (%rbx),%eax", "lea 0x4(%rbx),%rdi", f"call {READ}", "nop") == {}


@pytest.mark.parametrize("offset", ["0x8", "0xc", "0x10", "0x14"])
def test_values_are_followed_through_the_stack_and_an_array_on_it(offset: str) -> None:
    """Sixteen bytes are stored at 8 bytes from the stack's end; words of them are read again."""
    code = (
        "mov %rbx,%rdi", "call 4000 <__tsan_read16>", "movdqu (%rbx),%xmm0", "movups %xmm0,0x8(%rsp)",
        f"movslq {offset}(%rsp),%rax", "lea (%rbp,%rax,4),%rdi", f"call {READ}", "nop",
    )  # fmt: skip
    assert found(*code) == {7: [2]}


def test_a_conversion_passes_on_what_it_was_given() -> None:
    code = (
        "mov %rbx,%rdi", "call 4000 <__tsan_read2>", "movzwl (%rbx),%edi", "call 5000 <converted>",
        "cvttss2si %xmm0,%rcx", "lea (%rbp,%rcx,4),%rdi", f"call {READ}", "nop",
    )  # fmt: skip
    assert found(*code) == {7: [2]}


def test_calls_forget_registers_that_they_may_change() -> None:
    code = (
        "mov %rbx,%rdi", f"call {READ}", "mov (%rbx),%ecx", "call 5000 <__sanitizer_cov_trace_pc>",
        "lea (%rbp,%rcx,4),%rdi", f"call {READ}", "nop",
    )  # fmt: skip
    assert found(*code) == {}


def test_a_register_that_is_overwritten_brings_nothing() -> None:
    code = (*GATHER[:3], "xor %eax,%eax", *GATHER[3:])
    assert found(*code) == {}


def test_what_a_loop_hands_on_comes_from_the_pass_before() -> None:
    """A list: the address of the next element is in the one before."""
    code = ("mov %rbx,%rdi", "call 4000 <__tsan_read8>", "mov (%rbx),%rbx", "jmp 0 <walk>")
    assert found(*code, following={0: [0]}) == {2: [2]}


def test_of_a_sum_over_very_many_loads_the_last_ones_are_kept() -> None:
    code = []
    for number in range(40):
        code += [f"lea {4 * number:#x}(%rbx),%rdi", f"call {READ}", f"add {4 * number:#x}(%rbx),%r12d"]
    (places,) = dict(found(*code, "lea (%rbp,%r12,4),%rdi", f"call {READ}", "nop")).values()  # type: ignore[call-overload]
    assert 3 <= len(places) <= 16
    assert places[-1] == 3 * 39 + 2


def test_a_register_that_may_be_kept_brings_both() -> None:
    """A conditional move leaves what was there, or does not."""
    code = (*GATHER[:3], "mov %rbx,%rdi", f"call {READ}", "mov (%rbx),%ecx", "cmovne %rcx,%r13")
    kept = ("mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%r13", *code[3:])
    assert found(*kept, "lea (%rbp,%r13,4),%rdi", f"call {READ}", "nop") == {9: [2, 5]}


def test_a_function_that_may_load_is_a_place_itself() -> None:
    """And waits for its arguments; what comes back is made from both."""
    code = ("mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%rdi", "call 5000 <other>", "lea (%rbp,%rax,4),%rdi",
            f"call {READ}", "nop")  # fmt: skip
    assert found(*code) == {4: [2], 6: [2, 4]}


def test_values_that_are_compared_stay_as_they_are() -> None:
    assert found(*GATHER[:3], "cmp %rcx,%rax", "test %eax,%eax", *GATHER[3:]) == {9: [2]}


def test_only_the_address_of_a_load_counts_and_not_what_else_is_in_registers() -> None:
    """The call-out of a load takes its address alone; rsi is left over from before."""
    code = ("mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%rax", "mov %rbp,%rdi", "mov %rax,%rsi", f"call {READ}")
    assert found(*code, "nop") == {}


@pytest.mark.parametrize("load", ["__tsan_unaligned_read4", "__tsan_volatile_read4", "__tsan_atomic32_load"])
def test_other_loads_are_loads_too(load: str) -> None:
    assert found(GATHER[0], f"call 4000 <{load}>", *GATHER[2:]) == {7: [2]}


def test_calls_forget_floating_point_registers_too() -> None:
    code = (*GATHER[:2], "movss (%rbx),%xmm1", "call 5000 <__sanitizer_cov_trace_pc>", "cvttss2si %xmm1,%rcx",
            "lea (%rbp,%rcx,4),%rdi", f"call {READ}", "nop")  # fmt: skip
    assert found(*code) == {}


@pytest.mark.parametrize(("sets_up", "waits"), [("mov %rsp,%rbp", {}), ("nop", {6: [3]})])
def test_a_frame_is_a_functions_own_memory(sets_up: str, waits: dict[int, list[int]]) -> None:
    """An argument that was kept there and is used for the next address: elsewhere %rbp is a pointer like others."""
    code = (
        sets_up,
        "mov %rbx,%rdi",
        f"call {READ}",
        "mov -0x60(%rbp),%rax",
        "lea 0x4(%rax),%rdi",
        f"call {READ}",
        "nop",
    )
    assert found(*code) == waits


def test_elements_of_an_array_on_the_stack_are_one() -> None:
    """What is kept with an index and read with an index may be the same; the load between has nothing to do with it."""
    code = ("mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%rax", "mov %rax,0x20(%rsp,%rcx,8)", "lea 0x4(%rbp),%rdi",
            f"call {READ}", "mov 0x20(%rsp,%rdx,8),%rax", "lea (%r12,%rax,4),%rdi", f"call {READ}", "nop")  # fmt: skip
    assert found(*code) == {9: [2]}


def test_an_element_that_is_written_leaves_the_others() -> None:
    """Which one is read with an index is not known: it may come from either load."""
    code = ("mov %rbx,%rdi", f"call {READ}", "movslq (%rbx),%rax", "mov %rax,0x20(%rsp,%rcx,8)",
            "movq $0x0,0x20(%rsp,%rcx,8)", "mov 0x20(%rsp,%rdx,8),%rax", "lea (%r12,%rax,4),%rdi", f"call {READ}",
            "nop")  # fmt: skip
    assert found(*code) == {8: [2]}


# Two paths to block 12: over 4 with 16 bytes at once, over 8 with two bytes, both into a word of the function's frame.
PIECES = (
    "test %eax,%eax", "mov %rbx,%rdi", "nop", "je 8",
    "call 4000 <__tsan_read16>", "mov 0x0(%rbx),%eax", "mov %eax,0x20(%rsp)", "jmp c",
    "call 4000 <__tsan_read2>", "movzwl (%rbx),%eax", "mov %ax,0x20(%rsp)", "nop",
    "mov 0x20(%rsp),%eax", "ret",
)  # fmt: skip


@pytest.mark.parametrize(("other", "split"), [("__tsan_read2", [5]), ("__tsan_read4", [])])
def test_a_value_that_meets_smaller_pieces_is_split_on_its_path(other: str, split: list[int]) -> None:
    code = [line.replace("__tsan_read2", other) for line in PIECES]
    following = {0: [4, 8], 4: [12], 8: [12], 12: []}
    assert origins_of(code, following, (0, 4, 8, 12)).split == split


# A load decides whether the block at 5 is executed, in which another one is; both ways meet at 8.
DECIDED = (
    "mov %rbx,%rdi", f"call {READ}", "mov (%rbx),%eax", "test %eax,%eax", "je 8 <met>",
    "mov %rbp,%rdi", f"call {READ}", "nop", "mov %r12,%rdi", f"call {READ}", "nop",
)  # fmt: skip


def test_a_load_behind_a_branch_waits_for_what_decides_it() -> None:
    """But not where both ways have met again, nor where there is one way only."""
    assert found(*DECIDED, following={0: [5, 8], 5: [8]}, starts=(0, 5, 8)) == {7: [2]}
    assert found(*DECIDED, following={0: [5], 5: [8]}, starts=(0, 5, 8)) == {}
