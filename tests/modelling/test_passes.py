"""Loops whose passes nvcc can tell, in code of g++."""

from __future__ import annotations

import pytest

from cudamaster.devices.cpu import passes


def countless(*instructions: str, behind: str = "") -> bool:
    """Whether nvcc cannot tell the passes of a loop of one block, or of two if something stands behind a jump in it."""
    first = [(at, *each.partition("\t")[::2]) for at, each in enumerate(instructions)]
    second = [(at, *each.partition("\t")[::2]) for at, each in enumerate(behind.split(";"), 100)] if behind else []
    if second:
        return passes.countless([0, 100], {0: first, 100: second}, {0: [100, 900], 100: [0]})
    return passes.countless([0], {0: first}, {0: [0, 900]})


@pytest.mark.parametrize("step", ["%r12", "0x8(%rsp)", "%fs:0xfffffffffffffff0"])
def test_unsigned_numbers_may_wrap_around(step: str) -> None:
    assert countless(f"add\t{step},%r15", "cmp\t%rbp,%r15", "jb\t0")
    assert not countless(f"add\t{step},%r15", "cmp\t%rbp,%r15", "jl\t0")


@pytest.mark.parametrize("jump", ["jb", "jae", "ja", "jbe", "jc", "jnc"])
def test_unsigned_numbers_are_compared_by_jumps_of_their_own(jump: str) -> None:
    """What was compared before does not matter."""
    assert countless("cmp\t%eax,%ecx", "add\t%r12,%r15", "cmp\t%rbp,%r15", f"{jump}\t0")


def test_a_branch_within_the_loop_does_not_end_it() -> None:
    lines = {0: [(0, "add", "%r12,%r15"), (1, "cmp", "%rbp,%r15"), (2, "jb", "200")], 100: [(100, "jmp", "200")]}
    ends = [(200, "add", "$0x1,%rbx"), (201, "cmp", "%rbx,%rax"), (202, "jne", "0")]
    assert not passes.countless([0, 100, 200], {**lines, 200: ends}, {0: [100, 200], 100: [200], 200: [0, 900]})


def test_constants_can_be_told() -> None:
    assert not countless("add\t$0x100,%r15", "cmp\t%rbp,%r15", "jb\t0")
    # A place in memory that goes on by a row each pass, to where the last one is.
    assert not countless("add\t%r12,%rbx", "cmp\t%rbx,%rbp", "jne\t0")


@pytest.mark.parametrize("jump", ["jl", "jge", "jg", "jle"])
def test_an_int_that_is_widened_in_each_pass_may_wrap_around(jump: str) -> None:
    assert countless("movslq\t%ebx,%rax", "add\t%r13d,%ebx", "cmp\t%ebx,%ebp", f"{jump}\t0")
    assert countless("cltq\t", "add\t%r13d,%eax", "cmp\t%eax,%ebp", f"{jump}\t0")
    assert not countless("movslq\t%ecx,%rax", "add\t%r13d,%ebx", "cmp\t%ebx,%ebp", "jg\t0")


def test_a_counter_may_be_kept_on_the_stack_or_copied() -> None:
    assert countless("add\t%r12,0x10(%rsp)", "mov\t0x10(%rsp),%rax", "cmp\t%rbp,%rax", "jb\t0")
    assert countless("add\t%r12,-0x10(%rbp)", "cmp\t%rbx,-0x10(%rbp)", "jb\t0")
    assert not countless("add\t%r12,0x10(%rdi)", "cmp\t%rbp,0x10(%rdi)", "jb\t0")
    assert countless("lea\t(%rbx,%r12,1),%rax", "mov\t%rax,%rbx", "cmp\t%rbp,%rax", "jb\t0")
    assert not countless("lea\t(%rbx,%r12,1),%rax", "cmp\t%rbp,%rax", "jb\t0")


def test_a_counter_that_is_doubled_or_halved_cannot_be_told() -> None:
    assert countless("sar\t$1,%ebx", "test\t%ebx,%ebx", "jne\t0")
    assert countless("add\t%ebx,%ebx", "cmp\t%ebx,%ebp", "jg\t0")


def test_a_loop_may_be_left_from_another_block() -> None:
    assert countless("cmp\t%rbp,%r15", "jae\t900", behind="add\t%r12,%r15;jmp\t0")
    assert not countless("cmp\t%rbp,%r15", "jae\t900", behind="add\t$4,%r15;jmp\t0")
