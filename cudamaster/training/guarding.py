"""The guards of a contrastive run at work: leaps are looked at, and canaries are scored now and then."""

from __future__ import annotations

from cudamaster.core.errors import CanaryError
from cudamaster.core.values import Candidate, Findings, Hardware, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.protocol import Workbench
from cudamaster.training.benches import Gpus
from cudamaster.training.canaries import Canaries
from cudamaster.training.problems import Problem
from cudamaster.training.reward import Measured
from cudamaster.training.session import Session
from cudamaster.training.settings import Contrastive
from cudamaster.training.shown import wanted
from cudamaster.training.state import CANARIES, LEAPS
from cudamaster.training.tricks import TrickDatabase
from cudamaster.training.watching import Watch


class Guards:
    """The watch and the canaries of a run."""

    def __init__(self, session: Session, reviewer: Model | None) -> None:
        """Raises CanaryError for a run that a canary has stopped: the same command does not get past it."""
        settings = session.settings
        assert isinstance(settings, Contrastive)
        if found := [each for row in session.folder.rows(CANARIES) for each in row["earned"]]:
            raise CanaryError(
                f"Dishonest kernels have earned a reward in {session.folder.path}: {'; '.join(found)}.",
                "What it has learned is worth nothing: mend the harness, and begin again in another folder.",
            )
        self._session = session
        self._settings = settings
        tricks = settings.tricks or session.folder.path / "tricks.yaml"
        self._watch = Watch(settings.reward, TrickDatabase(tricks), reviewer, session.folder.path / LEAPS)
        self._benches: dict[tuple[str, str], tuple[_Kept, _Kept | None]] = {}
        self._canaries: dict[str, Canaries] = {}

    def looked_at(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, earned: Measured, best: float
    ) -> Measured:
        """The reward that counts. The judges have the turn: a leap is measured again."""
        if not earned.speedup:
            return earned
        here, elsewhere = self._of(problem, verdict.hardware.get("unit", ""))
        look = self._watch.look(
            candidate, problem.baseline, verdict, earned.speedup, best, workbench=here, elsewhere=elsewhere,
            cases=wanted(problem, self._settings.judge.cases),
        )  # fmt: skip
        if look is None:
            return earned
        why = "" if look.counts else f"{look.outcome.value}: {look.said or look.again_why or look.why}"
        return Measured(look.counts, why, earned.cases)

    def try_canaries(self, step: int) -> None:
        """Score some canaries of each task, if they are due.

        Raises CanaryError when one earns a reward, and BudgetSpent where there are too few evaluations left.
        """
        session, settings = self._session, self._settings
        every = settings.every.canaries
        if not every or not step or step % every or any(row["step"] == step for row in session.folder.rows(CANARIES)):
            return
        assert session.scoring is not None
        session.must_afford(settings.canaries * len(session.problems))
        for problem in session.problems:
            cases = wanted(problem, settings.judge.cases)
            made = self._canaries.get(problem.name) or Canaries(
                problem.card, problem.precision, problem.baseline, cases=cases
            )
            self._canaries[problem.name] = made
            some = made.some(step // every - 1, settings.canaries)
            asked = [session.scoring.canary(problem, each.candidate, step) for each in some]
            with session.turns.of_judges():
                verdicts = [each.result() for each in asked]
            earned = made.earned(verdicts, settings.reward)
            row = {
                "step": step,
                "task": problem.name,
                "kinds": [each.kind for each in some],
                "statuses": [verdict.status.value for verdict in verdicts],
                "earned": [str(each) for each in earned],
            }
            session.folder.append(CANARIES, row)
            made.must_earn_nothing(verdicts, settings.reward)

    def _of(self, problem: Problem, unit: str) -> tuple[_Kept, _Kept | None]:
        """Workbenches for a leap that was measured on a unit: one like it, and one on another GPU if there is one."""
        if (problem.name, unit) not in self._benches:
            assert self._session.scoring is not None
            benches = self._session.scoring.benches
            elsewhere = None
            if isinstance(benches, Gpus):
                elsewhere = benches.bench_besides(unit, problem.card, problem.precision)
            here = benches.bench(problem.card, problem.precision)
            self._benches[problem.name, unit] = (
                _Kept(here, problem, self._session),
                None if elsewhere is None else _Kept(elsewhere, problem, self._session),
            )
        return self._benches[problem.name, unit]


class _Kept:
    """A workbench for second measurements, whose verdicts are written down: they count in the budget, and once."""

    def __init__(self, bench: Workbench, problem: Problem, session: Session) -> None:
        self.card, self.precision, self.baseline = bench.card, bench.precision, bench.baseline
        self._bench = bench
        self._problem = problem
        self._session = session

    @property
    def hardware(self) -> Hardware:
        """The device in words and figures."""
        return self._bench.hardware

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """See strategies.protocol.Workbench."""
        scoring = self._session.scoring
        assert scoring is not None
        if (kept := scoring.kept(self._problem, candidate, "leap")) is not None:
            return kept
        verdict = self._bench.evaluate(candidate, to_beat=to_beat)
        scoring.keep(self._problem, candidate, verdict, "leap")
        return verdict

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """See strategies.protocol.Workbench."""
        return self._bench.findings(candidate, verdict)
