"""Inline PTX on the CPU device: asm statements of a text become C++ that does what they say (docs/ptx.md)."""

from __future__ import annotations

from cudamaster.devices.cpu.ptx.emit import NAMESPACE, emitted
from cudamaster.devices.cpu.ptx.macros import written_out
from cudamaster.devices.cpu.ptx.statements import PtxError, statements_in

__all__ = ["NAMESPACE", "PtxError", "translated"]


def translated(source: str) -> str:
    """The text with each asm statement as C++, in as many lines.

    Raises Unsupported for an instruction that this device cannot execute, PtxError for what ptxas would refuse.
    """
    source = written_out(source)
    parts, end = [], 0
    for statement in statements_in(source):
        replaced = source[statement.start : statement.end]
        lines = replaced.count("\n")
        in_macro = lines > 0 and replaced.count("\\\n") == lines
        parts += [source[end : statement.start], emitted(statement), (" \\\n" if in_macro else "\n") * lines]
        end = statement.end
    return "".join([*parts, source[end:]])
