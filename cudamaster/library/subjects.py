"""Which task, precision, device and kernel a caller means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices import NAMES
from cudamaster.library.kernel_file import read_kernel, region_of

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.tasks.cards import TaskCard


def load_task(task: str | os.PathLike[str] | TaskCard) -> TaskCard:
    """The card of a task: what it computes, its parameters, its cases.

    `task` is a name, as `cudamaster tasks` lists them, or the path of a card (`.yaml`), which uses the baseline and the
    reference beside it. A card is returned as it is. Raises UsageError for an unknown task, and CardError for a card
    that cannot be used.
    """
    from cudamaster.tasks import cards

    return task if isinstance(task, cards.TaskCard) else cards.load(os.fspath(task))


def choose_device(device: str | Device = "auto") -> Device:
    """The device to build and run on: "cuda", "cpu", or "auto", which is a GPU if there is one and else the CPU.

    Every function takes such a name or the device itself, which is returned as it is. Raises UsageError for another
    name, and DeviceError for a device that is not there or has no cache to build in.
    """
    from cudamaster.devices.choose import choose

    if not isinstance(device, str):
        return device
    if device not in ("auto", *NAMES):
        raise UsageError(f"There is no device {device!r}.", f"Take auto, {' or '.join(NAMES)}.")
    return choose(device)


def precision_of(card: TaskCard, given: str | None = None) -> Precision:
    """The precision of a task that is meant: what was given, or without that fp32 or else the first that it has.

    Raises UsageError if the task does not exist in what was given.
    """
    if given is None:
        return Precision.FP32 if Precision.FP32 in card.precisions else card.precisions[0]
    if given in card.precisions:
        return Precision(given)
    there = " and ".join(card.precisions)
    fix = "Leave out --precision." if len(card.precisions) == 1 else f"Give --precision {card.precisions[0]}, say."
    raise UsageError(f"{card.name} is a task in {there}, not in {given}.", fix)


def code_of(kernel: str | os.PathLike[str] | Candidate, card: TaskCard, precision: Precision) -> str:
    """The code of a kernel: its text, what the file at a path holds, or that of a candidate.

    Raises UsageError for a file that cannot be read, a text that is a path, and a kernel of another task or precision.
    """
    if isinstance(kernel, Candidate):
        if (kernel.task, kernel.precision) != (card.name, precision):
            raise UsageError(
                f"The kernel {kernel.id} is one of {kernel.task} in {kernel.precision}, "
                f"not of {card.name} in {precision}.",
                "Give the task and precision that it is of.",
            )
        return kernel.code
    if not isinstance(kernel, str):
        return read_kernel(Path(kernel), card, precision)
    if "\n" not in kernel and kernel.endswith((".cu", ".cuh", ".txt")):
        raise UsageError(f"The kernel {kernel!r} is the name of a file, not its text.", f"Give Path({kernel!r}).")
    return region_of(kernel.encode("utf-8", "surrogatepass"), card, precision, "given as text")


def command_of(kernel: str | os.PathLike[str] | Candidate, device: Device, given: str | None = None) -> str:
    """The compile command of a kernel: the one given, a candidate's own, or the device's default."""
    own = kernel.command if isinstance(kernel, Candidate) else device.default_command
    return given or own


def precision_for(card: TaskCard, given: str | None, *kernels: object) -> Precision:
    """As `precision_of`; without a given one, that of the first candidate among the kernels."""
    own = next((kernel.precision for kernel in kernels if isinstance(kernel, Candidate)), None)
    return precision_of(card, own if given is None else given)
