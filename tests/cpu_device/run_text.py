"""Builds a program out of its text, and runs it on the CPU device."""

from __future__ import annotations

from pathlib import Path

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran


def run_text(text: str, words: tuple[int, ...], folder: Path, flags: tuple[str, ...] = ()) -> Ran:
    """The outcome of a program with numbers as its arguments: it answers by its exit code.

    With -O1, for most of these run for a tenth of the time that they are compiled.
    """
    device = CpuDevice()
    compiled = device.compile(text, ["-O1", *flags], "program", folder)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], folder / "program")
    assert linked.object is not None, linked.log
    return device.execute([str(linked.object), *map(str, words)], 120)
