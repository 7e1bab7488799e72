"""`cudamaster tasks`: the benchmark's tasks, or one card as a person wants to read it."""

from __future__ import annotations

from itertools import groupby

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, table


@click.command()
@click.argument("name", required=False)
@options.as_json
def tasks(name: str | None, as_json: bool) -> None:
    """List the tasks, or show the card of one."""
    from cudamaster import cards
    from cudamaster.values import Precision

    if name is not None:
        _show(cards.load(name), as_json)
        return
    loaded = [cards.load(each) for each in cards.names()]
    footprints = {card.name: max(card.footprint_bytes(case, Precision.FP32) for case in card.cases) for card in loaded}
    if as_json:
        print_json(
            {
                card.name: {
                    "id": card.id,
                    "title": card.title,
                    "category": card.category,
                    "timed_cases": sum(case.sweep for case in card.cases),
                    "verification_cases": sum(not case.sweep for case in card.cases),
                    "largest_footprint_bytes": footprints[card.name],
                }
                for card in loaded
            }
        )
        return
    rows = []
    for category, group in groupby(sorted(loaded, key=lambda card: (card.category, card.id)), lambda c: c.category):
        for card in group:
            timed = sum(case.sweep for case in card.cases)
            rows.append([category, card.name, card.title, str(timed), str(len(card.cases) - timed),
                         f"{footprints[card.name] / 2**20:.1f}"])  # fmt: skip
    columns = ["category", "task", "title", "timed", "checked", "largest, MiB"]
    console().print(table(columns, rows, right=columns[3:]))
    click.echo("Cases that are timed, further ones that are only checked, all buffers of the largest case in fp32.")
    click.echo(f"Next: {ourselves('tasks', 'NAME')}, or {ourselves('optimize', 'NAME', '--precision', 'bf16')}")


def _show(card: object, as_json: bool) -> None:
    from cudamaster.cards import TaskCard
    from cudamaster.values import Precision

    assert isinstance(card, TaskCard)
    if as_json:
        print_json({**card.model_dump(mode="json"), "hash": card.hash})
        return
    out = console()
    out.print(f"{card.title} ({card.name}, {card.category}, task {card.id} of 50)\n", style="bold")
    out.print(card.summary.strip())
    out.print(f"\n    {card.formula}\n")
    for precision in Precision:
        out.print(card.declaration(precision, optimized=False) + ";")
    out.print(
        table(
            ["parameter", "role", "elements", "meaning"],
            [[p.name, p.role, p.length or "", p.meaning] for p in card.parameters],
        )
    )
    rows = []
    for case in card.cases:
        if case.sweep:
            floor = card.floor_of(case, Precision.BF16)
            rows.append(
                [case.label, f"{case.weight:g}", *(f"{floor[key]:,}" for key in floor)],
            )
    columns = ["timed case", "weight T", "bytes read (bf16)", "bytes written", "operations"]
    out.print(table(columns, rows, right=columns[1:]))
    verify = [case.label for case in card.cases if not case.sweep]
    out.print(f"Verification cases ({len(verify)}): {'; '.join(verify)}\n")
    exact = [p.name for p in card.parameters if p.check == "exact"]
    out.print(
        f"{', '.join(exact)}: compared exactly."
        if exact
        else "Errors: each element against a double-precision reference, on the scale of the sum of the absolute\n"
        "terms that make it; bound: 4 times the baseline's own worst error or 4 ulps of fp32, plus 2 ulps of the\n"
        "result in its own type."
    )
