"""What home and the nodes of a cluster say to each other. All of it is pickled."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudamaster.cluster.parcel import Parcel
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Hardware, Hold, Precision, ProfileMode
from cudamaster.devices.cuda import LocalGpu
from cudamaster.modelling.gpu import Gpu
from cudamaster.profiling.thresholds import Thresholds


@dataclass(frozen=True)
class Description:
    """What a keeper says about itself and its device. `cores` are those that it may use; `gpu` is None for no GPU."""

    program: str
    tools: str
    device: str
    unit: str
    hardware: Hardware
    default_command: str
    emulated: bool
    cores: int
    gpu: LocalGpu | None

    @property
    def name(self) -> str:
        """Name for --device."""
        return self.device


@dataclass(frozen=True)
class Job:
    """One search's task, and how its candidates are judged. `owner` is different for each search."""

    owner: str
    parcel: Parcel
    precision: Precision
    seed: int | None
    profile: ProfileMode
    thresholds: Thresholds
    modelled: Gpu | None


@dataclass(frozen=True)
class Work:
    """What is asked of a keeper: a method of its workbench or its name, with arguments."""

    what: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Said:
    """A line for people."""

    line: str


@dataclass(frozen=True)
class Built:
    """A build ended: the candidate's id, and the log."""

    candidate: str
    log: str


@dataclass(frozen=True)
class Guarded:
    """A candidate's source passed the guards, and is compiled."""


@dataclass(frozen=True)
class Held:
    """The device was held."""

    hold: Hold


@dataclass(frozen=True)
class Done:
    """The result: the last message."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """An error in place of a result: ours, of the system, or a fault of the program, whose `trace` is kept."""

    error: CudaMasterError | OSError | None
    trace: str = ""

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """What an exception comes to."""
        known = isinstance(error, CudaMasterError | OSError)
        return cls(error if known else None, "" if known else traceback.format_exc())  # type: ignore[arg-type]


Message = Said | Built | Guarded | Held | Done | Failed


class NodeFault(Exception):
    """A fault of the program on a node, with its traceback there."""


class FailedThere(Exception):
    """An error that was raised on a node, not at home, where it may be about another disk."""

    def __init__(self, error: CudaMasterError | OSError) -> None:
        super().__init__(str(error))
        self.error = error
