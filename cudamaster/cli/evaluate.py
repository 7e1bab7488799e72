"""`cudamaster evaluate`: is this kernel right, and how fast is it?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from cudamaster.cli import options
from cudamaster.cli.output import (
    about_times,
    cases_table,
    console,
    only_a_gpu,
    print_json,
    progress_of_cases,
    say_seconds,
    say_speed,
    seconds_since_start,
    styled,
    table,
    why_incomplete,
    working,
)
from cudamaster.library.kernel_file import read_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from cudamaster.core.values import Precision, Verdict
    from cudamaster.devices.protocol import Device
    from cudamaster.judging.paper_protocol import PaperScore
    from cudamaster.tasks.cards import TaskCard


@click.command()
@click.argument("task")
@click.argument("file", type=click.Path(path_type=Path))
@options.precision
@options.of_hgemm
@options.device
@click.option(
    "--command",
    help="Compile command, such as 'nvcc -O3 -c candidate.cu -o candidate.o'; the device's default otherwise.",
)
@click.option(
    "--calls", type=click.IntRange(1, options.MOST_CALLS), help="Timed calls per case; the device's protocol otherwise."
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="SIZES",
    help="Sizes to time in place of the task's own, such as rows=65536,K=512; give it several times. P is over them "
    "alone, and no measure of the benchmark.",
)
@click.option(
    "--check-only",
    is_flag=True,
    help="Time nothing: run the verification cases, on the CPU device also light ones for other kernels.",
)
@click.option(
    "--protocol",
    type=click.Choice(["default", "paper"]),
    default="default",
    help="paper: add a verdict for the timed sizes alone, and the paper's own measurement: calls back to back with "
    "warm caches, outputs within its absolute error of 1e-5.",
)
@options.seed
@options.as_json
def evaluate(
    task: str,
    file: Path,
    precision: str,
    device: str,
    command: str | None,
    calls: int | None,
    cases: tuple[str, ...],
    check_only: bool,
    protocol: str,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check and time the kernel in FILE against the baseline of TASK.

    FILE is a filled-in harness, or only what stands between its region markers: kernels and one extern "C" wrapper (see
    `cudamaster tasks TASK`). Exits with 1 if the kernel is not correct, even if it is correct at the listed sizes
    alone.
    """
    from cudamaster.outside import client

    if client.of_environment() is not None:
        if cases:
            client.must_be_outside("A choice of sizes")
        _submit(task, file, precision, device, command, calls, seed, check_only, protocol, as_json=as_json)
    from cudamaster.devices import smi

    if device != "cpu":
        smi.ahead()
    from cudamaster.core.errors import BaselineError, UsageError
    from cudamaster.core.records import to_json
    from cudamaster.core.values import Candidate
    from cudamaster.library import verdicts
    from cudamaster.library.subjects import choose_device, load_task
    from cudamaster.tasks.harness import must_be_kernel

    card = load_task(task)
    if cases:
        if check_only:
            raise UsageError("With --check-only nothing is timed.", "Leave out --check-only or --case.")
        card = _timed_at(card, cases)
    one = options.precision_of(card, precision)
    code = read_kernel(file, card, one)
    if protocol == "paper":
        must_be_kernel(card, one, code)
    chosen = choose_device(device)
    if protocol == "paper" and check_only:
        raise UsageError("With --check-only nothing is timed.", "Leave out --check-only or --protocol paper.")
    candidate = Candidate(card.name, one, code, command or chosen.default_command)
    out = console()
    paper = None

    def by_paper() -> PaperScore:
        return verdicts.evaluate_by_paper(card, candidate, device=chosen, calls=calls, seed=seed)

    name = f"{card.name} ({one})"
    with working(f"{name}: building and running on the {chosen.name} device", hidden=as_json), progress_of_cases(name):
        before = seconds_since_start()
        try:
            verdict = verdicts.evaluate(card, candidate, device=chosen, calls=calls, check_only=check_only, seed=seed)
        except BaselineError as error:
            if not cases:
                raise
            wanted = " ".join(f"--case {text}" for text in cases)
            fix = f"Leave out {wanted}: if it works then, these sizes do not go together. {error.fix}"
            raise type(error)(error.reason, fix) from error
    verdict = replace(verdict, seconds=replace(verdict.seconds, command=before))
    if as_json:
        if protocol == "paper":
            with progress_of_cases(name):
                paper = by_paper()
        more_fields = {} if paper is None else _paper_fields(paper)
        if cases:
            more_fields["timed_at"] = list(cases)
        print_json({**to_json(verdict), **more_fields} if more_fields else verdict)
    else:
        _show(out, verdict, timed=not check_only)
        if cases and verdict.correct:
            out.print("P is over the sizes of --case, and no measure of the benchmark.")
        if verdict.correct and (more := _of_floor(chosen, verdict, card, one)):
            out.print(more)
        if protocol == "paper":
            what = f"{name}: by the paper's protocol"
            with out.status(what), progress_of_cases(what):
                paper = by_paper()
            show_paper(out, paper)
            if chosen.emulated:
                out.print(f"The {chosen.name} device measures no times of its own, under any protocol.")
    right = verdict.correct and (paper is None or paper.correct)
    click.get_current_context().exit(0 if right else 1)


def _timed_at(card: TaskCard, cases: Sequence[str]) -> TaskCard:
    """The card with other timed sizes. Raises UsageError."""
    from cudamaster.core.errors import UsageError
    from cudamaster.making import wishes

    given = [(text, wishes.case("--case", text)) for text in cases]
    for position, (text, sizes) in enumerate(given):
        try:
            card.timed_at([sizes])
        except ValueError as error:
            names = ", ".join(name for name in card.sizes if name not in card.fixed)
            raise UsageError(f"--case {text}: {error}.", f"Sizes of {card.name} are {names}.") from error
        if any(sizes == other for _, other in given[:position]):
            raise UsageError(f"--case {text} is there twice, and would count twice in P.", "Leave one out.")
    return card.timed_at([sizes for _, sizes in given])


def _submit(
    task: str,
    file: Path,
    precision: str,
    device: str,
    command: str | None,
    calls: int | None,
    seed: int | None,
    check_only: bool,
    protocol: str,
    *,
    as_json: bool,
) -> NoReturn:
    """Have the kernel judged by the search that this command is inside of, as the search's agent."""
    from cudamaster.library import verdicts
    from cudamaster.outside import client

    if protocol == "paper":
        client.must_be_outside("The paper's protocol")
    given = precision if options.was_given("precision") else None
    with working(f"{task}: waiting for the verdict of the search", hidden=as_json):
        verdict = verdicts.evaluate(
            task, file, precision=given, device=device, command=command, calls=calls, check_only=check_only, seed=seed
        )
    if as_json:
        print_json(verdict)
    else:
        _show(console(), verdict, timed=True)
    click.get_current_context().exit(0 if verdict.correct else 1)


def _show(out: Console, verdict: Verdict, *, timed: bool) -> None:
    """A verdict for a person; `timed` says whether times were asked for."""
    timed = timed and verdict.correct
    out.print(styled(verdict.status), f": {verdict.detail}", sep="")
    if timed:
        out.print(cases_table(verdict))
        complete = "" if verdict.complete else f", incomplete: cases {why_incomplete(verdict.modelled)}"
        said = "-" if verdict.speed is None else say_speed(verdict.speed, mark=verdict.mark)
        out.print(f"P = {said}{complete}{_empty_launch(verdict)}")
    elif verdict.log and verdict.log != verdict.detail:
        out.print(verdict.log)
    for note in verdict.notes:
        out.print(f"note: {note}")
    seed = "" if verdict.seed is None else f"; seed {verdict.seed}"
    out.print(f"{say_seconds(verdict.seconds)}{seed}")
    if timed and verdict.emulated:
        only = verdict.modelled is not None and verdict.score is None
        out.print(only_a_gpu() if only else about_times(verdict.modelled))


def _of_floor(device: Device, verdict: Verdict, card: TaskCard, precision: Precision) -> str:
    """The floor of the heaviest case and what a call gathers beside it, where the card says so and a GPU was timed."""
    from cudamaster.workbench import floors

    limits = floors.limits(device) if any(case.floor_us for case in verdict.cases) else None
    return "" if limits is None else floors.explained(verdict, card, precision, limits)


def show_paper(out: Console, paper: PaperScore) -> None:
    """The paper's protocol, for a person."""
    from cudamaster.judging.paper_protocol import ALLOWED

    out.print("By the listed sizes alone: ", styled(paper.status), f": {paper.detail}", sep="")
    if paper.score is None:
        return
    rows: list[list[str | Text]] = [
        [case.label, f"{case.baseline_us:.1f} → {case.candidate_us:.1f}", f"{case.speedup:.2f}",
         f"{case.largest_difference:.1e}"]
        for case in paper.cases
    ]  # fmt: skip
    columns = ["case", "µs: baseline → candidate", "speedup", "largest difference"]
    out.print(table(columns, rows, right=columns[1:]))
    apart = sum(case.largest_difference > ALLOWED for case in paper.cases)
    limit = f"{ALLOWED:.0e}".replace("e-0", "e-")
    within = f"outputs are within {limit} of the baseline's" if paper.within else (
        f"outputs are further than {limit} from the baseline's at {apart} of {len(paper.cases)} sizes"
    )  # fmt: skip
    out.print(f"By the paper's protocol, calls back to back with warm caches: P = {paper.score:.2f}, {within}")


def _paper_fields(paper: PaperScore) -> dict[str, object]:
    from cudamaster.core.records import to_json

    fields: dict[str, object] = to_json(paper)
    return {
        "by_listed_sizes": {"correct": paper.correct, "status": paper.status.value, "detail": paper.detail},
        "by_paper": {"score": paper.score, "within": paper.within, **fields},
    }


def _empty_launch(verdict: Verdict) -> str:
    """The floor that no call can beat, measured in the same run."""
    import statistics

    measured = [case.empty_us for case in verdict.cases if case.empty_us is not None]
    if verdict.emulated or not measured:
        return ""
    return f"; an empty launch takes {statistics.median(measured):.1f} µs here"
