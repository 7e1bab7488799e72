"""Constants of the model that are the same for every GPU, and how far the model is off: profiles/gpu_model.yaml.

Constants are fitted on four fifths of the tasks, the error is that on the fifth held out (benchmarks/gpu_model.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudamaster.core import resources, sourced, yaml_text
from cudamaster.core.errors import UsageError
from cudamaster.core.likelihood import Errors
from cudamaster.core.sourced import Sourced
from cudamaster.devices.cpu import counting
from cudamaster.devices.cpu.counting import Counting

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Constants(_Strict):
    """What the model multiplies counts by; cycles are those of an SM. Units, ranges and sources are in the file."""

    # Instructions of the GPU for one of integers that the host's build executes, and for a request to global memory
    # with its address. Arithmetic, branches and requests to shared memory are counted rightly.
    instruction_scale: _Positive
    instructions_of_request: _Positive
    # What a warp executes beside that: parameters, its index, addresses, its end. Nsight Compute counts so many more
    # of simple kernels than the host's code has.
    instructions_beside: _NotNegative
    # Cycles from one instruction of a warp to its next that needs nothing of it, nobody else issuing; multiply-adds in
    # fp32 need one.
    cycles_per_instruction: _Positive
    # Loads of a warp that are on their way together.
    loads_in_flight: _Positive
    # From a launch's first block to its first request: its instructions and parameters come from memory.
    first_cycles: _NotNegative
    # From a block's start to its first instruction, and from its last to the next block's start.
    block_cycles: _Positive
    # What a launch with atomics takes for the last of them.
    answer_cycles: _NotNegative
    # L1 per wavefront of a request's data.
    wavefront_cycles: _NotNegative
    # Part of what L1 does for all warps of a block that each of them waits for.
    in_step: _Share
    # Sectors of a load that L2 takes as long for as for a line of one, however few sectors of it are asked for; for a
    # sector that is stored, and besides for each of its lines.
    line_sectors: Annotated[float, Field(ge=1)]
    stored_sectors: Annotated[float, Field(ge=1)]
    stored_line_sectors: _NotNegative
    # What L2 takes for a byte that a copy in bulk reads, of what it takes for one of a load.
    bulk_share: _Share
    # Instructions of a function that is a subroutine on a GPU too.
    slow_instructions: _Positive
    # The exponent of the mean that joins the parts: 1 adds them up, infinity takes the largest.
    overlap: _Positive
    # Part of L2 that holds what is written but not yet in DRAM when a launch ends. Slow launches, which write less than
    # 100 GB/s, leave nothing.
    left_in_l2: _Share
    # Waves that touch as much together as so many times the buffer come to it again and again; others go through it
    # once. L2 keeps what is touched again before it is full, and less and less until so much more is touched meanwhile.
    sweeps: _Positive
    fading: _Positive
    # A gather is what a block loads so many times at most. From a stretch that fits in L1, so much hits there while
    # other loads are on their way.
    gathered_again: _Positive
    kept_in_l1: _Share
    # A warp that spins has so many times as many waits as the mean, and so many for each that asks for something new.
    spinning_waits: _Positive
    spinning_again: _Positive
    # Registers of a thread where no compiler for the GPU has said how many there are.
    assumed_registers: _Positive
    # What Python and PyTorch's dispatcher need for one operator of an eager baseline, beside the launch.
    dispatch_us: _NotNegative


class KnownError(_Strict):
    """How far modelled times are off on the fifth of the tasks that nothing was fitted on.

    `times_within` is the factor within which nine of ten modelled times are of the measured ones, `ratios_within` the
    same of ratios of two kernels of one task at one case; `pairs_ordered` the share of such pairs that are ordered
    rightly where the measured times are more than 20 % apart. `date` is that of the validation.
    """

    gpu: str
    date: str
    times: Annotated[int, Field(gt=0)]
    pairs: Annotated[int, Field(ge=0)]
    rank_correlation: Annotated[float, Field(ge=-1, le=1)]
    times_within: Annotated[float, Field(ge=1)]
    ratios_within: Annotated[float, Field(ge=1)] | None = None
    pairs_ordered: _Share | None = None


class Intervals(_Strict):
    """How far modelled ratios of two kernels of one task at one case are off (core/likelihood.py), fitted on `pairs`
    of `tasks`, those that the constants are fitted on. Logarithms, but for shares and factors.

    `half` is a part of a call, `more` what is added by means. `reaches` by their shares are multiples of the reach of
    nine of ten. `unlike` is how much further ratios are off for kernels with a means that no fitted kernel has: the
    worst of the means, each left out of a fit. `by_data_sheet` is the same for a GPU that is modelled by its data
    sheet: the H200, had nobody measured anything on it.
    """

    gpu: str
    date: str
    source: str
    tasks: Annotated[int, Field(gt=0)]
    pairs: Annotated[int, Field(gt=0)]
    floor: _Positive
    of_difference: Annotated[float, Field(ge=0)]
    of_means: Annotated[float, Field(ge=0)]
    reaches: dict[_Share, _Positive]
    known_means: tuple[str, ...]
    half: Annotated[float, Field(gt=0)] = math.inf
    more: dict[str, _Positive] = {}
    unlike: Annotated[float, Field(ge=1)]
    by_data_sheet: Annotated[float, Field(ge=1)]

    def errors(self, *, assumed: bool = False) -> Errors:
        """For verdicts; `assumed` where the modelled GPU is not the one that was measured."""
        wider = self.by_data_sheet if assumed else 1.0
        in_order = sorted(self.reaches.items())
        return Errors(
            floor=self.floor * wider,
            of_difference=self.of_difference * wider,
            of_means=self.of_means * wider,
            shares=tuple(share for share, _ in in_order),
            reaches=tuple(reach for _, reach in in_order),
            known_means=self.known_means,
            unlike=self.unlike,
            assumed_of=self.gpu if assumed else "",
            half=self.half,
            more={name: reach * wider for name, reach in self.more.items()},
        )


class _File(_Strict):
    """As it is written."""

    version: Annotated[int, Field(gt=0)]
    constants: dict[str, Sourced]
    counting: dict[str, Sourced]
    known_error: KnownError | None = None
    intervals: Intervals | None = None


class Fitted(_Strict):
    """The file: the model's version, its constants and those of counting, and its error and intervals once it has been
    validated. `sourced` has units, ranges and sources of both kinds of constants by their names."""

    version: Annotated[int, Field(gt=0)]
    constants: Constants
    counting: Counting
    known_error: KnownError | None = None
    intervals: Intervals | None = None
    sourced: Annotated[dict[str, Sourced], Field(repr=False)]


def load(path: Path) -> Fitted:
    """Read a file of constants. Raises UsageError naming what is wrong."""
    fix = "Compare it with profiles/gpu_model.yaml of the package."
    try:
        read = _File.model_validate(yaml_text.load(path.read_text(encoding="utf-8")))
        return Fitted(
            version=read.version,
            constants=Constants.model_validate({name: each.value for name, each in read.constants.items()}),
            counting=counting.of({name: each.value for name, each in read.counting.items()}),
            known_error=read.known_error,
            intervals=read.intervals,
            sourced={**read.counting, **read.constants},
        )
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The model's constants {path} cannot be read: {yaml_text.why(error)}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The model's constants {path} are wrong at {where}: {first['msg']}.", fix) from error
    except ValueError as error:
        raise UsageError(f"The model's constants {path} are wrong at counting: {error}.", fix) from error


def place() -> Path:
    """Where the shipped constants are."""
    return resources.profiles() / "gpu_model.yaml"


@cache
def shipped() -> Fitted:
    """The constants that ship with the package."""
    return load(place())


def to_yaml(fitted: Fitted) -> str:
    """The file of `fitted`."""
    lines = [
        "# Constants of the model of the GPU (docs/gpu_model.md), as `python benchmarks/gpu_model.py fit` writes them,",
        "# and how far it is off, as `python benchmarks/gpu_model.py validate` writes it. Every constant has its unit,",
        "# its range and its source (cudamaster/core/sourced.py); what it means stands in cudamaster/modelling/",
        "# constants.py. All measurements are of an H200.",
        f"version: {fitted.version}",
        "constants:",
        *_lines(fitted, fitted.constants.model_dump()),
        "# What counting goes by (cudamaster/devices/cpu/counting.py): after a change all kernels are counted anew.",
        "counting:",
        *_lines(fitted, dataclasses.asdict(fitted.counting)),
    ]
    if fitted.known_error is not None:
        lines.append(yaml.safe_dump({"known_error": fitted.known_error.model_dump()}, sort_keys=False).rstrip())
    if fitted.intervals is not None:
        lines.append(
            "# Intervals of modelled speedups (core/likelihood.py), as `python benchmarks/gpu_model.py intervals`"
        )
        lines.append("# writes them.")
        found = fitted.intervals.model_dump(mode="json")
        lines.append(yaml.safe_dump({"intervals": found}, sort_keys=False, width=118).rstrip())
    return "\n".join(lines) + "\n"


def _lines(fitted: Fitted, values: Mapping[str, float]) -> Iterator[str]:
    for name, value in values.items():
        each = fitted.sourced[name]
        yield sourced.line(name, value, each.unit, each.source, each.range, each.by)
