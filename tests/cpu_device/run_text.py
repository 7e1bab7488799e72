"""Builds a program out of its text, and runs it on the CPU device."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_once import made_once

from cudamaster.core.values import content_hash
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran


def run_text(text: str, words: tuple[int, ...], temporary: pytest.TempPathFactory) -> Ran:
    """The outcome of a program with numbers as its arguments: it answers by its exit code.

    A text is compiled once in a session, with -O1, for most of these run for a tenth of the time that they are
    compiled.
    """
    device = CpuDevice()

    def build(folder: Path) -> None:
        compiled = device.compile(text, ["-O1"], "program", folder)
        assert compiled.object is not None, compiled.log
        linked = device.link([compiled.object], folder / "program")
        assert linked.object is not None, linked.log

    made = made_once(temporary, f"text-{content_hash(text)}", build)
    return device.execute([str(made / "program"), *map(str, words)], 120)
