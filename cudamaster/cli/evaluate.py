"""`cudamaster evaluate`: is this kernel right, and how fast is it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.kernel_file import read_kernel
from cudamaster.cli.output import about_times, cases_table, console, print_json, say_speed, styled

if TYPE_CHECKING:
    from cudamaster.values import Verdict


@click.command()
@click.argument("task")
@click.argument("file", type=click.Path(path_type=Path))
@options.precision
@options.device
@click.option("--command", help="Compile command, as an agent would give it; the device's default otherwise.")
@click.option(
    "--calls", type=click.IntRange(1, options.MOST_CALLS), help="Timed calls per case; the device's protocol otherwise."
)
@click.option("--check-only", is_flag=True, help="Run the verification cases alone and time nothing.")
@options.seed
@options.as_json
def evaluate(
    task: str,
    file: Path,
    precision: str,
    device: str,
    command: str | None,
    calls: int | None,
    check_only: bool,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check and time the kernel in FILE against the baseline of TASK.

    FILE holds what stands between the region markers of the harness: kernels ending in _kernel_optimized and
    one extern "C" wrapper (see `cudamaster tasks TASK`). Exits with 1 when the kernel is not correct.
    """
    from cudamaster import cards
    from cudamaster.devices.choose import choose
    from cudamaster.evaluation import Workbench
    from cudamaster.values import Candidate, Precision

    card = cards.load(task)
    code = read_kernel(file)
    chosen = choose(device)
    bench = Workbench(card, Precision(precision), chosen, seed=seed, calls=calls)
    candidate = Candidate(card.name, Precision(precision), code, command or chosen.default_command)
    out = console()
    if as_json:
        verdict = bench.evaluate(candidate, check_only=check_only)
        print_json(verdict)
    else:
        with out.status(f"{card.name} ({precision}): building and running on the {chosen.name} device"):
            verdict = bench.evaluate(candidate, check_only=check_only)
        out.print(styled(verdict.status), f": {verdict.detail}", sep="")
        if verdict.correct and not check_only:
            out.print(cases_table(verdict))
            left_out = "have no modelled time" if verdict.modelled is not None else "were skipped or have no time"
            complete = "" if verdict.complete else f", incomplete: cases {left_out}"
            said = "-" if verdict.speed is None else say_speed(verdict.speed, mark=verdict.mark)
            out.print(f"P = {said}{complete}{_empty_launch(verdict)}")
            for note in verdict.notes:
                out.print(f"note: {note}")
        elif verdict.log and verdict.log != verdict.detail:
            out.print(verdict.log)
        s = verdict.seconds
        modelling = f", modelling {s.modelling:.1f} s" if s.modelling else ""
        spent = (
            f"build {s.build:.1f} s, start {s.start:.1f} s, check {s.check:.1f} s, timing {s.timing:.1f} s{modelling}"
        )
        out.print(f"{spent}; seed {verdict.seed}")
        if verdict.emulated and verdict.correct and not check_only:
            out.print(about_times(verdict.modelled))
    click.get_current_context().exit(0 if verdict.correct else 1)


def _empty_launch(verdict: Verdict) -> str:
    """What no call can be faster than, measured in the same run."""
    import statistics

    measured = [case.empty_us for case in verdict.cases if case.empty_us is not None]
    if verdict.emulated or not measured:
        return ""
    return f"; a launch that does nothing takes {statistics.median(measured):.1f} µs here"
