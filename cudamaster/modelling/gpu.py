"""What the model knows of a GPU: figures of profiles/gpus/NAME.yaml, each with where it comes from.

Left out: what is the model's own and the same for every GPU (constants.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import UsageError
from cudamaster.profiling.launches import SmLimits

DEFAULT = "h200"
Source = Literal["measured", "data sheet", "architecture", "publication", "fitted", "assumed"]


@dataclass(frozen=True)
class Figures:
    """The figures of a GPU, in the units of their names; rates are of one SM and clock unless they say otherwise.

    Lanes are threads that a unit takes at once. `matrix_operations` are those of tensor instructions by mma.sync, a
    multiplication and an addition being two; `warpgroup_operations` those by wgmma of factors of 16 bits, None where a
    GPU has no wgmma, or nobody has given a figure. `l1_bytes` are those that L1 and shared memory divide among them.
    `atomic_sectors_per_clock` is what all of L2 does on different sectors, `same_address_per_clock` on one address.

    Cycles that a warp is held up: by a barrier of its block, with so much more for each warp of that, by one of the
    cluster, by one of the whole grid, by a wait for another block's shared memory (`remote_latency_cycles`), and by a
    fence of all memory, and by the answer of an atomic behind that (`ticket_cycles`). `remote_cycles` is what an SM
    takes for a warp's request to another block's shared memory, `start_cycles` what passes on an SM from the start of a
    block to that of the next. Where a file lacks one of these it is an H200's.

    Of a call: `empty_call_us` is one that launches an empty kernel, by the host's clock with the wait for its end,
    `empty_device_us` the device's part of it, `launch_host_us` what the host needs for one launch more, `gap_us` the
    device between two kernels, unless the second may start early. `memset_host_us` holds for copies on the device too.
    An allocation and its release take `alloc_us` each, `small_alloc_us` where the driver has a page at hand (up to
    1 MiB). `host_bytes_per_s` is what goes between host and device from memory that is not pinned,
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
    warpgroup_operations: float | None = None
    start_cycles: float = 156.0
    barrier_cycles: float = 16.5
    barrier_warp_cycles: float = 2.0
    cluster_barrier_cycles: float = 345.0
    cluster_barrier_warp_cycles: float = 9.0
    grid_barrier_cycles: float = 1900.0
    remote_latency_cycles: float = 280.0
    remote_cycles: float = 8.5
    fence_cycles: float = 500.0
    ticket_cycles: float = 440.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as the model sees it; `key` names its file, `sources` says where each figure comes from.

    `own` files are those of users: whatever name stands in one, nothing was measured of its figures here.
    """

    key: str
    name: str
    compute_capability: tuple[int, int]
    about: str
    figures: Figures
    sources: Mapping[str, Source]
    own: bool = False

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
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    source: Source


_NEEDED = {each.name: (_Figure, ...) for each in fields(Figures) if each.default is MISSING}
_OTHERS = {each.name: (_Figure | None, None) for each in fields(Figures) if each.default is not MISSING}
_ASSUMED: Mapping[str, Source] = {each.name: "assumed" for each in fields(Figures) if isinstance(each.default, float)}
_FIGURES: Any = create_model("_FIGURES", __base__=_Strict, **_NEEDED, **_OTHERS)  # type: ignore[call-overload]


_WARP = 32

# What can only be whole.
_COUNTS = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_bytes_per_sm", "reserved_shared_bytes")


class _File(_Strict):
    name: str
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d$")]
    about: str
    figures: _FIGURES


def known() -> tuple[str, ...]:
    """Names of the GPUs that ship with the package."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def load(wanted: str = DEFAULT) -> Gpu:
    """A GPU that ships with the package, by its name, or one in a file, by its path.

    Raises UsageError for an unknown name and for a file that cannot be used, naming the figure.
    """
    path = Path(wanted) if wanted.endswith(".yaml") else _folder() / f"{wanted}.yaml"
    if not path.is_file():
        raise UsageError(
            f"There are no figures of a GPU {wanted}.", f"Take {', '.join(known())}, or give the path of a .yaml file."
        )
    fix = "Compare it with profiles/gpus/h200.yaml of the package."
    try:
        content = yaml_text.load(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            why = "holds nothing" if content is None else "is no table of names and values"
            raise UsageError(f"The file of the GPU's figures {path} {why}.", fix)
        read = _File.model_validate(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The GPU's figures {path} cannot be read: {yaml_text.why(error)}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The GPU's figures {path} are wrong at {where}: {first['msg']}.", fix) from error
    if (part := next((name for name in _COUNTS if getattr(read.figures, name).value % 1), None)) is not None:
        raise UsageError(f"The GPU's figures {path} are wrong at figures.{part}.value: it is no whole number.", fix)
    if read.figures.threads_per_sm.value < _WARP:
        raise UsageError(
            f"The GPU's figures {path} are wrong at figures.threads_per_sm.value: no warp of 32 fits.", fix
        )
    major, minor = re.findall(r"\d+", read.compute_capability)
    given: dict[str, _Figure] = {
        name: figure for name in type(read.figures).model_fields if (figure := getattr(read.figures, name)) is not None
    }
    return Gpu(
        key=path.stem,
        name=read.name,
        compute_capability=(int(major), int(minor)),
        about=" ".join(read.about.split()),
        figures=Figures(**{name: figure.value for name, figure in given.items()}),
        sources={**_ASSUMED, **{name: figure.source for name, figure in given.items()}},
        own=wanted.endswith(".yaml"),
    )


def _folder() -> Path:
    return resources.profiles() / "gpus"
