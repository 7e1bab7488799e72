"""Which faults does a kernel have that a right result can hide?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError, nearest
from cudamaster.core.values import Candidate
from cudamaster.faults.compute_sanitizer import SanitizerReport, Tool
from cudamaster.library.progress import Progress, telling
from cudamaster.library.subjects import choose_device, code_of, command_of, load_task, precision_for
from cudamaster.outside import client
from cudamaster.workbench.evaluation import Workbench

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.tasks.cards import TaskCard

ALL = "all"


@dataclass(frozen=True)
class Sanitized:
    """What each tool says of a candidate, whose id and code are here too."""

    candidate: str
    code: str
    reports: tuple[SanitizerReport, ...]

    @property
    def clean(self) -> bool:
        """Whether all tools ran to their end and found nothing."""
        return all(report.clean for report in self.reports)

    @property
    def found(self) -> bool:
        """Whether a tool found something. Neither this nor `clean` holds where one could not finish."""
        return any(report.findings for report in self.reports)


def sanitize(
    task: str | os.PathLike[str] | TaskCard,
    kernel: str | os.PathLike[str] | Candidate,
    *,
    precision: str | None = None,
    tool: str = ALL,
    command: str | None = None,
    device: str | Device = "auto",
    progress: Progress | None = None,
) -> Sanitized:
    """Run a kernel under compute-sanitizer at the small sizes of a task; on the CPU device, under its own checker.

    `tool` is "memcheck", "racecheck", "initcheck", "synccheck", or "all". The other arguments and errors are those of
    `evaluate`; a kernel that does not build is a UsageError, and a device without such a tool a DeviceError.
    """
    client.must_be_outside("A look for races and memory faults")
    if tool not in (ALL, *Tool):
        raise UsageError(f"There is no tool {tool!r}.", nearest(tool, Tool, f"Take {', '.join(Tool)} or {ALL}."))
    card = load_task(task)
    one = precision_for(card, precision, kernel)
    code = code_of(kernel, card, one)
    chosen = choose_device(device)
    candidate = Candidate(card.name, one, code, command_of(kernel, chosen, command))
    tools = tuple(Tool) if tool == ALL else (Tool(tool),)
    doing = "looking for faults" if chosen.emulated else f"running under {', '.join(tools)}"
    with telling(progress, f"{card.name} ({one})", doing):
        return Sanitized(candidate.id, code, Workbench(card, one, chosen).sanitize(candidate, tools))
