"""Additions of one, in code of g++."""

from __future__ import annotations

import pytest

from cudamaster.devices.cpu import ones


def unanswered(call: str, *, before: str = "mov\t$0x1,%esi", behind: str = "") -> list[tuple[int, bool]]:
    """Places of one function with a call."""
    each = [*before.split(";"), f"call\t1100 <{call}>", *filter(None, behind.split(";")), "call\t1200 <__tsan_read4>"]
    return list(ones.places([(at, *line.partition("\t")[::2]) for at, line in enumerate(each)]))


def found(call: str, *, before: str = "mov\t$0x1,%esi", behind: str = "") -> list[int]:
    """Those of additions of one."""
    return [place for place, adds_one in unanswered(call, before=before, behind=behind) if adds_one]


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
    assert found("_Z9atomicAddPii", behind="jne\t4;call\t1300 <other>;ret\t") == [2]


def test_the_answer_may_be_taken_on_one_way_only() -> None:
    assert found("_Z9atomicAddPii", behind="jne\t4;xor\t%eax,%eax;mov\t%eax,%ebx") == []
    assert found("_Z9atomicAddPii", behind="jne\t5;call\t1300 <other>;ret\t;mov\t%eax,%ebx") == []
    assert found("_Z9atomicAddPii", behind="jmp\t4;mov\t%eax,%ebx;call\t1300 <other>") == [2]
    assert found("_Z9atomicAddPii", behind="xor\t%eax,%eax;jne\t2;mov\t%eax,%ebx") == [2]
    assert found("_Z9atomicAddPii", behind="jne\t1000 <elsewhere>") == []


@pytest.mark.parametrize("call", ["_Z9atomicAddPff", "_Z9atomicMaxPii", "_Z10atomicExchPjj", PTX.format("max", "u32")])
def test_others_ask_for_nothing_either_if_nobody_takes_the_answer(call: str) -> None:
    assert unanswered(call) == [(2, False)]
    assert unanswered(call, behind="movss\t0x8(%rsp),%xmm0") == [(2, False)]
    assert unanswered(call, behind="pxor\t%xmm0,%xmm0;movss\t%xmm0,0x8(%rsp)") == [(2, False)]
    assert unanswered(call, behind="movss\t%xmm0,0x8(%rsp)") == []
    assert unanswered(call, behind="mov\t0x8(%rsp),%eax;movss\t%xmm0,0x8(%rsp)") == []
    assert unanswered(call, behind="pxor\t%xmm0,%xmm0;mov\t%eax,%ebx") == []
    assert unanswered(call, behind="addss\t%xmm2,%xmm0") == []
    assert unanswered(call, behind="cvtsi2ss\t%ebx,%xmm0") == []
    assert unanswered(call, behind="mov\t%rdx,%rbx") == []
    assert unanswered(call, behind="mov\t$0x1,%al;mov\t%eax,%ebx") == []
    assert unanswered("_Z9atomic_isPii") == []
