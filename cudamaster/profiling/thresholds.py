"""Thresholds, metric sets and metric names of the profile filter, read from profiles/thresholds.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cudamaster import resources
from cudamaster.errors import UsageError
from cudamaster.values import Bottleneck

DURATION = "Duration"

Percent = Annotated[float, Field(ge=0, le=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Strict):
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
    """One metric of the paper's table 6: Nsight Compute's name, its section there, and its base unit."""

    ncu: str = Field(pattern=r"^[a-z0-9_]+__[A-Za-z0-9_.]+$")
    section: str
    unit: str


class Thresholds(_Strict):
    """All that the filter goes by. Metrics are keyed by their names in the paper."""

    thresholds: Limits
    axes: Axes
    kept: Mapping[Bottleneck, tuple[str, ...]]
    metrics: Mapping[str, Metric]

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
    def filtered(self) -> tuple[str, ...]:
        """Nsight Compute's names of what the filter may need: the class is known only after the run."""
        return tuple(self.metrics[name].ncu for name in self._named())

    @property
    def full(self) -> tuple[str, ...]:
        """Nsight Compute's names of all metrics of table 6."""
        return tuple(metric.ncu for metric in self.metrics.values())


def load(path: Path | None = None) -> Thresholds:
    """Thresholds from a file, by default the 30 % ones that ship with the package.

    Raises UsageError for a file that cannot be used.
    """
    path = path or resources.profiles() / "thresholds.yaml"
    fix = "Compare it with profiles/thresholds.yaml of the package."
    try:
        return Thresholds.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The thresholds {path} cannot be read: {' '.join(str(error).split())}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The thresholds {path} are wrong at {where}: {first['msg']}.", fix) from error
