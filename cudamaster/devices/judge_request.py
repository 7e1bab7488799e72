"""What a judge is asked, and the command line that says so (bench/include/mskb/options.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

LARGEST_FILE_BYTES = 1 << 30  # of a judge and of the processes that it starts
_LARGEST_SHARED_BYTES = 64 << 30


@dataclass(frozen=True)
class JudgeRequest:
    """Whose kernels a judge runs, at which cases, and what it does there. Where a figure is None, the judge chooses.

    `judge` is the judge's own command; `baseline`, `candidate` and `rival` are those of the workers, and `reference` is
    that of the process that the judge asks what outputs have to be. Of the cases that
    were built into the judge, `cases` run, and after them those of `labels`.
    """

    judge: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    rival: tuple[str, ...] = ()  # timed in the baseline's place
    reference: tuple[str, ...] = ()  # where it is in Python
    cases: Literal["all", "sweep", "verify", "none"] = "all"
    labels: tuple[str, ...] = ()
    seed: int | None = None
    calls: int | None = None  # timed per case; 0: cases are only checked
    sets: int | None = None  # of inputs, for each case
    warmups: int | None = None
    pairs: int | None = None  # of processes that take turns
    extra_seconds: float | None = None  # for further calls where times are noisy
    work_limit: float | None = None
    call_limit_s: float | None = None
    baseline_only: bool = False
    first_failure: bool = False
    paper: bool = False  # timed by the paper's protocol
    launches: bool = False  # instead, the candidate prints the launches of one call per case
    told: bool = False  # the same on a device that only emulates: kernels are not executed
    times_count: bool = True  # of timed calls; otherwise nobody needs a quiet device
    profiled_calls: int | None = None  # instead, a profiler sees so many calls
    batch: str | None = None  # file with the requests of several runs
    reversed_threads: bool = False  # on a device that can choose the order of threads
    others: tuple[str, ...] = ()  # options that only benchmarks and tests use

    @property
    def measures(self) -> bool:
        """Whether calls are timed or profiled, so that nothing else may use the device meanwhile."""
        timed = self.times_count and self.calls != 0 and not (self.launches or self.told)
        return self.profiled_calls is not None or timed

    @property
    def largest_file_bytes(self) -> int:
        """How large a file of the judge may get: one without a name holds the inputs of a reference in Python."""
        return _LARGEST_SHARED_BYTES if self.reference else LARGEST_FILE_BYTES

    @property
    def of_baseline(self) -> JudgeRequest:
        """The same without a candidate: nothing is timed."""
        return replace(self, candidate=(), rival=(), baseline_only=True, calls=0)

    @property
    def command(self) -> list[str]:
        """The judge's command line."""
        shared = [*_each("--baseline", self.baseline), *_each("--reference", self.reference)]
        return [*self.judge, *shared, *self.options]

    @property
    def options(self) -> list[str]:
        """The command line without what the runs of a batch share: the judge, the baseline's worker, the reference."""
        figures = {
            "--seed": self.seed,
            "--calls": self.calls,
            "--sets": self.sets,
            "--warmups": self.warmups,
            "--pairs": self.pairs,
            "--extra-seconds": self.extra_seconds,
            "--work-limit": self.work_limit,
            "--call-limit": self.call_limit_s,
            "--profile": self.profiled_calls,
            "--batch": self.batch,
        }
        flags = {
            "--baseline-only": self.baseline_only,
            "--first-failure": self.first_failure,
            "--paper": self.paper,
            "--launches": self.launches or self.told,
            "--told": self.told,
        }
        return [
            *_each("--candidate", self.candidate),
            *_each("--rival", self.rival),
            *("--cases", self.cases),
            *_each("--case", self.labels),
            *(word for option, value in figures.items() if value is not None for word in (option, str(value))),
            *(flag for flag, given in flags.items() if given),
            *self.others,
        ]


def _each(option: str, words: Sequence[str]) -> list[str]:
    return [each for word in words for each in (option, word)]
