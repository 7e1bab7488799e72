"""A search as it happens, printed step by step."""

from __future__ import annotations

import textwrap
from contextlib import ExitStack
from typing import TYPE_CHECKING

from cudamaster.cli.output import Waiting, print_to_copy, progress_of_cases, reach_of, speed, styled
from cudamaster.core.likelihood import in_percent
from cudamaster.strategies.protocol import Observer
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from cudamaster.agents.asking import ReplyMisfit
    from cudamaster.agents.debug import Diagnosis
    from cudamaster.core.values import Candidate, Findings, Plan, Role, Verdict
    from cudamaster.strategies.result import Round

_PLAN_LINES = 4


class SearchProgress(Observer):
    """Prints each step of a search as it happens; a spinner says what is being waited for."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._waiting: Status | None = None
        self._cases = ExitStack()

    def close(self) -> None:
        """Stop the spinner."""
        self._cases.close()
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def _wait(self, text: str) -> None:
        if self._waiting is None:
            self._waiting = self._out.status(text)
            self._waiting.start()
        self._waiting.update(Waiting(text))
        self._cases.close()

    def asking(self, role: Role, model: str) -> None:
        """Spin while a model answers."""
        self._wait(f"asking the {role.value} ({model})")

    def trying_again(self, role: Role, pause_s: float, why: str) -> None:
        """Say why there is a pause, and how long it is."""
        from cudamaster.strategies.protocol import asked_again

        self._out.print(f"  {asked_again(role, pause_s, why)}")

    def moved(self, why: str) -> None:
        """Say what is done again on another machine."""
        self._out.print(f"  {why}")

    def evaluating(self, candidate: Candidate) -> None:
        """Spin while a candidate is built and run."""
        self._wait(f"building, checking and timing {candidate.id}")
        self._cases.enter_context(progress_of_cases(f"kernel {candidate.id}"))

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """Report the measured baseline."""
        self._cases.close()
        self._out.print(f"Baseline: {verdict.detail}. {findings_line(findings)}")
        self._findings(findings)

    def round_started(self, number: int, rounds: int) -> None:
        """Open a round."""
        self._out.print(f"\nRound {number} of {rounds}", style="bold")

    def planned(self, number: int, plan: Plan) -> None:
        """Show the idea and the beginning of the scheme."""
        self._out.print(f"  plan: {plan.idea}")
        # Unwrapped text of a plan would be one long line.
        words = textwrap.wrap(visible(plan.text), min(self._out.width, 120) - 6)
        for line in [*words[:_PLAN_LINES], *(["..."] if len(words) > _PLAN_LINES else [])]:
            self._out.print(f"    {line}", style="dim")

    def without_command(self, number: int, misfit: ReplyMisfit) -> None:
        """Say why the default command is taken."""
        self._out.print(f"  note: {misfit} The default command is taken.")

    def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
        """Show the build command."""
        print_to_copy(self._out, f"  kernel {candidate.id}, {candidate.command}")

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        """Show the verdict."""
        self._cases.close()
        reach = reach_of(verdict.speed, mark=verdict.mark)
        score = f", P = {speed(verdict.score, mark=verdict.mark)}{reach}" if verdict.score is not None else ""
        seconds = verdict.seconds
        spent = f"{seconds.total:.1f} s"
        self._out.print("  ", styled(verdict.status), f"{score}: {verdict.detail} ({spent})", sep="")
        for note in verdict.notes:
            self._out.print(f"  note: {note}")

    def diagnosed(self, number: int, debug_try: int, diagnosis: Diagnosis) -> None:
        """Show the Debug agent's diagnosis of a failure."""
        self._out.print(f"  debug try {debug_try}: {diagnosis.diagnosis}")

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """Announce a new best."""
        reach = reach_of(verdict.speed, mark=verdict.mark)
        self._out.print(f"  new best: P = {speed(score, mark=verdict.mark)}{reach}", style="green")
        if findings.bottleneck is not None:
            self._aside(findings_line(findings))
        self._findings(findings)

    def _findings(self, findings: Findings) -> None:
        """Where the time goes according to the model of a GPU, and the metrics that the filter kept."""
        from cudamaster.runs.digest import breakdown_lines

        if findings.modelled is None or findings.bottleneck is None:
            return
        kept = ", ".join(f"{name} {value:.3g} {findings.units.get(name, '')}".rstrip()
                         for name, value in findings.metrics.items())  # fmt: skip
        for text in (*breakdown_lines(findings.breakdown), f"findings: {kept}" if kept else ""):
            self._aside(text)

    def _aside(self, text: str) -> None:
        for line in textwrap.wrap(text, min(self._out.width, 120) - 6, subsequent_indent="  "):
            self._out.print(f"    {line}", style="dim")

    def round_ended(self, finished: Round) -> None:
        """Say why a round has no result."""
        outcome = finished.outcome
        if not outcome.accepted:
            self._out.print(f"  not kept: {finished.why}", style="yellow" if outcome.unsure else "")
        elif outcome.against is not None and outcome.against.chance is not None:
            chance = in_percent(outcome.against.chance)
            self._out.print(f"  faster than the best before it with a chance of {chance}")

    def stopped(self, note: str) -> None:
        """Say why the search ends early."""
        self._out.print(f"  {note}")


def findings_line(findings: Findings) -> str:
    """The findings on one line: the class with the throughputs, or why there is none."""
    if findings.bottleneck is None:
        return f"No hardware profile: {findings.note}"
    share = f", {findings.time_share:.0%} of the time" if findings.time_share is not None else ""
    marked = " (modelled)" if findings.modelled is not None else ""
    return f"{findings.kernel}: {findings.bottleneck}{marked}{share}."
