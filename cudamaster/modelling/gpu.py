"""What the model knows of a GPU: figures of profiles/gpus/NAME.yaml, each with where it comes from.

Left out: what is the model's own and the same for every GPU (constants.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import UsageError
from cudamaster.core.sourced import Source, Sourced
from cudamaster.profiling.launches import SmLimits

DEFAULT = "h200"


@dataclass(frozen=True)
class Figures:
    """The figures of a GPU; units stand in the files. Rates are of one SM and clock unless they say otherwise.

    Lanes are threads that a unit takes at once. `matrix_operations` are those of tensor instructions by mma.sync, a
    multiplication and an addition being two; `warpgroup_operations` those by wgmma of factors of 16 bits, None where a
    GPU has no wgmma, or nobody has given a figure. `l1_bytes` are those that L1 and shared memory divide among them.
    `atomic_sectors_per_clock` is what all of L2 does on different sectors, `same_address_per_clock` on one address.

    Cycles that a warp is held up: by a barrier of its block, with so much more for each warp of that, by one of the
    cluster, by one of the whole grid, by a wait for another block's shared memory (`remote_latency_cycles`), and by a
    fence of all memory, and by the answer of an atomic behind that (`ticket_cycles`). `remote_cycles` is what an SM
    takes for a warp's request to another block's shared memory, `start_cycles` what passes on an SM from the start of a
    block to that of the next. Where a file lacks one of these it is an H200's, and so are the next three
    and `small_alloc_bytes`.

    Operations on many lines that share slices of L2 take (lines / 32) ** `crowding_exponent` times as long as on 32 or
    fewer, and at most `crowded_atomics` times. `missed_line_cycles` is what a line that is asked for takes on the way
    to L2, where a sector that is sent takes one.

    Of a call: `empty_call_us` is one that launches an empty kernel, by the host's clock with the wait for its end,
    `empty_device_us` the device's part of it, `launch_host_us` what the host needs for one launch more, `gap_us` the
    device between two kernels, unless the second may start early. `memset_host_us` holds for copies on the device too.
    An allocation and its release take `alloc_us` each, `small_alloc_us` where the driver has a page at hand (up to
    `small_alloc_bytes`). `host_bytes_per_s` is what goes between host and device from memory that is not pinned,
    `host_instructions_per_us` what a core of the host executes.
    """

    sms: float
    clock_mhz: float
    schedulers: float
    fp32_lanes: float
    fp64_lanes: float
    integer_lanes: float
    special_lanes: float
    conversion_lanes: float
    shuffle_lanes: float
    matrix_operations: float
    threads_per_sm: float
    blocks_per_sm: float
    registers_per_sm: float
    shared_bytes_per_sm: float
    reserved_shared_bytes: float
    l1_bytes: float
    l2_bytes: float
    l2_bytes_per_s: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    copy_bytes_per_s: float
    l1_latency_cycles: float
    shared_latency_cycles: float
    l2_latency_cycles: float
    memory_latency_cycles: float
    atomic_sectors_per_clock: float
    same_address_per_clock: float
    empty_call_us: float
    empty_device_us: float
    launch_host_us: float
    gap_us: float
    memset_host_us: float
    memset_device_us: float
    small_alloc_us: float
    alloc_us: float
    synchronise_us: float
    host_bytes_per_s: float
    host_instructions_per_us: float
    start_cycles: float
    barrier_cycles: float
    barrier_warp_cycles: float
    cluster_barrier_cycles: float
    cluster_barrier_warp_cycles: float
    grid_barrier_cycles: float
    remote_latency_cycles: float
    remote_cycles: float
    fence_cycles: float
    ticket_cycles: float
    crowded_atomics: float
    crowding_exponent: float
    missed_line_cycles: float
    small_alloc_bytes: float
    warpgroup_operations: float | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU as the model sees it; `key` names its file, `sources` says where each figure comes from, and `sourced` has
    its unit and range too where the file has them.

    `own` files are those of users: whatever name stands in one, nothing was measured of its figures here.
    """

    key: str
    name: str
    compute_capability: tuple[int, int]
    about: str
    figures: Figures
    sources: Mapping[str, Source]
    own: bool = False
    sourced: Mapping[str, Sourced] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """The name beside modelled times, including the file's name if it is the user's own."""
        return f"{self.name} ({self.key}.yaml)" if self.own else self.name

    @property
    def limits(self) -> SmLimits:
        """What an SM holds, in the form that the calculation of occupancy takes."""
        figures = self.figures
        return SmLimits(
            compute_capability=self.compute_capability,
            sms=int(figures.sms),
            warp_size=_WARP,
            threads=int(figures.threads_per_sm),
            blocks=int(figures.blocks_per_sm),
            registers=int(figures.registers_per_sm),
            shared_bytes=int(figures.shared_bytes_per_sm),
            reserved_shared_bytes=int(figures.reserved_shared_bytes),
        )

    def microseconds(self, cycles: float) -> float:
        """Cycles of an SM as time."""
        return cycles / self.figures.clock_mhz

    def cycles(self, microseconds: float) -> float:
        """Time as cycles of an SM."""
        return microseconds * self.figures.clock_mhz


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class _Figure(_Strict):
    """As a user's own file may have it: those that `cudamaster limits --gpu-file` writes have no ranges."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    source: Source
    unit: str | None = None
    range: tuple[float, float] | None = None
    by: str = ""


# What a file may lack: it is the H200's then, or there is none.
_OF_H200 = frozenset({
    "start_cycles", "barrier_cycles", "barrier_warp_cycles", "cluster_barrier_cycles", "cluster_barrier_warp_cycles",
    "grid_barrier_cycles", "remote_latency_cycles", "remote_cycles", "fence_cycles", "ticket_cycles",
    "crowded_atomics", "crowding_exponent", "missed_line_cycles", "small_alloc_bytes",
})  # fmt: skip
_NAMES = tuple(each.name for each in fields(Figures))
_NEEDED = {name: (_Figure, ...) for name in _NAMES if name not in _OF_H200 and name != "warpgroup_operations"}
_OTHERS = {name: (_Figure | None, None) for name in _NAMES if name not in _NEEDED}
_FIGURES: Any = create_model("_FIGURES", __base__=_Strict, **_NEEDED, **_OTHERS)  # type: ignore[call-overload]


_WARP = 32

# What can only be whole.
_COUNTS = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_bytes_per_sm", "reserved_shared_bytes")


class _File(_Strict):
    name: str
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d$")]
    about: str
    figures: _FIGURES


def _within(figure: _Figure) -> bool:
    return figure.range is None or figure.range[0] <= figure.value <= figure.range[1]


def known() -> tuple[str, ...]:
    """Names of the GPUs that ship with the package."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def load(wanted: str = DEFAULT) -> Gpu:
    """A GPU that ships with the package, by its name, or one in a file, by its path.

    Raises UsageError for an unknown name and for a file that cannot be used, naming the figure.
    """
    own = wanted.endswith(".yaml")
    path = Path(wanted) if own else _folder() / f"{wanted}.yaml"
    if not path.is_file():
        raise UsageError(
            f"There are no figures of a GPU {wanted}.", f"Take {', '.join(known())}, or give the path of a .yaml file."
        )
    read = _read(path)
    given: dict[str, _Figure] = {
        name: figure for name in type(read.figures).model_fields if (figure := getattr(read.figures, name)) is not None
    }
    units = _units()
    for name, figure in given.items():
        if figure.unit is not None and figure.unit != units[name]:
            raise _wrong(path, f"figures.{name}.unit: it is {units[name]}")
    sourced: dict[str, Sourced] = {}
    for name, figure in given.items():
        # Of a copy that ships, a figure that is changed no longer is what its source says.
        if own and (figure.unit is None or figure.range is None or not figure.by or not _within(figure)):
            continue
        try:
            sourced[name] = Sourced.model_validate(figure.model_dump())
        except ValidationError as error:
            first = error.errors()[0]
            raise _wrong(path, f"{'.'.join(map(str, ('figures', name, *first['loc'])))}: {first['msg']}") from error
    lacking = {} if path == _folder() / f"{DEFAULT}.yaml" else _lacked(given)
    major, minor = re.findall(r"\d+", read.compute_capability)
    return Gpu(
        key=path.stem,
        name=read.name,
        compute_capability=(int(major), int(minor)),
        about=" ".join(read.about.split()),
        figures=Figures(**lacking, **{name: figure.value for name, figure in given.items()}),
        sources={**dict.fromkeys(lacking, "assumed"), **{name: figure.source for name, figure in given.items()}},
        own=own,
        sourced=sourced,
    )


_FIX = "Compare it with profiles/gpus/h200.yaml of the package."


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"The GPU's figures {path} are wrong at {what}.", _FIX)


def _read(path: Path) -> _File:
    try:
        content = yaml_text.load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            why = "holds nothing" if content is None else "is no table of names and values"
            raise UsageError(f"The file of the GPU's figures {path} {why}.", _FIX)
        read = _File.model_validate(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The GPU's figures {path} cannot be read: {yaml_text.why(error)}.", _FIX) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(path, f"{'.'.join(str(part) for part in first['loc']) or 'the file'}: {first['msg']}") from error
    if (part := next((name for name in _COUNTS if getattr(read.figures, name).value % 1), None)) is not None:
        raise _wrong(path, f"figures.{part}.value: it is no whole number")
    if read.figures.threads_per_sm.value < _WARP:
        raise _wrong(path, f"figures.threads_per_sm.value: no warp of {_WARP} fits")
    return read


def _lacked(given: Mapping[str, _Figure]) -> dict[str, float]:
    """What a file lacks of the figures that are the H200's then."""
    figures = load(DEFAULT).figures
    return {name: getattr(figures, name) for name in _NAMES if name in _OF_H200 and name not in given}


@cache
def _units() -> Mapping[str, str]:
    """The unit of each figure, which is the same for every GPU."""
    figures = _read(_folder() / f"{DEFAULT}.yaml").figures
    return {name: getattr(figures, name).unit or "" for name in _NAMES}


def unit(figure: str) -> str:
    """Of a figure of any GPU."""
    return _units()[figure]


def _folder() -> Path:
    return resources.profiles() / "gpus"
