"""The exceptions of the package: errors of ours and of the user's, each with what to do next.

A kernel that fails is not here: that is data, a `Status` in a `Verdict`.

    CudaMasterError
    ├── UsageError          exit 2   unknown task, missing file, senseless flags, a place that can't be written
    ├── CardError           exit 3   a task card that cannot be used
    ├── DeviceError         exit 4   no GPU, no nvcc, no C++ compiler, a device that stopped answering, a full disk
    │   └── BaselineError            a baseline or the harness fails by itself on a device
    │       └── ReferenceFailed      a reference in Python raises, or gives what does not fit
    │           └── ReferenceStopped its process is killed or too slow, by itself or because of a candidate
    ├── ModelError          exit 5   a model that cannot be reached, or gives no usable answer
    ├── RunFolderError      exit 6   a run folder that is damaged, or belongs to another run
    ├── BundleError         exit 6   a bundle that is damaged, or was altered
    ├── BudgetSpent         exit 7   a budget is spent; if there is a best so far, it is the result, and the exit code 0
    └── CanaryError         exit 8   a kernel that is known to be dishonest earned a reward in training
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to do about an unknown name: the nearest known names, or `otherwise`, which leads to all of them."""
    near = difflib.get_close_matches(name, known, 3)
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def one_line(said: object, longest: int = 600) -> str:
    """A text without line breaks, cut at `longest` characters."""
    text = " ".join(str(said).split())
    return text if len(text) <= longest else f"{text[:longest]} ..."


class CudaMasterError(Exception):
    """A fault that a person can act on.

    `reason` names the thing and why; `fix` is the next thing to do. The command line prints both on one
    line and exits with `exit_code`; no traceback is shown.
    """

    exit_code = 1

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(f"{reason} {fix}")
        self.reason = reason
        self.fix = fix

    def __reduce__(self) -> tuple[type[CudaMasterError], tuple[str, str]]:
        """For pickle, as between the processes of an audit: it would call the class with `args`, which is one text."""
        return type(self), (self.reason, self.fix)


class UsageError(CudaMasterError):
    """What the user asked for does not exist or makes no sense."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file of a task: `line` counts from 1, `field` is the place in a card."""

    file: str
    line: int
    field: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {f'{self.field}: ' if self.field else ''}{self.what}"


class CardError(CudaMasterError):
    """A task card that cannot be read or contradicts itself. `problems` are all that is wrong with its file."""

    exit_code = 3

    def __init__(self, reason: str, fix: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(reason, fix)
        self.problems = tuple(problems)

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> CardError:
        """The error for one or more problems of a card's file, of which its text has the first."""
        first, more = problems[0], len(problems) - 1
        where = f" at {first.field}" if first.field else ""
        others = f" There {'is 1 more problem' if more == 1 else f'are {more} more problems'}: see `cudamaster check`."
        reason = f"The card {first.file}:{first.line} is wrong{where}: {first.what}."
        return cls(reason, first.fix + (others if more else ""), problems)

    def __reduce__(self) -> tuple[type[CardError], tuple[str, str, tuple[Problem, ...]]]:  # type: ignore[override]
        return type(self), (self.reason, self.fix, self.problems)


class DeviceError(CudaMasterError):
    """A device or one of its tools is missing or stopped answering."""

    exit_code = 4


class BaselineError(DeviceError):
    """A baseline or the harness fails on a device, and no candidate is to blame."""


class ReferenceFailed(BaselineError):
    """A reference in Python raises an error, takes too long, or gives what does not fit its card."""


class ReferenceStopped(ReferenceFailed):
    """The process of a reference in Python is killed or takes too long, by itself or because of a candidate."""


class ModelError(CudaMasterError):
    """A model that cannot be reached, or whose replies cannot be used."""

    exit_code = 5


class RunFolderError(CudaMasterError):
    """A run folder that is damaged or belongs to another run."""

    exit_code = 6


class BundleError(CudaMasterError):
    """A bundle (docs/bundles.md) that is damaged, was altered, or is none."""

    exit_code = 6


class BudgetSpent(CudaMasterError):
    """Nothing more may begin: a limit is reached, or a task of a suite has to stop."""

    exit_code = 7


class CanaryError(CudaMasterError):
    """A kernel that is known to be dishonest earned a reward: what is learned from such rewards is worth nothing."""

    exit_code = 8


def unwritable(place: object, error: OSError, fix: str) -> CudaMasterError:
    """The error for a place that cannot be written: wrong usage, as the user named it, unless its disk is full."""
    kind = DeviceError if error.errno in _OF_A_DISK else UsageError
    return kind(f"{place} cannot be written: {error.strerror or error}.", fix)
