"""`cudamaster show`: a run read back for a person, round by round, in the terminal or as one HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import (
    cases_table,
    console,
    ourselves,
    print_json,
    print_to_copy,
    reach_of,
    say_speed,
    score_column,
    speed,
    styled,
    table,
    taken_in_a_word,
    why_incomplete,
)
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cudamaster.core.values import CaseVerdict, Verdict
    from cudamaster.models.metered import RoleUsage
    from cudamaster.runs.summary import AttemptSummary, ProfileSummary, RoundSummary, RunSummary

_DIFF_LINES = 20  # of an attempt; --round shows all
_WIDEST = 100  # prose; longer lines are hard to read
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="RUN")
@click.option("--round", "number", type=click.IntRange(1), metavar="N", help="Show this round alone, in full.")
@click.option("--diff", "with_diff", is_flag=True, help="Show what each attempt changed in the code [default].")
@click.option("--no-diff", "without_diff", is_flag=True, help="Leave the changes out.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the whole run as one HTML page.")
@options.as_json
def show(
    runs: tuple[Path, ...],
    number: int | None,
    with_diff: bool,
    without_diff: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Show what happened in RUN, a run folder: plans, code, errors, speeds, profiles and costs, round by round.

    A stopped or running run is shown as far as it got. For a suite's folder, shows how far each task is. Nothing in the
    folder changes.
    """
    from cudamaster.core.errors import RunFolderError, UsageError
    from cudamaster.runs.digest import json_of
    from cudamaster.runs.reading import read

    run = runs[0]
    if len(runs) > 1:  # a shell's pattern matches all runs of a task
        latest = max(runs, key=lambda path: path.stat().st_mtime if path.exists() else 0.0)
        raise UsageError(
            f"{len(runs)} runs were given, but only one can be shown at a time.",
            f"Name one of them; the latest is {ourselves('show', str(latest))}",
        )
    if (run / "suite.json").is_file():
        _show_suite(run, number, html, as_json=as_json)
        return
    diff = options.one_of({"diff": with_diff, "no-diff": without_diff}) != "no-diff"
    if inside := sorted(run.glob("*/run.json")) if not (run / "run.json").exists() else []:
        latest = max(inside, key=lambda path: path.stat().st_mtime).parent
        raise RunFolderError(
            f"{run} is not a run but a folder of {len(inside)} runs.",
            f"Name one of them; the latest is {ourselves('show', str(latest))}",
        )
    summary = read(run)
    if number is not None and number > len(summary.rounds):
        raise UsageError(
            f"{run} has no round {number}, it has {len(summary.rounds)}.",
            "Name one of these." if summary.rounds else "Leave out --round.",
        )
    if html is not None:
        _write_page(html, summary, run)
    shown = summary if number is None else replace(summary, rounds=(summary.rounds[number - 1],))
    if as_json:
        print_json(json_of(shown))
    elif html is not None:
        click.echo(f"Wrote {html}; a browser opens it, without a network.")
    else:
        _Printer(console(), diff=diff, whole=number is not None).print(shown, alone=number is not None)


def _show_suite(path: Path, number: int | None, html: Path | None, *, as_json: bool) -> None:
    from cudamaster.cli.suite_output import print_suite
    from cudamaster.core.errors import UsageError
    from cudamaster.suites import folder

    if number is not None or html is not None:
        fix = f"Name one of its runs, or write the page of all: {ourselves('report', str(path), '--html', 'FILE')}"
        raise UsageError(f"{path} is a suite, and --round and --html are for a run.", fix)
    suite = folder.read(path)
    if as_json:
        print_json(suite)
    else:
        print_suite(console(), suite, path)


def _write_page(file: Path, summary: RunSummary, run: Path) -> None:
    from cudamaster.core.errors import UsageError, unwritable
    from cudamaster.core.writing import write_text
    from cudamaster.view import pages

    if file.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{file} is in the run folder, which must not change.", "Name a file elsewhere with --html.")
    text = pages.run_page(summary)
    try:
        write_text(file, text)
    except OSError as error:
        raise unwritable(file, error, "Name another file with --html.") from error


class _Printer:
    """Prints a summary. `whole` shows each round in full."""

    def __init__(self, out: Console, *, diff: bool, whole: bool) -> None:
        self._out = out
        self._diff = diff
        self._whole = whole
        self._width = min(out.width, _WIDEST)

    def print(self, run: RunSummary, *, alone: bool) -> None:
        """The run, or with `alone` only that round."""
        self._head(run)
        if not alone:
            self._settings(run)
            self._overview(run)
        for finished in run.rounds:
            self._round(finished, run)
        self._out.print()
        if not alone:
            self._prose(f"Cost of the run: {cost(run.usage)}", 0)
        print_to_copy(self._out, f"Next: {_next(run, alone=alone)}")

    def _prose(self, text: str, indent: int, style: str = "", hang: int = 0) -> None:
        for paragraph in visible(text).split("\n"):
            # Long words stay whole: paths and commands are meant to be copied.
            filled = textwrap.fill(
                paragraph,
                self._width,
                initial_indent=" " * indent,
                subsequent_indent=" " * (indent + hang),
                break_long_words=False,
                break_on_hyphens=False,
            )
            self._out.print(filled, style=style)

    def _lines(self, text: str, indent: int, style: str = "") -> None:
        for line in visible(text).split("\n"):
            self._out.print(" " * indent + line, style=style)

    def _head(self, run: RunSummary) -> None:
        self._prose(f"{run.task} ({run.precision.value}): {outcome(run)}", 0, "bold")
        if run.stopped_at is not None:
            self._prose(f"Not finished: this is a run as far as it got. Last step: {run.stopped_at}", 0, "yellow")

    def _settings(self, run: RunSummary) -> None:
        from cudamaster.runs.digest import origin, sampling

        settings = run.settings
        names = sorted(set(settings.models.values()))
        models = (
            ", ".join(f"{role.value} {name}" for role, name in settings.models.items()) if len(names) > 1 else names[0]
        )
        rows = [
            ("Run", run.path),
            ("Device", run.hardware.name + (f"; times are {run.mark}" if run.mark else "")),
            ("Times", run.modelled.described if run.modelled is not None else None),
            ("Models", models + (" (built in, no language model)" if names == ["playbook"] else "")),
            ("Server", settings.base_url),
            ("Answers", origin(settings)),
            ("Options", sampling(settings)),
            ("Search", run.search),
            ("Profile", f"{settings.profile}, thresholds {settings.thresholds}"),
            ("Seed", settings.seed),
            ("Started", f"{run.started}, cudamaster {run.versions.get('cudamaster', 'of unknown version')}"),
        ]
        for name, value in rows:
            if value is not None:
                self._prose(f"{name + ':':<9}{value}", 0, hang=9)

    def _overview(self, run: RunSummary) -> None:
        baseline = run.baseline_verdict
        known = any(done.against is not None for done in run.rounds)
        rows: list[list[str | Text]] = []
        if baseline is not None:
            one = "1.00" if run.best is not None else "-"
            rows.append(["0", "baseline", styled(baseline.status), one, one, *([""] if known else [])])
        for done in run.rounds:
            status = styled(done.status) if done.status is not None else "-"
            last = done.attempts[-1].verdict if done.attempts else None
            reach = reach_of(last.speed if last is not None else None, mark=run.mark)
            score = "-" if done.score is None else f"{done.score:.2f}{reach}"
            row: list[str | Text] = [str(done.number), visible(done.title), status, score, f"{done.best_score:.2f}"]
            taken = [] if not known else [taken_in_a_word(accepted=done.accepted is True, unsure=done.unsure)]
            rows.append([*row, *taken])
        p = score_column(run.mark)
        if rows:
            columns = ["round", "idea", "status", p, "best", *(["taken"] if known else [])]
            self._out.print(table(columns, rows, right=["round", p, "best"]))
        if baseline is not None and run.best is not None:
            self._prose(f"Baseline: {baseline.detail}", 0)
        elif baseline is not None:
            self._verdict(baseline, 0, judged_before=False)
        if run.baseline_profile is not None:
            self._profile(run.baseline_profile, 2)

    def _round(self, done: RoundSummary, run: RunSummary) -> None:
        self._out.print()
        self._prose(f"Round {done.number}: {done.title}", 0, "bold")
        if done.plan is not None:
            self._prose(done.plan.text, 2)
        for attempt in done.attempts:
            self._attempt(attempt, done, run)
        if done.gave_up:
            self._prose("The Debug agent offered no fix.", 2, "yellow")
        for call in done.calls:
            if call.refused is not None:
                self._prose(
                    f"Reply {call.number}, of the {call.role.value} agent, could not be used: {call.refused}",
                    2,
                    "yellow",
                    2,
                )
                if self._whole and call.reply is not None:
                    self._lines(call.reply, 4)
        if done.profile is not None:
            self._profile(done.profile, 2)
        if done.accepted:
            accepted = done.attempts[-1].verdict if done.attempts else None
            reach = reach_of(accepted.speed if accepted is not None else None, mark=run.mark)
            self._prose(f"Accepted: the new best, P = {speed(done.score, mark=run.mark)}{reach}.", 2, "green")
        elif done.why is not None:
            last = done.attempts[-1].verdict if done.attempts else None
            why = f"it ends with {last.status}" if last is not None and done.why == last.detail else done.why
            self._prose(f"Not kept: {why}", 2, "yellow", 2)
        elif done.number == run.rounds[-1].number and run.stopped_at is not None:
            self._prose(f"The run stands here: {run.stopped_at}", 2, "yellow", 2)
        elif done.plan is None and run.note is not None:
            self._prose(run.note, 2)
        self._prose(f"Cost: {cost(done.usage)}; judging {done.judging_s:.1f} s", 2, hang=2)

    def _attempt(self, attempt: AttemptSummary, within: RoundSummary, run: RunSummary) -> None:
        if attempt.diagnosis is not None:
            self._prose(f"Debug try {attempt.debug_try}: {attempt.diagnosis.diagnosis}", 2, hang=2)
            self._prose(f"Fix: {attempt.diagnosis.fix}", 4, hang=2)
        source = "the baseline" if attempt.written_from == run.baseline else attempt.written_from
        self._prose(f"Kernel {attempt.candidate}, from {source}{change_of(attempt)}", 2, hang=2)
        if self._whole:
            self._prose(attempt.command, 4, hang=2)
        elif attempt.flags_added or attempt.flags_removed:
            self._prose(f"flags: {_flags(attempt)}", 4, hang=2)
        if self._diff and attempt.diff:
            self._show_diff(attempt.diff, within.number)
        if attempt.verdict is None:
            self._prose("not judged", 4, "yellow")
        else:
            self._verdict(attempt.verdict, within.number, judged_before=attempt.judged_before)

    def _show_diff(self, diff: str, number: int) -> None:
        lines = diff.split("\n")
        shown = lines if self._whole else lines[:_DIFF_LINES]
        for line in shown:
            self._lines(line, 4, _DIFF_STYLES.get(line[:1], "dim"))
        if len(shown) < len(lines):
            self._prose(f"({len(lines) - len(shown)} more lines of difference: --round {number})", 4, "dim")

    def _verdict(self, verdict: Verdict, number: int, *, judged_before: bool) -> None:
        from rich.text import Text

        from cudamaster.runs.digest import main_part

        again = " (judged in an earlier attempt)" if judged_before else ""
        score = ""
        if verdict.speed is not None:
            score = f", P = {say_speed(verdict.speed, mark=verdict.mark)}"
        elif verdict.score is not None:
            score = f", P = {speed(verdict.score, mark=verdict.mark)}"
        line = f"{verdict.status.value}{score}{again}: {visible(verdict.detail)}"
        filled = textwrap.fill(line, self._width, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
        shown = Text(filled)
        shown.stylize(styled(verdict.status).style, 2, 2 + len(verdict.status.value))
        self._out.print(shown)
        log = verdict.log.strip() if self._whole else main_part(verdict.log)
        if log and log != verdict.detail:
            self._lines(log, 4, "dim")
            left = len(verdict.log.strip().splitlines()) - len(log.splitlines())
            if left > 0:
                self._prose(f"({left} more lines of the log: --round {number})", 4, "dim")
        for tool, found in verdict.sanitizers.items():
            self._prose(f"{tool}: {found}", 4, hang=2)
        for note in verdict.notes:
            self._prose(f"note: {note}", 4, hang=2)
        if not verdict.complete:
            self._prose(f"Incomplete: cases of the sweep {why_incomplete(verdict.modelled)}.", 4, "yellow")
        if self._whole:
            self._cases(verdict)
        elif line := cases_line(verdict.cases):
            self._prose(line, 4, hang=2)

    def _cases(self, verdict: Verdict) -> None:
        shown = cases_table(verdict)
        if shown.row_count:
            self._out.print(shown)
        if more := len(verdict.cases) - shown.row_count:
            self._prose(f"{more} more cases, checked but not timed, are right.", 4)

    def _profile(self, profile: ProfileSummary, indent: int) -> None:
        from cudamaster.core.numerals import plain
        from cudamaster.runs.digest import breakdown_lines
        from cudamaster.runs.summary import change

        self._prose(f"Profile: {class_line(profile)}", indent, hang=2)
        if profile.breakdown:
            for line in breakdown_lines(profile.breakdown):
                self._prose(line, indent + 2, hang=2)
        for metric in profile.metrics:
            before = "" if metric.before is None else f"{plain(metric.before)} → "
            after = "not measured" if metric.after is None else plain(metric.after)
            unit = "" if metric.unit is None or metric.after is None else f" {metric.unit}"
            relative = "" if metric.relative is None else f" ({change(metric.relative)})"
            self._prose(f"{metric.name}: {before}{after}{unit}{relative}", indent + 2, hang=2)


def outcome(run: RunSummary) -> str:
    """State and result of a run in a few words."""
    best = run.best
    if best is None:
        return run.state.value
    score = speed(best.score, mark=run.mark)
    found = f"best P = {score}" if best.improved else "nothing beats the baseline"
    return f"{run.state.value}, {found}" + ("" if run.stopped_at is None else " so far")


def cost(usage: RoleUsage) -> str:
    """The cost of a run's model calls, on one line; unknown parts are named."""
    from cudamaster.runs.digest import of_them_kept

    if usage.calls == 0:
        return "no model was asked"
    tokens = (
        "tokens unknown"
        if usage.prompt_tokens is None or usage.completion_tokens is None
        else f"{usage.prompt_tokens}{of_them_kept(usage)} + {usage.completion_tokens} tokens"
    )
    dollars = "dollars unknown" if usage.dollars is None else f"${usage.dollars:.4f}"
    calls = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    return f"{calls}, {tokens}, {dollars}, {usage.seconds:.1f} s"


def cases_line(cases: Sequence[CaseVerdict]) -> str:
    """The timed cases on one line: how many, the smallest and the largest speedup, and what was skipped."""
    timed = [(case.speed.speedup, case.label) for case in cases if case.speed is not None]
    skipped = [case.label for case in cases if case.skipped and case.speed is None]
    modelled = [case for case in cases if case.modelled]
    not_run = sum(bool(case.skipped) for case in modelled)
    parts = []
    if timed:
        (low, at_low), (high, at_high) = min(timed), max(timed)
        reach = f"{low:.2f} at {at_low}" + (f" to {high:.2f} at {at_high}" if len(timed) > 1 else "")
        how = "timed" if not modelled else f"modelled, {not_run} of them not run" if not_run else "modelled"
        parts.append(f"{len(timed)} {how}: {reach}")
    if skipped:
        parts.append(f"{len(skipped)} skipped: {', '.join(skipped[:3])}{', ...' if len(skipped) > 3 else ''}")
    return f"cases: {'; '.join(parts)}" if parts else ""


def class_line(profile: ProfileSummary) -> str:
    """Class of the kernel, with the previous one if it changed, or why there is none."""
    if profile.bottleneck is None:
        return f"no class: {profile.note}"
    moved = profile.bottleneck_before is not None and profile.bottleneck_before is not profile.bottleneck
    before = f"{profile.bottleneck_before} → " if moved else ""
    share = "" if profile.time_share is None else f", {profile.time_share:.0%} of the time"
    marked = " (modelled)" if profile.modelled is not None else ""
    return f"{profile.kernel or 'kernel'}: {before}{profile.bottleneck}{marked}{share}"


def change_of(attempt: AttemptSummary) -> str:
    """How many lines an attempt changed."""
    if not attempt.diff:
        return " with the same code"
    return f" (+{attempt.lines_added} -{attempt.lines_removed} lines)"


def _flags(attempt: AttemptSummary) -> str:
    return ", ".join([*(f"+ {flag}" for flag in attempt.flags_added), *(f"- {flag}" for flag in attempt.flags_removed)])


def _next(run: RunSummary, *, alone: bool) -> str:
    """The command to try next."""
    from cudamaster.runs.record import read_manifest
    from cudamaster.tasks import finding

    if run.stopped_at is not None and run.state.value == "running":
        return ourselves("show", run.path) + " again, later"
    if run.best is None and run.baseline_verdict is not None and run.baseline_verdict.status.value != "correct":
        return ourselves("doctor")
    if run.stopped_at is not None:
        return ourselves("optimize", "--resume", run.path)
    if alone:
        return ourselves("show", run.path)
    settings, best = run.settings, run.best
    device = [] if settings.device == "auto" else ["--device", settings.device]
    if best is None or not best.improved:
        return ourselves("show", run.path, "--html", f"{Path(run.path).name}.html")
    task = finding.short(run.task, read_manifest(Path(run.path)).card)
    again = ["evaluate", task, str(Path(run.path) / "best.cu"), "--precision", run.precision.value, *device]
    return ourselves(*again, "--command", best.command)
