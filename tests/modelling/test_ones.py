"""Additions of one, in code of g++."""

from __future__ import annotations

import pytest

from cudamaster.devices.cpu import ones


def found(call: str, *, before: str = "mov\t$0x1,%esi", behind: str = "") -> list[int]:
    """Places of one function with a call."""
    each = [*before.split(";"), f"call\t1100 <{call}>", *filter(None, behind.split(";")), "call\t1200 <__tsan_read4>"]
    return list(ones.places([(at, *line.partition("\t")[::2]) for at, line in enumerate(each)]))


PTX = "_ZN14cudamaster_cpu3ptx8atom_oneIJNS0_8t_sharedENS0_5t_{}ENS0_5t_{}EEEENS0_4Type4BitsEPS6_S6_"


@pytest.mark.parametrize(
    "call", ["_Z9atomicAddPii", "_Z9atomicAddPjj", PTX.format("add", "u32"), PTX.format("add", "s32")]
)
def test_a_constant_of_one_is_added(call: str) -> None:
    assert found(call) == [2]
    assert found(call, before="mov\t$0x2,%esi") == []
    assert found(call, before="mov\t%ebx,%esi") == []
    assert found(call, before="add\t$0x1,%esi") == []
    assert found(call, before="mov\t$0x1,%esi;mov\t%rbx,%rsi") == []
    assert found(call, before="mov\t$0x1,%esi;call\t1200 <__tsan_read4>") == []
    assert found(call, before="mov\t$0x1,%esi;jne\t1000") == []


@pytest.mark.parametrize(
    "call",
    [
        "_Z9atomicAddPyy",
        "_Z9atomicAddPff",
        "_Z9atomicSubPii",
        "_Z9atomicMaxPii",
        PTX.format("max", "u32"),
        PTX.format("add", "u64"),
    ],
)
def test_other_atomics_are_none(call: str) -> None:
    assert found(call) == []


def test_nobody_takes_the_answer() -> None:
    assert found("_Z9atomicAddPii", behind="mov\t%eax,%ebx") == []
    assert found("_Z9atomicAddPii", behind="mov\t%al,0x8(%rsp)") == []
    assert found("_Z9atomicAddPii", behind="add\t%ebx,%eax") == []
    assert found("_Z9atomicAddPii", behind="lea\t0x4(%rax),%rbx") == []
    assert found("_Z9atomicAddPii", behind="mov\t0x8(%rsp),%rax;mov\t%rax,%rdi") == [2]
    assert found("_Z9atomicAddPii", behind="xor\t%eax,%eax;ret\t") == [2]
    assert found("_Z9atomicAddPii", behind="call\t1300 <other>;mov\t%eax,%ebx") == [2]
    assert found("_Z9atomicAddPii", behind="jne\t1000;mov\t%eax,%ebx") == [2]
