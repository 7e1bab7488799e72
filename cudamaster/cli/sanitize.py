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
    from cudamaster.core.errors import DeviceError
    from cudamaster.core.values import Candidate
    from cudamaster.library import faults
    from cudamaster.library.subjects import choose_device, load_task

    card = load_task(task)
    one = options.precision_of(card, precision)
    code = read_kernel(file, card, one)
    chosen = choose_device(device)
    candidate = Candidate(card.name, one, code, chosen.default_command)
    doing = "looking for faults" if chosen.emulated else "running under compute-sanitizer"
    with working(f"{card.name} ({one}): {doing}", hidden=as_json):
        said = faults.sanitize(card, candidate, tool=tool, device=chosen)
    if as_json:
        print_json({"candidate": said.candidate, "clean": said.clean, "reports": said.reports})
    else:
        out = console()
        for report in said.reports:
            out.print(report.explain(code))
            # On the CPU device it finds more than its namesake: races in global memory, unwritten shared memory.
            if not report.clean and not chosen.emulated:
                out.print(f"({report.tool.value} finds {report.tool.finds})")
    failed = any(report.failure for report in said.reports)
    click.get_current_context().exit(1 if said.found else DeviceError.exit_code if failed else 0)
