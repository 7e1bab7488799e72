"""Figures that counting goes by: the section `counting` of profiles/gpu_model.yaml.

They say what a GPU or nvcc makes of code, so counts are of these figures. After a change all is to be counted anew, and
`VERSION` of modelling/folding.py goes up. What only says how much of a launch is looked at stays in the tracer
(runtime/trace/sample.h, launches.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from cudamaster.core import resources, yaml_text


@dataclass(frozen=True)
class Counting:
    """`..._cycles` of kinds of instructions are those from one to the next that needs its result."""

    # Passes of a loop that nvcc makes into one; loops of several blocks only if their branches become predicates, which
    # are of so many blocks and instructions at most.
    unrolled_passes: float
    predicated_blocks: float
    predicated_instructions: float
    # Of 64 bits, which make the address of a request and cost nothing beside it.
    address_instructions: float
    fp32_cycles: float
    fp64_cycles: float
    integer_cycles: float
    conversion_cycles: float
    special_cycles: float
    subroutine_cycles: float
    matrix_cycles: float
    shuffle_cycles: float
    branch_cycles: float  # back to a loop's start
    # Registers of a thread that hold nothing which is on its way, and words that it has room for at least.
    other_registers: float
    least_room: float
    requests_on_their_way: float  # of each warp: what one of them brings is waited for yet
    longest_sleep_ns: float
    host_instructions: float  # between two calls of the runtime: fewer are part of these
    # Of the clock that kernels see: from one question to the next, behind an access to memory, and the part of what a
    # thread has waited that it goes on by.
    question_cycles: float
    access_cycles: float
    waited_part: float
    # Of L1: what all blocks read stays there if it is no more than so much.
    kept_of_l1: float
    # One block did all blocks' work if so much of the sample's instructions is its own; a sample says nothing if others
    # do so many times as much; a call moves so much of what its task has to.
    alone_share: float
    uneven_times: float
    least_moved: float

    def rules(self) -> str:
        """What the tracer is told of them, in the order in which it reads them (runtime/trace/table.cpp)."""
        told = (
            *(self.unrolled_passes, self.other_registers, self.least_room, self.requests_on_their_way),
            *(self.longest_sleep_ns, self.host_instructions),
            *(self.question_cycles, self.access_cycles, self.waited_part),
        )
        return " ".join(str(int(each)) for each in told)


NAMES = tuple(field.name for field in fields(Counting))


def of(values: Mapping[str, float]) -> Counting:
    """The figures by their names. Raises ValueError for one that is lacking or unknown."""
    if wrong := sorted(set(NAMES) ^ set(values)):
        raise ValueError(f"{wrong[0]} {'is missing' if wrong[0] in NAMES else 'is no figure of counting'}")
    return Counting(**values)


@cache
def shipped() -> Counting:
    """Those that ship. The whole file is checked where the model reads it (modelling/constants.py)."""
    text = (resources.profiles() / "gpu_model.yaml").read_text(encoding="utf-8")
    return of({name: float(each["value"]) for name, each in yaml_text.load(text)["counting"].items()})
