"""Which 64-bit arithmetic is an address, and what the rest costs: in code of one or more basic blocks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cudamaster.devices.cpu import addresses

READ, WRITE = "call 4000 <__tsan_read8>", "call 4100 <__tsan_write8>"


def counted(
    *lines: str, following: dict[int, list[int]] | None = None, starts: tuple[int, ...] = (0,)
) -> Mapping[int, Mapping[str, float]]:
    """What counts in code whose lines have the addresses 0, 1, 2 ...; blocks begin at `starts`."""
    code = []
    for place, line in enumerate(lines):
        name, _, operands = line.partition(" ")
        code.append((place, name, operands.strip()))
    ends = (*starts[1:], len(code))
    return addresses.values_of([code[start:end] for start, end in zip(starts, ends, strict=True)], following or {})


def test_what_makes_an_address_belongs_to_its_request() -> None:
    assert counted("shl $0x3,%rax", "add %rbx,%rax", "lea 0x8(%rax),%rcx", "mov %rcx,%rdi", READ) == {}


def test_what_is_stored_is_a_value() -> None:
    code = ("add %rbx,%rax", "lea 0x8(%rax),%rcx", "mov %rdx,%rdi", WRITE, "mov %rcx,(%rdx)")
    assert counted(*code) == {0: {"integer": 2}, 1: {"counting": 2}}


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("add %rbx,%rax", {"integer": 2}),
        ("add $0x7,%rax", {"counting": 2}),
        ("cmp %rbx,%rax", {"counting": 2}),
        ("shl $0x5,%rax", {"integer": 2}),
        ("xor %rbx,%rax", {"integer": 2}),
        ("not %rax", {"integer": 2}),
        ("sar $0x5,%rax", {"integer": 2}),
        ("imul %rbx,%rax", {"integer": 4}),
        ("cmovl %rbx,%rax", {"integer": 2}),
        ("lea (%rax,%rbx,2),%rax", {"integer": 2}),
        ("lea 0x1(%rax),%ecx", {"counting": 1}),
    ],
)
def test_other_arithmetic_costs_what_a_gpu_makes_of_it(line: str, kinds: dict[str, float]) -> None:
    assert counted(line) == {0: kinds}


@pytest.mark.parametrize(
    "line",
    ["add %ebx,%eax", "shl $0x20,%rax", "shr $0x20,%rax", "xor %rax,%rax", "sub $0x40,%rsp", "lea 0x8(%rsp),%rax"],
)
def test_what_has_32_bits_or_moves_a_word_is_left_as_it_is(line: str) -> None:
    assert counted(line) == {}


def test_a_product_of_halves_is_one_instruction() -> None:
    assert counted("movslq %ebx,%rcx", "mov %edx,%eax", "imul %rcx,%rax") == {2: {"integer": 1}}
    assert counted("movslq %ebx,%rcx", "mov (%rdx),%rax", "imul %rcx,%rax") == {2: {"integer": 4}}


def test_a_word_beside_another_one_costs_no_mask() -> None:
    assert counted("shl $0x20,%rax", "or %rbx,%rax") == {}


@pytest.mark.parametrize("line", ["shr $0x3,%rax", "and %rbx,%rax", "imul %rbx,%rax", "not %rax"])
def test_no_chain_is_an_address_behind_what_no_address_has(line: str) -> None:
    """A sum before a mask, a shift to the right or a product is paid for, whatever that is used for."""
    assert counted("add %rcx,%rax", line, "mov %rax,%rdi", READ)[0] == {"integer": 2}


def test_a_request_pays_for_a_few() -> None:
    """Of ten sums in front of a load four are its address; the others are a chain."""
    found = counted(*["add %rbx,%rax"] * 10, "mov %rax,%rdi", READ)
    assert len(found) == 6


def test_a_block_without_requests_pays_for_its_sums() -> None:
    """A loop of sums in front of a load."""
    code = ("add %rbx,%rax", "cmp %rdx,%rcx", "jne 0 <f>", "mov %rax,%rdi", READ)
    found = counted(*code, following={0: [0, 3]}, starts=(0, 3))
    assert found[0] == {"integer": 2}


def test_addresses_are_followed_over_loops_and_the_stack() -> None:
    """The pointer goes on at the loop's end, is compared, and is kept on the stack meanwhile."""
    code = (
        "mov 0x18(%rsp),%rdi", READ, "mov 0x18(%rsp),%rax", "add $0x80,%rax", "cmp %rax,%rbx",
        "mov %rax,0x18(%rsp)", "jne 0 <f>",
    )  # fmt: skip
    assert counted(*code, following={0: [0]}) == {}


def test_what_an_atomic_adds_is_a_value() -> None:
    code = ("add %rbx,%rdi", "add %rcx,%rsi", "call 5000 <_Z9atomicAddPyy>")
    assert counted(*code) == {1: {"integer": 2}}


def test_what_copies_of_a_call_move_is_at_addresses() -> None:
    """Both ends and the rest that it is given, as for memcpy."""
    assert counted("add %rbx,%rsi", "add %rcx,%rdi", "call 5000 <memcpy@plt>") == {}


def test_a_call_changes_what_is_in_its_registers() -> None:
    """A sum before a call is not the address that is in the same register behind it."""
    assert counted("add %rbx,%rax", "call 9000 <f>", "mov %rax,%rdi", READ) == {0: {"integer": 2}}
    short = ("movslq %ebx,%rcx", "mov %edx,%eax")
    assert counted(*short, "call 9000 <f>", "imul %rcx,%rax") == {3: {"integer": 4}}


def test_what_is_replaced_makes_no_address() -> None:
    assert counted("add %rbx,%rax", "mov %rcx,%rax", "mov %rax,%rdi", READ) == {0: {"integer": 2}}


def test_a_choice_between_addresses_costs_as_any_other() -> None:
    """The sums that make what is chosen do not."""
    assert counted("add %rdx,%rbx", "cmovl %rbx,%rax", "mov %rax,%rdi", READ) == {1: {"integer": 2}}


def test_a_frame_pointer_leads_to_the_stack() -> None:
    kept = ("add %rbx,%rax", "mov %rax,-0x8(%rbp)", "mov -0x8(%rbp),%rdi", READ)
    assert counted("mov %rsp,%rbp", *kept) == {}
    assert counted(*kept) == {0: {"integer": 2}}


def test_factors_that_are_not_named_count_too() -> None:
    """`mul` takes %rax; `cltq` makes that short. Of three operands the last is no factor."""
    assert counted("mov %edx,%ecx", "mul %rcx") == {1: {"integer": 4}}
    assert counted("cltq", "mov %edx,%ecx", "mul %rcx") == {2: {"integer": 1}}
    assert counted("mov %edx,%ecx", "imul $0x18,%rcx,%rax") == {1: {"integer": 1}}


def test_a_mask_that_leaves_a_word_beside_another_one_costs_nothing() -> None:
    assert counted("movabs $0xffffffff00000000,%rcx", "and %rcx,%rax") == {}
