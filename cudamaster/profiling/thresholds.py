"""Thresholds, metric sets and metric names of the profile filter, read from profiles/thresholds.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Bottleneck

DURATION = "Duration"

Percent = Annotated[float, Field(ge=0, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Cutoffs(_Strict):
    """Above which percentage of peak a throughput counts as high."""

    compute: Percent
    dram: Percent
    memory: Percent


class Axes(_Strict):
    """Paper names of the three throughputs that decide the class."""

    compute: str
    dram: str
    memory: str


class Metric(_Strict):
    """One metric of the paper's table 6: Nsight Compute's name, its section there, its base unit, its meaning."""

    ncu: str = Field(pattern=r"^[a-z0-9_]+__[A-Za-z0-9_.]+$")
    section: str
    unit: str
    meaning: str = ""


class Thresholds(_Strict):
    """Everything that the filter uses. Metrics are keyed by their names in the paper."""

    thresholds: Cutoffs
    axes: Axes
    kept: Mapping[Bottleneck, tuple[str, ...]]
    metrics: Mapping[str, Metric]
    source: str = "paper"  # where the limits come from

    @model_validator(mode="after")
    def _complete(self) -> Thresholds:
        if missing := [kind.value for kind in Bottleneck if not self.kept.get(kind)]:
            raise ValueError(f"kept has no metrics for {', '.join(missing)}")
        if unknown := [name for name in self._named() if name not in self.metrics]:
            raise ValueError(f"metrics lacks {', '.join(unknown)}")
        names = [metric.ncu for metric in self.metrics.values()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"metrics names {', '.join(twice)} twice")
        return self

    def _named(self) -> tuple[str, ...]:
        kept = [name for names in self.kept.values() for name in names]
        return tuple(dict.fromkeys([DURATION, self.axes.compute, self.axes.dram, self.axes.memory, *kept]))

    @property
    def described(self) -> str:
        """The limits in words, for the record of a run."""
        limits = self.thresholds
        return f"compute {limits.compute:g} %, DRAM {limits.dram:g} %, memory {limits.memory:g} % ({self.source})"

    @property
    def throughputs(self) -> Mapping[str, str]:
        """Nsight Compute's names of the three throughputs, by axis: compute, dram, memory."""
        return {axis: self.metrics[name].ncu for axis, name in self.axes.model_dump().items()}

    @property
    def filtered(self) -> tuple[str, ...]:
        """Nsight Compute's names of what the filter may need: the class is known only after the run."""
        return tuple(self.metrics[name].ncu for name in self._named())

    @property
    def full(self) -> tuple[str, ...]:
        """Nsight Compute's names of all metrics of table 6."""
        return tuple(metric.ncu for metric in self.metrics.values())


def load(path: Path | None = None) -> Thresholds:
    """Thresholds from a file, by default the 30 % ones that ship with the package.

    A file that does not say where its limits come from is their source itself: they are not the paper's.
    Raises UsageError for a file that cannot be used.
    """
    source = None if path is None else path.name
    path = path or resources.profiles() / "thresholds.yaml"
    fix = "Compare it with profiles/thresholds.yaml of the package."
    try:
        found = Thresholds.model_validate(yaml_text.load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The thresholds {path} cannot be read: {yaml_text.why(error)}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The thresholds {path} are wrong at {where}: {first['msg']}.", fix) from error
    if source is None or "source" in found.model_fields_set:
        return found
    return found.model_copy(update={"source": source})


class Calibration(_Strict):
    """What `cudamaster calibrate` writes: the limits of one GPU, and what they were measured on."""

    gpu: str
    date: str
    driver: str
    toolkit: str
    kernels: int
    data: str
    thresholds: Cutoffs


def folder_name(gpu: str) -> str:
    """A GPU's name as a folder, e.g. nvidia_h200."""
    return re.sub(r"\W+", "_", gpu.lower()).strip("_")


def choose(wanted: str, gpu: str) -> Thresholds:
    """The filter with the limits that were asked for: "paper", "calibrated" for this GPU, or a file's.

    A calibration of the user's own goes before one that ships. Raises UsageError where there is none.
    """
    default = load()
    if wanted == "paper":
        return default
    if wanted != "calibrated":
        path = Path(wanted)
        return _with_limits(default, path) if _is_calibration(path) else load(path)
    for folder in (resources.calibrations(), resources.profiles()):
        if (path := folder / folder_name(gpu) / "thresholds.yaml").is_file():
            return _with_limits(default, path)
    raise UsageError(f"There are no thresholds for {gpu}.", "Run `cudamaster calibrate`, or use the paper's.")


def _is_calibration(path: Path) -> bool:
    try:
        content = yaml_text.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False  # which `load` says
    return isinstance(content, dict) and "gpu" in content


def calibration(path: Path) -> Calibration:
    """A file that `cudamaster calibrate` wrote. Raises UsageError."""
    try:
        return Calibration.model_validate(yaml_text.load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else " ".join(str(error).split())
        raise UsageError(
            f"The thresholds {path} cannot be used: {reason}.", "Make them again: `cudamaster calibrate`."
        ) from error


def _with_limits(default: Thresholds, path: Path) -> Thresholds:
    found = calibration(path)
    source = f"calibrated on {found.gpu}, {found.kernels} kernels, {found.date}"
    return default.model_copy(update={"thresholds": found.thresholds, "source": source})
