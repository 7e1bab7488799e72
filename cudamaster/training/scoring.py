"""Judges samples while the model writes the next ones. Verdicts are on disk at once, and no text is judged twice."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cudamaster.cluster.program import program_hash
from cudamaster.core.errors import RunFolderError
from cudamaster.core.values import Candidate, Verdict, content_hash
from cudamaster.core.version import program
from cudamaster.devices.process import threads
from cudamaster.training.benches import Benches
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of, harness_of
from cudamaster.training.problems import Problem
from cudamaster.training.verdicts import Verdicts


@dataclass
class _Wanted:
    """A candidate that waits for a judge, and the key under which its verdict is to be written down."""

    problem: Problem
    candidate: Candidate
    key: str
    verdict: Future[Verdict] = field(default_factory=Future)


class Scoring:
    """A pool of judges. `submit` and go on; the future has the verdict, or the error of a device."""

    def __init__(self, benches: Benches, verdicts: Verdicts, executor: Executor, source: str) -> None:
        """`source` is what provenances name: the folder of the run."""
        self.benches = benches
        self.verdicts = verdicts
        self._executor = executor
        self._source = source
        self._harness = harness_of(program())
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._lock = threading.Lock()
        self._waiting: deque[_Wanted] = deque()
        self._under_way: dict[str, Future[Verdict]] = {}

    def key(self, problem: Problem, candidate: Candidate, occasion: str = "") -> str:
        """Hash of what a verdict is of: the candidate, its task, what measures it, and this program.

        The hash of a card is that of the card alone, so baseline and reference count by themselves.

        On an `occasion` of its own a kernel is judged again, once.
        """
        modelled = problem.hardware.modelled
        of = "" if modelled is None else f"{modelled.gpu} {modelled.version}"
        task = content_hash(problem.card.hash, problem.baseline.id, problem.card.reference())
        return content_hash(candidate.id, task, problem.hardware.name, of, program_hash(), occasion)

    def kept(self, problem: Problem, candidate: Candidate, occasion: str = "") -> Verdict | None:
        """The verdict of a candidate on disk. Raises RunFolderError where another kernel's stands in its place."""
        found = self.verdicts.get(self.key(problem, candidate, occasion))
        return None if found is None else self._of(candidate, found)

    def submit(self, problem: Problem, candidate: Candidate, occasion: str = "") -> Future[Verdict]:
        """The verdict of a candidate: the one on disk, the one that is on its way, or a new one."""
        key = self.key(problem, candidate, occasion)
        with self._lock:
            if key in self._under_way:
                return self._under_way[key]
        if (kept := self.kept(problem, candidate, occasion)) is not None:
            done: Future[Verdict] = Future()
            done.set_result(kept)
            return done
        wanted = _Wanted(problem, candidate, key)
        with self._lock:
            self._under_way[key] = wanted.verdict
            self._waiting.append(wanted)
        self._executor.submit(self._work)
        return wanted.verdict

    def canary(self, problem: Problem, candidate: Candidate, step: int) -> Future[Verdict]:
        """The verdict of this run's judge at a step: one of another run, which may share the file, proves nothing."""
        return self.submit(problem, candidate, f"canary {step} of {self.verdicts.run}")

    def _work(self) -> None:
        """Judge what waits longest, and as many of its problem as one judge should look at."""
        some = self._taken()
        if not some:
            return
        try:
            verdicts = self.benches.judge(some[0].problem, [wanted.candidate for wanted in some])
            # A run that goes on finds these, so they count now too: another run may have been the first to write one.
            verdicts = [
                self._keep(wanted.problem, wanted.candidate, verdict, wanted.key)
                for wanted, verdict in zip(some, verdicts, strict=True)
            ]
            for wanted in some:
                with self._lock:
                    self._under_way.pop(wanted.key, None)
        except BaseException as error:
            for wanted in some:
                if not wanted.verdict.done():
                    wanted.verdict.set_exception(error)
            return
        for wanted, verdict in zip(some, verdicts, strict=True):
            wanted.verdict.set_result(verdict)

    def keep(self, problem: Problem, candidate: Candidate, verdict: Verdict, occasion: str) -> None:
        """Write down a verdict that was got elsewhere: it was paid for too."""
        self._keep(problem, candidate, verdict, self.key(problem, candidate, occasion))

    def _keep(self, problem: Problem, candidate: Candidate, verdict: Verdict, key: str) -> Verdict:
        """Write a verdict down, and return the one that counts."""
        card, is_baseline = problem.card, candidate.id == problem.baseline.id
        provenance = Provenance(
            suite=card.suite,
            category=card.category,
            card_hash=card.hash,
            harness=self._harness,
            source=self._source,
            is_baseline=is_baseline,
            gpu=gpu_of(problem.hardware),
            started=self._started,
            author="" if is_baseline else "policy",
        )
        return self._of(candidate, self.verdicts.add(key, JudgedKernel(candidate, verdict, provenance)))

    def _of(self, candidate: Candidate, found: JudgedKernel) -> Verdict:
        """The verdict, if it is on this candidate."""
        if found.candidate.id != candidate.id:
            what = f"{self.verdicts.path} has the verdict on {found.candidate.id} where that on {candidate.id} belongs."
            raise RunFolderError(what, "Begin with another file of verdicts.")
        return found.verdict

    def _taken(self) -> list[_Wanted]:
        with self._lock:
            if not self._waiting:
                return []
            share = -(-len(self._waiting) // self.benches.workers)  # so that no judge is idle
            most = max(1, min(self.benches.together, share))
            first = self._waiting.popleft()
            alike = [one for one in self._waiting if one.problem.name == first.problem.name][: most - 1]
            for one in alike:
                self._waiting.remove(one)
            return [first, *alike]

    def drop(self) -> None:
        """Forget what waits."""
        with self._lock:
            self._waiting.clear()


@contextmanager
def scoring(benches: Benches, verdicts: Verdicts, source: str) -> Iterator[Scoring]:
    """A pool of judges, until the block is left; what they are at then is finished, unless it is interrupted."""
    try:
        with threads(benches.workers) as executor:
            pool = Scoring(benches, verdicts, executor, source)
            try:
                yield pool
            finally:
                pool.drop()
    finally:
        benches.close()
