"""`cudamaster sanitize`: what compute-sanitizer finds in a kernel; on the CPU device, what its own checker does."""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, working
from cudamaster.library.kernel_file import read_kernel


@click.command()
@click.argument("task")
@click.argument("file", type=click.Path(path_type=Path))
@options.precision
@options.of_hgemm
@options.device
@click.option(
    "--tool",
    type=click.Choice(["memcheck", "racecheck", "initcheck", "synccheck", "all"]),
    default="all",
    show_default=True,
    help="Which of compute-sanitizer's tools.",
)
@options.as_json
def sanitize(task: str, file: Path, precision: str, device: str, tool: str, as_json: bool) -> None:
    """Run the kernel in FILE under compute-sanitizer, at the small sizes that TASK is verified at.

    On the CPU device its own checker runs instead. Each finding appears under the tool that finds its kind on a GPU;
    nothing appears under synccheck. FILE is as for `cudamaster evaluate`.

    Exits with 1 if a tool finds something, and with 4 if one could not finish. racecheck's warnings, about threads of
    one warp, are shown but fail no kernel.
    """
    from cudamaster.outside import client

    client.must_be_outside("A look for races and memory faults")
    from cudamaster.core.errors import DeviceError
    from cudamaster.core.values import Candidate
    from cudamaster.devices.choose import choose
    from cudamaster.faults.compute_sanitizer import Tool
    from cudamaster.tasks import cards
    from cudamaster.workbench.evaluation import Workbench

    card = cards.load(task)
    one = options.precision_of(card, precision)
    code = read_kernel(file, card, one)
    chosen = choose(device)
    candidate = Candidate(card.name, one, code, chosen.default_command)
    bench = Workbench(card, one, chosen)
    tools = tuple(Tool) if tool == "all" else (Tool(tool),)
    doing = "looking for faults" if chosen.emulated else f"running under {', '.join(tools)}"
    with working(f"{card.name} ({one}): {doing}", hidden=as_json):
        reports = bench.sanitize(candidate, tools)
    if as_json:
        print_json({"candidate": candidate.id, "clean": all(report.clean for report in reports), "reports": reports})
    else:
        out = console()
        for report in reports:
            out.print(report.explain(code))
            # On the CPU device it finds more than its namesake: races in global memory, unwritten shared memory.
            if not report.clean and not chosen.emulated:
                out.print(f"({report.tool.value} finds {report.tool.finds})")
    found, failed = any(report.findings for report in reports), any(report.failure for report in reports)
    click.get_current_context().exit(1 if found else DeviceError.exit_code if failed else 0)
