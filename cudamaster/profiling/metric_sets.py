"""Named sets of Nsight Compute metrics, and what a chip has of them.

A set is a YAML file: under `metrics` each metric's name with a list of stand-ins, the names to try on a chip that does
not list the metric itself; under `meanings`, if there is any, words for people. What a chip has is in the text of
`ncu --query-metrics --chip CHIP`, which lists base names: `dram__bytes_read` stands for `dram__bytes_read.sum` too.
It does not say whether a base name takes a certain suffix; only measuring shows that.

A metric that a chip lacks is absent. It is never zero, and nothing else goes under its name: a stand-in is shown under
its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import UsageError

SHIPPED = ("cudaforge24",)
METRIC_NAME = r"^[a-z0-9_]+__[A-Za-z0-9_.]+$"


MetricName = Annotated[str, StringConstraints(pattern=METRIC_NAME)]


class MetricSet(BaseModel):
    """Metrics by name, each with its stand-ins in the order in which they are tried; what some of them mean."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metrics: Annotated[Mapping[MetricName, tuple[MetricName, ...]], Field(min_length=1)]
    meanings: Mapping[MetricName, str] = Field(default_factory=dict)

    @property
    def asked(self) -> tuple[str, ...]:
        """All names and their stand-ins, to ask Nsight Compute for."""
        return tuple(name for metric, stand_ins in self.metrics.items() for name in (metric, *stand_ins))

    @model_validator(mode="after")
    def _consistent(self) -> MetricSet:
        names = [*self.metrics, *(name for stand_ins in self.metrics.values() for name in stand_ins)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} is there twice")
        if unknown := [name for name in self.meanings if name not in self.metrics]:
            raise ValueError(f"meanings has {', '.join(unknown)}, which metrics lacks")
        return self


@dataclass(frozen=True)
class Resolved:
    """What a chip has of a set: Nsight Compute's name by the set's name, and the set's names that it lacks."""

    names: Mapping[str, str]
    absent: tuple[str, ...]


def load(wanted: str) -> MetricSet:
    """A set that ships with the package, by its name, or one in a file, by its path.

    Raises UsageError for an unknown name and a file that cannot be used.
    """
    path = resources.profiles() / f"{wanted}.yaml" if wanted in SHIPPED else Path(wanted)
    if wanted not in SHIPPED and not path.suffix and not path.exists():
        raise UsageError(
            f"There is no metric set {wanted}.", f"Take {' or '.join(SHIPPED)}, or give the path of a .yaml file."
        )
    fix = "Compare it with profiles/cudaforge24.yaml of the package."
    try:
        return MetricSet.model_validate(yaml_text.load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"The metric set {path} cannot be read: {yaml_text.why(error)}.", fix) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"The metric set {path} is wrong at {where}: {first['msg']}.", fix) from error


def to_yaml(names: Sequence[str], comment: Sequence[str]) -> str:
    """The file of a set without stand-ins, with lines of comment at its head."""
    head = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    return "\n".join([*head, yaml.safe_dump({"metrics": {name: [] for name in names}}, sort_keys=False)])


def base_name(metric: str) -> str:
    """A metric's name without its suffixes: dram__bytes_read of dram__bytes_read.sum.per_second."""
    return metric.partition(".")[0]


def resolve(metrics: Mapping[str, Sequence[str]], measured: Collection[str]) -> Resolved:
    """Which of the names that were `measured` stand for metrics, given with their stand-ins. Keeps the order."""
    names: dict[str, str] = {}
    absent: list[str] = []
    for metric, stand_ins in metrics.items():
        if (name := next((name for name in (metric, *stand_ins) if name in measured), None)) is None:
            absent.append(metric)
        else:
            names[metric] = name
    return Resolved(names, tuple(absent))
