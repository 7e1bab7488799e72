"""`cudamaster hgemm`: half-precision matrix products over a grid of shapes, ours beside NVIDIA's libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy, table, working

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.hgemm.table import Entry, Table
    from cudamaster.report.tables import Table as Shown
    from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

_PATH = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(cls=options.Group)
def hgemm() -> None:
    """Half-precision matrix products of a thousand shapes, ours beside NVIDIA's libraries."""


@hgemm.command()
@click.option("--shapes", "patterns", multiple=True, metavar="GLOB",
              help="Shapes as MxNxK, each side a number or *, e.g. 64x*x4096; repeatable.  [default: all]")  # fmt: skip
@click.option("--sample", type=click.IntRange(1), metavar="N", help="N of those shapes, spread over their sizes.")
@click.option("--accumulate", type=click.Choice(["fp32", "fp16", "both"]), default="both", show_default=True,
              help="The type that products are added up in.")  # fmt: skip
@click.option("--table", "place", type=_FILE, metavar="FILE",
              help="Where it is kept.  [default: runs/hgemm/GPU_closed.jsonl]")  # fmt: skip
@click.option("--candidates", type=click.IntRange(1), default=14, show_default=True,
              help="Members of the family that are measured for each shape and layout.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True,
              help="Most seconds for the times of one mode of a shape; short calls need less.")  # fmt: skip
@click.option("--warm-up", type=click.FloatRange(0), default=0.0, show_default=True,
              help="Seconds of calls before the times of each mode.")  # fmt: skip
@click.option("--whole-time", is_flag=True, help="Use the seconds up, however certain the ratios are before.")
@options.as_json
def tune(
    patterns: tuple[str, ...],
    sample: int | None,
    accumulate: str,
    place: Path | None,
    candidates: int,
    seconds: float,
    warm_up: float,
    whole_time: bool,
    as_json: bool,
) -> None:
    """Choose our kernel for each shape on this GPU, and measure it beside PyTorch, cuBLAS and cuBLASLt.

    A model of the GPU names the most promising members of the kernel family, and measurements choose among them. Each
    shape is in the table the moment it is measured; the same command goes on after it was stopped. Needs a Hopper GPU
    (sm_90), nvcc and cuBLAS.

    Exits with 1 if a shape could not be measured.
    """
    from cudamaster.cli.hgemm_progress import Progress
    from cudamaster.core.errors import DeviceError
    from cudamaster.devices.cuda import find_gpu
    from cudamaster.hgemm import tuning
    from cudamaster.tasks.hgemm import Accumulate

    if find_gpu() is None:
        raise DeviceError(
            "There is no GPU here: nvidia-smi shows none.",
            "Measure where there is a Hopper GPU (sm_90); `cudamaster hgemm rank` shows what the model expects.",
        )
    ways = tuple(Accumulate) if accumulate == "both" else (Accumulate(accumulate),)
    wanted = tuning.Wanted(_wanted_shapes(patterns, sample), ways, candidates, seconds, warm_up, whole_time)
    with Progress(console(), hidden=as_json) as progress:
        outcome = tuning.tune(wanted, place, progress)
    if as_json:
        failures = [{"shape": str(shape), "accumulate": way, "why": why} for shape, way, why in outcome.failures]
        print_json({"table": str(outcome.place), "entries": len(outcome.entries), "failures": failures,
                    "seconds": outcome.seconds})  # fmt: skip
    else:
        spent = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in outcome.seconds.items())
        console().print(f"Measured {len(outcome.entries)}, spent: {spent}")
        print_to_copy(console(), f"Next: {ourselves('hgemm', 'show', str(outcome.place))}")
    if outcome.failures:
        raise SystemExit(1)


def _wanted_shapes(patterns: tuple[str, ...], sample: int | None) -> list[Shape]:
    """The shapes of the grid that match, and those named outright."""
    from cudamaster.core.errors import UsageError
    from cudamaster.tasks import hgemm as products
    from cudamaster.tasks.hgemm import SIZES, Shape

    found: dict[Shape, None] = {}
    for pattern in patterns or ("*x*x*",):
        sides = pattern.split("x")
        if len(sides) != 3 or not all(side == "*" or side.isdecimal() for side in sides):
            raise UsageError(f"{pattern!r} names no shapes.", "Write M, N and K as numbers or *, e.g. 64x*x4096.")
        lists = [SIZES if side == "*" else (int(side),) for side in sides]
        for m in lists[0]:
            for n in lists[1]:
                for k in lists[2]:
                    shape = Shape(m, n, k)
                    shape.must_be_legal()
                    found[shape] = None
    return list(found) if sample is None else list(products.sample(list(found), sample))


@hgemm.command()
@click.argument("tables", nargs=-1, metavar="[TABLE...]", type=_PATH)
@click.option("--html", type=_FILE, metavar="FILE", required=True,
              help="Write the page there; it needs no network.")  # fmt: skip
def report(tables: tuple[Path, ...], html: Path) -> None:
    """Write what TABLE says as one HTML page: statistics, maps over the shapes, where a library wins, what was chosen.

    Several tables have to be of one GPU and one form. By default, those in runs/hgemm.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.core.writing import must_be_writable
    from cudamaster.hgemm import page
    from cudamaster.hgemm.table import SUFFIX, read_all

    fix = "Name another one with --html."
    if html.suffix == SUFFIX or any(table.exists() and html.exists() and html.samefile(table) for table in tables):
        raise UsageError(f"{html} is the name of a table, which the page would replace.", fix)
    must_be_writable(html, fix)
    found = read_all(tables)
    with working(f"Drawing {len(found.entries)} entries"):
        page.write(found, html)
    _notes(found)
    print_to_copy(console(), f"Wrote {html}; a browser opens it, without a network.")


@hgemm.command()
@click.argument("tables", nargs=-1, metavar="[TABLE...]", type=_PATH)
@click.option("--shape", "wanted", metavar="MxNxK",
              help="All about one shape: times of all contestants, ratios, what was chosen.")  # fmt: skip
@options.as_json
def show(tables: tuple[Path, ...], wanted: str | None, as_json: bool) -> None:
    """Show the statistics of TABLE, or one shape of it.

    Several tables have to be of one GPU and one form. By default, those in runs/hgemm.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.hgemm.statistics import statistics
    from cudamaster.hgemm.table import read_all
    from cudamaster.tasks.hgemm import parse_shape

    of = None if wanted is None else parse_shape(wanted)
    found = read_all(tables)
    if of is not None:
        entries = found.find(of)
        if not entries:
            raise UsageError(f"{of} is not in the table.", _others(found, of))
        if as_json:
            print_json({"headers": found.headers, "entries": entries, "notes": found.notes})
        else:
            _shape(console(), found, entries)
    elif as_json:
        print_json(
            {"headers": found.headers, "entries": len(found.entries), "statistics": statistics(found.entries),
             "notes": found.notes}
        )  # fmt: skip
    else:
        _statistics(console(), found)
    if not as_json:
        _notes(found)


def _of_product(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what says which product is meant; the command gets its shape, layout and accumulation."""

    @click.argument("shape", metavar="MxNxK")
    @click.option("--accumulate", type=click.Choice(["fp32", "fp16"]), default="fp32", show_default=True,
                  help="The type that products are added up in.")  # fmt: skip
    @click.option("--b-layout", type=click.Choice(["row", "column"]), default="column", show_default=True,
                  help="How B is stored.")  # fmt: skip
    @functools.wraps(command)
    def meant(*given: Any, shape: str, accumulate: str, b_layout: str, **more: Any) -> Any:
        from cudamaster.core.errors import UsageError
        from cudamaster.tasks.hgemm import Accumulate, Layout, is_name, parse_name, parse_shape

        if is_name(shape):
            task = parse_name(shape)
            stored = "row" if task.layout is Layout.NN else "column"
            options = f"--accumulate {task.accumulate.value} --b-layout {stored}"
            raise UsageError(f"{shape} is a task's name, and a shape is wanted.", f"Write {task.shape} {options}.")
        of = parse_shape(shape)
        of.must_be_legal()
        layout = Layout.NN if b_layout == "row" else Layout.TN
        return command(*given, shape=of, layout=layout, accumulate=Accumulate(accumulate), **more)

    return meant


@hgemm.command()
@_of_product
@click.option("--table", "place", type=_PATH, metavar="FILE",
              help="The table of measurements.  [default: those in runs/hgemm, if there are any]")  # fmt: skip
def kernel(shape: Shape, layout: Layout, accumulate: Accumulate, place: Path | None) -> None:
    """Print the source of our kernel for a product: the one that measurements chose, or else the model's first.

    Whose choice it is and how to compile it is said on stderr.
    """
    from cudamaster.families.render import FLAGS, render
    from cudamaster.hgemm.choosing import choose
    from cudamaster.tasks import hgemm as products

    found = choose(shape, layout, accumulate, place)
    click.echo(f"{products.name(shape, layout, accumulate)}: {found.config}", err=True)
    click.echo(f"chosen by {found.by}", err=True)
    click.echo(f"compile: nvcc -std=c++17 {FLAGS} -c kernel.cu; link with -lcuda", err=True)
    click.echo(render(found.config), nl=False)


@hgemm.command()
@_of_product
@click.option("--number", type=click.IntRange(1), default=10, show_default=True, help="Members to show.")
@options.as_json
def rank(shape: Shape, layout: Layout, accumulate: Accumulate, number: int, as_json: bool) -> None:
    """Show the members of our kernel family that the model finds most promising for a product, on an H100.

    With sums in fp16, members that sum in fp32 are among them: they are more exact, and may be as fast.
    """
    from cudamaster.families import model

    found = [(config, model.modelled(config, shape)) for config in model.ranked(layout, accumulate, shape)[:number]]
    if as_json:
        print_json([{"config": config, "modelled": of} for config, of in found])
        return
    columns = ("modelled µs", "sums", "configuration", "blocks", "waves", "most of it")
    rows = [
        (f"{of.microseconds:.2f}", config.accumulate.value, str(config), str(of.blocks), str(of.waves), of.bound.value)
        for config, of in found
    ]
    console().print(table(columns, rows, right=("modelled µs", "blocks", "waves")))


def _others(found: Table, of: Shape) -> str:
    """What to ask for instead of a shape that was not measured."""
    import math

    if not found.entries:
        return "It holds no shape yet."
    sides = [(of.m, of.n, of.k), *((each.shape.m, each.shape.n, each.shape.k) for each in found.entries)]
    logs = [[math.log2(side) for side in each] for each in sides]
    nearest = min(range(1, len(logs)), key=lambda at: math.dist(logs[0], logs[at]))
    return f"The nearest shape in it is {found.entries[nearest - 1].shape}."


def _statistics(out: Console, found: Table) -> None:
    from cudamaster.hgemm import words
    from cudamaster.hgemm.statistics import statistics, strongest

    shapes = len({entry.shape for entry in found.entries})
    out.print(f"{found.header.gpu}, {found.header.form.value} form: {shapes} shapes; {found.header.versions}")
    authority = strongest(found.entries)
    if authority is None:
        out.print("Nothing was compared with a library yet.")
        return
    every = statistics(found.entries)
    for sentence in words.headline(found, every, authority):
        out.print(sentence)
    for shown in words.statistics_tables(every):
        _table(out, shown)
    if (on_gpu := words.device_table(authority, found.entries)) is not None:
        _table(out, on_gpu)
    for line in words.failed_checks(found.entries):
        out.print(line, style="bold")
    out.print(
        "Libraries in the faster of their two layouts. Mean, median, std.: speedup t_ref / t - 1 over shapes; "
        "wins: shapes above 0; faster, slower, unsure: shapes by their own 95 % interval of t_ref / t."
    )


def _shape(out: Console, found: Table, entries: tuple[Entry, ...]) -> None:
    from cudamaster.hgemm import bounds, words
    from cudamaster.hgemm.table import Mode

    shape = entries[0].shape
    out.print(f"{shape} on {found.header.gpu}, {found.header.form.value} form: {shape.operations / 1e9:.4g} GFLOP, "
              f"{shape.bytes / 1e6:.4g} MB")  # fmt: skip
    limits = bounds.limits_of(found.header.gpu)
    if limits is not None:
        out.print(
            f"At least {words.microseconds(limits.tensor_us(shape))} µs at {limits.about.split(',')[0]}, and "
            f"{words.microseconds(limits.memory_us(shape))} µs for its bytes from memory."
        )
    for entry in entries:
        for mode in Mode:
            if mode in entry.times:
                _table(out, words.times_table(entry, mode))
        out.print(
            "Ratios are geometric means over calls with their 95 % intervals, of each library in its faster layout; "
            "error is the standard error of the mean."
        )
        for line in words.choice_lines(entry):
            out.print(line)
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in entry.seconds.items())
        out.print(f"Measured {entry.date}{': ' if parts else ''}{parts}")


def _table(out: Console, shown: Shown) -> None:
    out.print()
    out.print(shown.title, style="bold")
    out.print(table(shown.columns, shown.rows, right=shown.right))


def _notes(found: Table) -> None:
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
