"""`cudamaster compare`: is one kernel faster than another?"""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import options
from cudamaster.cli.output import (
    about_times,
    cases_table,
    console,
    print_json,
    progress_of_cases,
    say_speed,
    styled,
    working,
)
from cudamaster.core.speed import Change

EXIT_CODES = {Change.SAME: 0, Change.FASTER: 10, Change.SLOWER: 11, Change.UNSURE: 12}


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--task", required=True, help="Task that both kernels solve.")
@options.precision
@options.of_hgemm
@options.device
@click.option("--command", help="Compile command of both; the device's default otherwise.")
@click.option(
    "--calls", type=click.IntRange(2, options.MOST_CALLS), help="Timed calls per case; the device's protocol otherwise."
)
@options.seed
@options.as_json
def compare(
    first: Path,
    second: Path,
    task: str,
    precision: str,
    device: str,
    command: str | None,
    calls: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check both kernels, then time SECOND against FIRST, alternating on the same inputs.

    \b
    Exit codes, for scripts that guard a kernel's speed:
      0   same: these samples show no change beyond 1 % plus 0.5 µs
      10  SECOND is faster
      11  SECOND is slower
      12  unsure: too much noise, too few calls, or a case without a time on one or both sides
      1   one of them is not correct

    On the CPU device, a model of a GPU gives the times. SECOND is faster or slower where a chance of 90 % or more
    says so, else it is unsure. Only a kernel compared with its own text is the same.
    """
    from cudamaster.library import verdicts
    from cudamaster.library.subjects import choose_device, load_task

    card, chosen = load_task(task), choose_device(device)
    one = options.precision_of(card, precision)
    out = console()
    name = f"{card.name} ({one})"
    doing = f"{name}: building and running both on the {chosen.name} device"
    with working(doing, hidden=as_json), progress_of_cases(name):
        compared = verdicts.compare(
            card, first, second, precision=one, device=chosen, command=command, calls=calls, seed=seed
        )
    both = ((first, compared.first), (second, compared.second))
    wrong = [(file, verdict) for file, verdict in both if not verdict.correct]
    timed, speed = compared.second, compared.speed
    if as_json:
        print_json(compared)
    elif wrong:
        for file, verdict in wrong:
            out.print(f"{file}: ", styled(verdict.status), f": {verdict.detail}", sep="")
        for note in wrong[0][1].notes:
            out.print(f"note: {note}")
    else:
        out.print(cases_table(timed, against="first"))
        for note in timed.notes:
            out.print(f"note: {note}")
        if speed is not None:
            out.print(f"{second} against {first}: {say_speed(speed, mark=timed.mark)}")
        else:
            why = timed.detail if timed.lacking else "both are correct, but none of their cases has a time"
            out.print(f"{second} against {first}: unsure, {why}")
        if timed.emulated:
            out.print(about_times(timed.modelled))
    click.get_current_context().exit(1 if wrong else EXIT_CODES[compared.change])
