"""`cudamaster tasks`: the benchmark's tasks, or one card as a person wants to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, table
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Precision

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.tasks.cards import TaskCard
    from cudamaster.tasks.task_suites import TaskSuite


@click.command()
@click.argument("name", required=False)
@click.option(
    "--skeleton", is_flag=True, help="Print a kernel file for NAME to start from. It builds; its result is wrong."
)
@click.option(
    "--precision",
    type=click.Choice([each.value for each in Precision]),
    default="fp32",
    show_default="fp32, or the one that the task has",
    help="Element type of the skeleton.",
)
@options.of_suite
@options.of_hgemm
@options.as_json
def tasks(name: str | None, of: str | None, skeleton: bool, precision: str, as_json: bool) -> None:
    """List the tasks, or describe one: what its kernel gets, has to declare and has to compute, and at which sizes.

    Suites of your own tasks, in folders that CUDAMASTER_TASKS names and in your data folder, are listed after
    MSKernelBench.
    """
    from cudamaster.core.errors import CardError, UsageError
    from cudamaster.tasks import cards, finding, harness, hgemm, task_suites

    if of is not None and name is not None:
        raise UsageError("--suite lists a suite, and NAME describes one task.", "Give one of them.")
    if skeleton:
        if name is None:
            raise UsageError("--skeleton is for one task.", "Name it: `cudamaster tasks` lists them.")
        card = cards.load(name)
        one = options.precision_of(card, precision)
        text = harness.skeleton(card, one, finding.short(card.name, card.source))
        if as_json:
            print_json({"task": name, "precision": one, "skeleton": text})
        else:
            click.echo(text, nl=False)
        return
    if name is not None:
        _show(cards.load(name), as_json)
        return
    suites = task_suites.every() if of is None else (task_suites.named(of),)
    listed, unusable = [], []
    for suite in suites:
        if not hgemm.is_meant(suite.name):  # which has thousands, all alike
            for each in suite.sources:
                try:
                    listed.append(cards.load(each))
                except CardError as error:
                    unusable.append(error)
    if as_json:
        products = suites[0].tasks if of is not None and hgemm.is_meant(suites[0].name) else ()
        print_json(
            {
                **_by_key(listed),
                **{name: {"name": name, "suite": suites[0].name, "of": suites[0].name} for name in products},
            }
        )
    else:
        _print(suites, listed, all_of_them=of is None)
    _leave_out(unusable)


def _by_key(listed: Sequence[TaskCard]) -> dict[str, dict[str, object]]:
    """Tasks by their names; of a user's own, those that share one with another are listed by the cards' paths."""
    names = Counter(card.name for card in listed)
    return {card.name if card.shipped or names[card.name] == 1 else card.source: _fields(card) for card in listed}


def _fields(card: TaskCard) -> dict[str, object]:
    """A task as JSON lists it."""
    return {
        "name": card.name,
        "id": card.id,
        "suite": card.suite,
        "of": card.suite if card.shipped else str(card.folder),
        "title": card.title,
        "category": card.category,
        "timed_cases": sum(case.sweep for case in card.cases),
        "verification_cases": sum(not case.sweep for case in card.cases),
        "largest_footprint_bytes": _footprint(card),
    }


def _footprint(card: TaskCard) -> int:
    return max(card.footprint_bytes(case, card.precisions[0]) for case in card.cases)


def _print(suites: Sequence[TaskSuite], listed: Sequence[TaskCard], *, all_of_them: bool) -> None:
    """Tables of the tasks, suite by suite, and of the suites."""
    from cudamaster.tasks import cards, hgemm

    out = console()
    for suite in suites:
        own = [card for card in listed if card.suite == suite.name and card.folder == suite.folder]
        if suite.name == cards.MSKERNELBENCH:
            _list(out, own)
            timed_cases = sum(case.sweep for card in own for case in card.cases)
            out.print(
                f"{suite.name}: {len(own)} tasks, {timed_cases} timed cases in each precision. Timed cases are "
                "scored, the checked ones are further ones that have to be right; largest: all buffers of the largest "
                "case in fp32."
            )
        elif own:
            out.print(f"\n{suite.name}{f', {suite.title}' if suite.title else ''}, in {suite.folder}:")
            _list(out, own)
    if all_of_them:
        rows = [[each.name, str(len(each.tasks)), each.title, _place(each)] for each in suites]
        out.print("")
        out.print(table(["suite", "tasks", "title", "folder"], rows, right=["tasks"]))
    if any(hgemm.is_meant(each.name) for each in suites):
        out.print(
            "hgemm has a task for every shape; those of its grid are counted. hgemm --shape 4096x2048x512, say, is "
            f"named {hgemm.EXAMPLE}."
        )
    chosen = ("--precision", "bf16") if any(len(card.precisions) > 1 for card in listed) else ()
    click.echo(f"Next: {ourselves('tasks', 'NAME')}, or {ourselves('optimize', 'NAME', *chosen)}")


def _place(suite: TaskSuite) -> str:
    """Where a user's own suite is."""
    from cudamaster.core import resources

    return "" if suite.folder == resources.bench() else str(suite.folder)


def _list(out: Console, listed: Sequence[TaskCard]) -> None:
    rows = []
    in_categories = sorted(listed, key=lambda card: (card.category, card.id))
    for category, group in groupby(in_categories, lambda card: card.category):
        for k, card in enumerate(group):
            timed = sum(case.sweep for case in card.cases)
            rows.append(["" if k else category, card.name, str(timed), str(len(card.cases) - timed),
                         _size(_footprint(card))])  # fmt: skip
    columns = ["category", "task", "timed", "checked", "largest"]
    out.print(table(columns, rows, right=columns[2:]))


def _leave_out(unusable: Sequence[CudaMasterError]) -> None:
    """Name the cards that cannot be listed, and end with the code of the first."""
    for error in unusable:
        click.echo(f"error: {error}", err=True)
    if unusable:
        click.get_current_context().exit(unusable[0].exit_code)


def _number(count: float) -> str:
    """A count as a person writes it: 1280, 131 k, 68.7 G."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 10 * size or (count >= size > 1e3):
            return f"{count / size:.3g} {unit}"
    return f"{count:.4g}"


def _size(count: int) -> str:
    """Bytes with a unit, three significant digits."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"


def _of_gather(card: TaskCard, precision: Precision) -> str:
    """What the gathered bytes are, and how long they take on the GPU that is modelled; empty without them."""
    from cudamaster.modelling import gpu
    from cudamaster.workbench import floors

    if card.floor.gathered is None:
        return ""
    heaviest = max((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    modelled = gpu.load()
    sms, clock_mhz = modelled.figures.sms, modelled.figures.clock_mhz
    gather = floors.gather(card, heaviest, precision, floors.SHARED_BYTES_PER_CLOCK * sms * clock_mhz * 1e6)
    assert gather is not None
    return (
        " Gathered: what a call takes on the chip from places that an input names, if it takes it anew each time. That "
        f"is no part of the floor, and may take longer. An {modelled.name} ({sms:.0f} SMs, {clock_mhz:.0f} MHz) at "
        f"{heaviest.label.replace(',', ', ')} {gather.explain()}."
    )


def _show(card: TaskCard, as_json: bool) -> None:
    """Prints a card for whoever writes a kernel: what it computes, what to declare, and which sizes count."""
    from cudamaster.tasks import finding, truth
    from cudamaster.tasks.held_out import in_words

    if as_json:
        declarations = {precision.value: card.declaration(precision) for precision in card.precisions}
        print_json({**card.model_dump(mode="json"), "declarations": declarations, "hash": card.hash})
        return
    out = console()
    place = (
        f"of the suite {card.suite}"
        if card.family
        else f"task {card.id} of {card.suite}{'' if card.shipped else f', in {card.folder}'}"
    )
    out.print(f"{card.title} ({card.name}, {card.category}, {place})\n", style="bold")
    out.print(card.summary.strip())
    out.print(f"\n    {card.formula}\n")
    out.print("A kernel file defines one of these, and the kernels that it launches. Pointers are to device memory.\n")
    for precision in card.precisions:
        out.print(card.declaration(precision) + ";")
    for name in card.fixed:
        more = " and is not a parameter" if name in card.unpassed else ""
        out.print(f"{name} is always {card.sizes[name]}{more}.")
    out.print(
        table(
            ["parameter", "role", "elements", "meaning"],
            [[p.name, p.role, p.extent, p.meaning] for p in card.parameters],
        )
    )
    swept = list(dict.fromkeys(name for block in card.sweep for name in block))
    rows = []
    has_both = Precision.FP32 in card.precisions and Precision.BF16 in card.precisions
    shown = Precision.FP32 if has_both else card.precisions[0]
    for case in card.cases:
        if case.sweep:
            floor = card.floor_of(case, shown)
            rows.append([*(f"{case.values[name]:.12g}" for name in swept), _number(case.weight),
                         _size(floor["bytes_read"]), _size(floor["bytes_written"]),
                         _number(floor["operations"])])  # fmt: skip
            if (gathered := card.gathered_bytes(case, shown)) is not None:
                rows[-1].append(_size(gathered))
    # Long names break after an underscore, so that the numbers below them need not.
    in_fp32 = " in fp32; in bf16, elements of __nv_bfloat16 take half" if has_both else ""
    columns = [*(name.replace("_", "_\n") for name in swept), "weight T", "read", "written", "oper."]
    columns += ["gathered"] if card.floor.gathered is not None else []
    out.print(table(columns, rows, right=columns))
    out.print(
        "The timed cases. Weight T: what a size counts in P. Read and written: the least that a call has to"
        f"{in_fp32}. Operations: the fewest known.{_of_gather(card, shown)}\n"
    )
    verify = [case.label.replace(",", ", ") for case in card.cases if not case.sweep]
    out.print(f"Verification cases ({len(verify)}): {'; '.join(verify)}\n")
    out.print("Held-out cases, drawn afresh for every evaluation:")
    for kind, blocks in (("small", card.held_out), ("large", card.held_out_large)):
        for block in blocks:
            out.print(f"  {kind}: {in_words(block)}")
    out.print()
    for p in card.parameters:
        if p.is_written:
            out.print(f"{p.name}: {truth.bound(card, p)}")
            if p.exact_if is not None:
                out.print(f"{p.name}, in cases where {p.exact_if} is not 0: compared exactly.")
    last = ("--precision", card.precisions[-1].value) if len(card.precisions) > 1 else ()
    name = finding.short(card.name, card.source)
    start = ourselves("tasks", name, "--skeleton", *last)
    click.echo(f"\nNext: {start} > {card.name}.cu, or {ourselves('optimize', name, *last)}")
