"""The command of an outside agent as a process: without a shell, in a folder of its own, and with a certain end."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.outside import keeper

_ENDS_WITHIN_S = 15.0  # of the keeper, which takes a few seconds at most


def resolved(command: str) -> str:
    """The command as it can be started in any folder: words that name existing files get their absolute paths.

    Raises UsageError for what is no command, and for a program that is not there.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"The agent's command {command!r} cannot be read: {error}.", "Close its quotes.") from error
    if not words:
        raise UsageError(
            "The strategy agent has no command.", "Give one with --agent-command, as 'python my_agent.py'."
        )
    if shutil.which(words[0]) is None:
        raise UsageError(f"There is no program {words[0]!r}.", "Give the agent's command as it works in a shell here.")
    return shlex.join([words[0] if "/" not in words[0] else _absolute(words[0]), *map(_absolute, words[1:])])


def name_of(command: str) -> str:
    """What the agent is called in records: the name of its program."""
    return Path(shlex.split(command)[0]).name


def _absolute(word: str) -> str:
    try:
        return str(Path(word).absolute()) if Path(word).is_file() else word
    except (OSError, ValueError):  # too long for a name, or none at all
        return word


class Program:
    """A command that was started. `words` are not looked at by any shell; what it prints is added to the file `log`."""

    def __init__(self, words: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._since = time.monotonic()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(keeper.__file__)), *words],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            raise DeviceError(f"The agent cannot be started: {error.strerror}.", "Make room, and try again.") from error

    @property
    def exit_code(self) -> int | None:
        """The command's exit code, 128 and more for a signal; None while it works."""
        return self._process.poll()

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._since

    def end(self, grace_s: float = 0.0) -> None:
        """End it and all that it started, after it had `grace_s` seconds to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
