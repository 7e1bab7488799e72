"""Constants of the model that are the same for every GPU, and how far the model is off: profiles/gpu_model.yaml.

Constants are fitted on four fifths of the tasks, the error is that on the fifth held out (benchmarks/gpu_model.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import UsageError
from cudamaster.core.likelihood import Errors

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Constants(_Strict):
    """What the model multiplies counts by; cycles are those of an SM."""

    # Instructions of the GPU for one of integers that the host's build executes, and for a request to global memory
    # with its address. Arithmetic, branches and requests to shared memory are counted rightly.
    instruction_scale: _Positive
    instructions_of_request: _Positive = 1.0
    # What a warp executes beside that: parameters, its index, addresses, its end. Nsight Compute counts so many more
    # of simple kernels than the host's code has.
    instructions_beside: Annotated[float, Field(ge=0)]
    # Cycles from one instruction of a warp to its next that needs nothing of it, nobody else issuing; multiply-adds in
    # fp32 need one.
    cycles_per_instruction: _Positive
    # Loads of a warp that are on their way together.
    loads_in_flight: _Positive
    # From a launch's first block to its first request: its instructions and parameters come from memory.
    first_cycles: Annotated[float, Field(ge=0)] = 0.0
    # From a block's start to its first instruction, and from its last to the next block's start.
    block_cycles: _Positive
    # What a launch with atomics takes for the last of them.
    answer_cycles: Annotated[float, Field(ge=0)] = 0.0
    # L1 per wavefront of a request's data.
    wavefront_cycles: Annotated[float, Field(ge=0)] = 0.0
    # What a request that a warp waits for takes longer for each of its wavefronts but the first.
    wavefront_latency: Annotated[float, Field(ge=0)] = 0.0
    # Part of what L1 does for all warps of a block that each of them waits for.
    in_step: _Share = 0.0
    # Sectors of a load that L2 takes as long for as for a line of one, however few sectors of it are asked for; for a
    # sector that is stored, and besides for each of its lines.
    line_sectors: Annotated[float, Field(ge=1)] = 1.0
    stored_sectors: Annotated[float, Field(ge=1)] = 1.0
    stored_line_sectors: Annotated[float, Field(ge=0)] = 0.0
    # What L2 takes for a byte that a copy in bulk reads, of what it takes for one of a load.
    bulk_share: _Share = 1.0
    # Instructions of a function that is a subroutine on a GPU too.
    slow_instructions: _Positive
    # The exponent of the mean that joins the parts: 1 adds them up, infinity takes the largest.
    overlap: _Positive


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


class Fitted(_Strict):
    """The file: the model's version, its constants, and its error and intervals once it has been validated."""

    version: Annotated[int, Field(gt=0)]
    constants: Constants
    known_error: KnownError | None = None
    intervals: Intervals | None = None


def load(path: Path) -> Fitted:
    """Read a file of constants. Raises UsageError naming what is wrong."""
    fix = "Compare it with profiles/gpu_model.yaml of the package."
    try:
        return Fitted.model_validate(yaml_text.load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The model's constants {path} cannot be read: {yaml_text.why(error)}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The model's constants {path} are wrong at {where}: {first['msg']}.", fix) from error


def place() -> Path:
    """Where the shipped constants are."""
    return resources.profiles() / "gpu_model.yaml"


@cache
def shipped() -> Fitted:
    """The constants that ship with the package."""
    return load(place())


def to_yaml(fitted: Fitted, notes: Mapping[str, str]) -> str:
    """The file of `fitted`, with what each constant was allowed to be in `notes`."""
    lines = [
        "# Constants of the model of the GPU (docs/gpu_model.md), as `python benchmarks/gpu_model.py fit` writes them,",
        "# and how far it is off, as `python benchmarks/gpu_model.py validate` writes it.",
        f"version: {fitted.version}",
        "constants:",
    ]
    for name, value in fitted.constants.model_dump().items():
        note = f"  # {notes[name]}" if name in notes else ""
        lines.append(f"  {name}: {value:.4g}{note}")
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
