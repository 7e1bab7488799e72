"""The folder of an outside agent, `agent/` in the run folder: what it reads, and the kernel that it edits.

    kernel.cu             the kernel to edit: at first the best so far; what the agent leaves there stays
    TASK.md               the task, the contract, the device, and how to be judged
    best.cu, findings.md  the best kernel so far, and what the profile says of it
    tried.md, tried/N.cu  what became of each submission, and its code
    .mcp.json             a server that judges, as agents that speak MCP read it
    bin/cudamaster        the program, in the version that judges; it comes first on the agent's PATH

Nothing here is read back but kernel.cu, as a kernel to be judged. The search writes and reads with the rights of its
user, which an agent may lack (many confine the commands that they run to their folder). So no link that the agent puts
here is followed, in whatever place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from cudamaster.agents import prompts
from cudamaster.core import resources
from cudamaster.core.errors import unwritable
from cudamaster.core.writing import read_in, write_in
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.text import SIZE_LIMIT, read_region
from cudamaster.models.protocol import Request
from cudamaster.outside.client import REFEREE
from cudamaster.outside.desk import Desk

KERNEL = "kernel.cu"


class Workspace:
    """The folder of one session. `tasks` are folders of a user's own tasks, which names are looked for in."""

    def __init__(self, path: Path, tasks: tuple[Path, ...] = ()) -> None:
        self.path = path.absolute()
        self._tasks = tasks

    def prepare(self, request: Request, desk: Desk, address: str, *, minutes: float, grace_s: float) -> None:
        """Write what the agent finds when it begins. Raises UsageError or DeviceError where it cannot be written."""
        system, user = (message.content for message in request.messages[:2])
        left = desk.total - len(desk.rounds)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write("bin/cudamaster", _program(), mode=0o755)
            self._write("TASK.md", prompts.render(
                "agent.folder.md.j2", system=system.rstrip(), user=user, task=request.facts["task"], left=left,
                rounds=desk.total, minutes=minutes, grace=grace_s, mcp=_speaks_mcp(),
            ))  # fmt: skip
            if _speaks_mcp():
                program = str(self.path / "bin" / "cudamaster")
                server = {"command": program, "args": ["mcp"], "env": {REFEREE: address}}
                # Other users of the machine cannot read the token.
                self._write(
                    ".mcp.json", json.dumps({"mcpServers": {"cudamaster": server}}, indent=1) + "\n", mode=0o600
                )
        except OSError as error:
            raise unwritable(self.path, error, "Make room or give access, then use --resume.") from error
        self.show(desk)
        if not os.path.lexists(self.path / KERNEL) and desk.best is not None:
            self._write(KERNEL, desk.best.code)

    def show(self, desk: Desk) -> None:
        """Write what was tried, and the best so far."""
        if desk.best is not None:
            self._write("best.cu", desk.best.code)
        if desk.findings is not None:
            self._write("findings.md", prompts.render("_profile.md.j2", findings=desk.findings))
        self._write("tried.md", prompts.render("_submissions.md.j2", history=[done.outcome for done in desk.rounds]))
        for done, code in zip(desk.rounds, desk.codes, strict=True):
            place = f"tried/{done.outcome.round}.cu"
            if code and not os.path.lexists(self.path / place):
                self._write(place, code)

    def kernel(self) -> str | None:
        """The text of kernel.cu; None if it is none that could be judged."""
        try:
            raw = read_in(self.path, KERNEL, SIZE_LIMIT + 1)
        except OSError:
            return None
        text = read_region(raw)
        return None if len(raw) > SIZE_LIMIT or isinstance(text, Refusal) or not text.strip() else text

    def environment(self, address: str) -> Mapping[str, str]:
        """That of the agent: the user's own, since the agent has keys of its own, with what it needs to be judged."""
        places = [os.environ.get(resources.TASKS, ""), *map(str, self._tasks)]
        return {
            **os.environ,
            REFEREE: address,
            "PATH": f"{self.path / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            resources.TASKS: ":".join(dict.fromkeys(place for place in places if place)),
        }

    def _write(self, name: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file of this folder or of one in it; the agent may have put anything there, which is its own loss."""
        spoilt = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
        with contextlib.suppress(*spoilt):
            write_in(self.path, name, text, mode=mode)


def _speaks_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None


def _program() -> str:
    """The program that judges, whatever else is on the PATH; -P keeps Python from importing the agent's own files."""
    place = shlex.quote(str(resources.package().parent))
    return (
        f"#!/bin/sh\nPYTHONPATH={place}${{PYTHONPATH:+:$PYTHONPATH}} "
        f'exec {shlex.quote(sys.executable)} -P -m cudamaster "$@"\n'
    )
