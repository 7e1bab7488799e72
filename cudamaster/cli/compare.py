"""`cudamaster compare`: is one kernel faster than another?"""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import options
from cudamaster.cli.kernel_file import read_kernel
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

    On the CPU device, a model of a GPU gives the times. A difference within the model's known error is unsure; only a
    kernel compared with its own text is the same.
    """
    from cudamaster.core.values import Candidate
    from cudamaster.devices.choose import choose
    from cudamaster.tasks import cards
    from cudamaster.workbench.evaluation import Workbench

    card, chosen = cards.load(task), choose(device)
    one = options.precision_of(card, precision)
    bench = Workbench(card, one, chosen, seed=seed, calls=calls)
    codes = [read_kernel(file, card, one) for file in (first, second)]
    pair = [Candidate(card.name, one, code, command or chosen.default_command) for code in codes]
    out = console()
    name = f"{card.name} ({one})"
    doing = f"{name}: building and running both on the {chosen.name} device"
    with working(doing, hidden=as_json), progress_of_cases(name):
        verdicts = bench.compare(*pair)
    wrong = [(file, verdict) for file, verdict in zip((first, second), verdicts, strict=True) if not verdict.correct]
    speed = verdicts[1].speed
    if as_json:
        print_json({"first": verdicts[0], "second": verdicts[1]})
    elif wrong:
        for file, verdict in wrong:
            out.print(f"{file}: ", styled(verdict.status), f": {verdict.detail}", sep="")
        for note in wrong[0][1].notes:
            out.print(f"note: {note}")
    else:
        out.print(cases_table(verdicts[1], against="first"))
        for note in verdicts[1].notes:
            out.print(f"note: {note}")
        if speed is not None:
            out.print(f"{second} against {first}: {say_speed(speed, mark=verdicts[1].mark)}")
        else:
            why = verdicts[1].detail if verdicts[1].lacking else "both are correct, but none of their cases has a time"
            out.print(f"{second} against {first}: unsure, {why}")
        if verdicts[1].emulated:
            out.print(about_times(verdicts[1].modelled))
    click.get_current_context().exit(1 if wrong else EXIT_CODES[Change.UNSURE if speed is None else speed.change])
