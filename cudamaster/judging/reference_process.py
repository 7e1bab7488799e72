"""The command of the process in which a task's reference in Python runs, which the judge starts and asks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cudamaster.tasks.cards import TaskCard

SERVER = Path(__file__).with_name("reference_server.py")


def command(card: TaskCard) -> tuple[str, ...]:
    """The words of the command; none where the reference is in C++ or is the baseline.

    It is the interpreter that runs us, which finds the same modules as we do.
    """
    if card.truth != "python":
        return ()
    card.reference()  # raises CardError where there is none
    folders = [str(Path(folder).absolute()) for folder in sys.path if folder]
    return (sys.executable, "-I", str(SERVER), str(card.reference_path), json.dumps(folders))


def sources(card: TaskCard) -> tuple[str, ...]:
    """The texts of a reference in Python and of what runs it: verdicts depend on them, and nothing that is built."""
    return (card.reference(), SERVER.read_text(encoding="utf-8")) if card.truth == "python" else ()
