"""Verdicts of a training run on disk, each from the moment that it is there: nothing is judged twice.

The file is JSON lines, and several runs may share one, also at once: of two verdicts of one key the first counts, for
all. A line has a key, the run that paid for it, and the kernel with its verdict (kernels.JudgedKernel), so that
training sets can be made of it again. Only places in the file are kept in memory: verdicts have raw times.
"""

from __future__ import annotations

import fcntl
import json
import re
import threading
from pathlib import Path

from cudamaster.core.errors import RunFolderError, unwritable
from cudamaster.core.records import RecordError
from cudamaster.training.kernels import JudgedKernel

_HEAD = re.compile(rb'\{"key": "([0-9a-f]+)", "run": "([^"]*)", "kernel": ')
_FIX = "Remove that line, or begin with another file."
_AGAIN = "Lines are only added while a run has it open. Run the same command again."


class Verdicts:
    """The file of verdicts. `run` is the name of this run in it, and `paid` how many verdicts it has paid for."""

    def __init__(self, path: Path, run: str) -> None:
        """Raises RunFolderError for a line that is no verdict, UsageError and DeviceError as `unwritable` does."""
        self.path = path
        self.run = run
        self.paid = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._known = 0  # bytes of the file whose lines are in `_places`
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._read()
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise unwritable(path, error, "Name another file as judge.verdicts.") from error

    def __contains__(self, key: str) -> bool:
        return self._place(key) is not None

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> JudgedKernel | None:
        """The kernel of a key with its verdict. Raises RunFolderError for a line that is no such thing."""
        place = self._place(key)
        return None if place is None else self._at(key, *place)

    def add(self, key: str, kernel: JudgedKernel) -> JudgedKernel:
        """Write a verdict down, and return the one that counts: the first of the key, which may be another run's.

        Raises RunFolderError for a line of another run that is no verdict.
        """
        line = b'{"key": "%s", "run": "%s", "kernel": ' % (key.encode(), self.run.encode())
        line += json.dumps(kernel.to_json()).encode() + b"}\n"
        try:
            with self._lock:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                try:
                    self._end()
                    self._file.write(line)
                    self._file.flush()
                    self._read()
                finally:
                    fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise unwritable(self.path, error, "Make room, and run the same command again.") from error
        return self._at(key, *self._places[key])

    def _at(self, key: str, begin: int, length: int) -> JudgedKernel:
        with self._lock:
            self._file.seek(begin)
            line = self._file.read(length)
        if (head := _HEAD.match(line)) is None or head[1].decode() != key:
            raise RunFolderError(f"{self.path} was changed while it was read.", _AGAIN)
        try:
            return JudgedKernel.from_json(json.loads(line)["kernel"])
        except (ValueError, KeyError, RecordError) as error:
            raise RunFolderError(f"{self.path} has a verdict that cannot be read: {error}.", _FIX) from error

    def _end(self) -> None:
        """Go to the end of the file, after what a killed run left of a line is gone."""
        end = place = self._file.seek(0, 2)
        while place:
            self._file.seek(place - 1)
            if self._file.read(1) == b"\n":
                break
            place -= 1
        if place < end:
            self._file.truncate(place)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _place(self, key: str) -> tuple[int, int] | None:
        with self._lock:
            if key not in self._places:
                self._read()
            return self._places.get(key)

    def _read(self) -> None:
        """Take up the lines that are new. One without its end is being written, or was cut short by a kill."""
        # At its end first: a buffer may have what was cut since, and other lines stand there now.
        if self._file.seek(0, 2) < self._known:
            raise RunFolderError(f"{self.path} was changed while it was read: it is shorter.", _AGAIN)
        begin = self._file.seek(self._known)
        while (line := self._file.readline()).endswith(b"\n"):
            if (head := _HEAD.match(line)) is None:
                raise RunFolderError(f"{self.path} has a line that is no verdict: {line[:60]!r}.", _FIX)
            self._places.setdefault(head[1].decode(), (begin, len(line)))
            self.paid += head[2].decode() == self.run
            begin += len(line)
            self._known = begin
