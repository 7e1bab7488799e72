"""`cudamaster baselines` and `cudamaster harness`: the benchmark without the agents."""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import options
from cudamaster.cli.kernel_file import read_kernel
from cudamaster.cli.output import console, print_json, styled


@click.command()
@click.argument("tasks", nargs=-1)
@click.option("--precision", type=click.Choice(["fp32", "bf16", "both"]), default="both", show_default=True)
@options.device
@options.seed
@options.as_json
def baselines(tasks: tuple[str, ...], precision: str, device: str, seed: int | None, as_json: bool) -> None:
    """Hold baselines against their double-precision references, on every case the device can run.

    Without TASKS, all of them. Exits with 1 when one fails.
    """
    from cudamaster import cards
    from cudamaster.devices.choose import choose
    from cudamaster.errors import BaselineError
    from cudamaster.evaluation import Workbench
    from cudamaster.values import Precision

    named = [cards.load(name) for name in tasks or cards.names()]  # all of them before the first one runs
    chosen = choose(device)
    out = console()
    precisions = list(Precision) if precision == "both" else [Precision(precision)]
    records: list[dict[str, object]] = []
    for card in named:
        for each in precisions:
            status, note, right, skipped = "correct", "", 0, 0
            try:
                judged = Workbench(card, each, chosen, seed=seed).check_baseline()
                skipped = sum(case.skipped is not None for case in judged.cases)
                right = len(judged.cases) - skipped
                note = "; ".join(f"{case.label} skipped: {case.skipped}" for case in judged.cases if case.skipped)
            except BaselineError as error:
                status, note = "wrong", error.reason
            records.append({"task": card.name, "precision": each.value, "status": status, "cases": right,
                            "skipped": skipped, "note": note})  # fmt: skip
            if not as_json:
                out.print(styled(status), f"  {card.name} {each.value}: {right} cases {note}", sep="")
    failed = [record for record in records if record["status"] != "correct"]
    if as_json:
        print_json({"device": chosen.name, "baselines": records})
    else:
        out.print(f"{len(records) - len(failed)} of {len(records)} baselines right on the {chosen.name} device")
    click.get_current_context().exit(1 if failed else 0)


@click.command()
@click.argument("task")
@options.precision
@click.option("--region", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Kernel to fill in.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; stdout by default.")
def harness(task: str, precision: str, region: Path | None, output: Path | None) -> None:
    """Print the test harness of TASK: one .cu with a region to fill in, built by the line in its head."""
    from cudamaster import cards
    from cudamaster.errors import UsageError
    from cudamaster.harness import render
    from cudamaster.values import Precision

    if output is not None and region is not None and output.exists() and output.samefile(region):
        raise UsageError(f"{output} holds your kernel.", "Write the harness to another file.")
    text = render(cards.load(task), Precision(precision), read_kernel(region) if region else None)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.", "Give another file with -o.") from error
    click.echo(f"Wrote {output}; the command that builds it is in its first lines.")
