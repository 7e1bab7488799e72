"""`cudamaster check`: is a task's card right, and do its files fit it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import print_json

if TYPE_CHECKING:
    from cudamaster.build.card_check import Checked
    from cudamaster.tasks.cards import TaskCard


@click.command()
@click.argument("cards", nargs=-1, required=True, metavar="CARD...")
@options.as_json
def check(cards: tuple[str, ...], as_json: bool) -> None:
    """Check task cards and the files beside them, without building anything.

    CARD is the path of a card, the name of a task, or a folder of tasks, which means all its cards and those of
    folders of tasks in it. Each problem is a line with file, line number and what is wrong, and a line with what to do.
    Exits with 3 if a card has a problem.
    """
    from cudamaster.build import card_check
    from cudamaster.core.errors import CardError

    results = [card_check.check(one) for given in cards for one in card_check.named(given)]
    bad = [result for result in results if result.problems]
    if as_json:
        print_json({"cards": [_fields(result) for result in results], "bad": len(bad)})
    else:
        for result in results:
            _print(result)
        problems = sum(len(result.problems) for result in bad)
        what = f"{problems} problem{'s' * (problems != 1)} in {len(bad)} of them" if bad else "all right"
        click.echo(f"{len(results)} card{'s' * (len(results) != 1)}: {what}.")
    click.get_current_context().exit(CardError.exit_code if bad else 0)


def _print(result: Checked) -> None:
    for problem in result.problems:
        click.echo(problem)
        if problem.fix:
            click.echo(f"    {problem.fix}")
    if result.card is not None and not result.problems:
        click.echo(f"{result.card.name}: right. {_has(result.card)}.")


def _has(card: TaskCard) -> str:
    """What a card has, in a line."""
    counts = _counts(card)
    words = [f"{counts['timed_cases']} timed and {counts['verification_cases']} checked cases"]
    words += [f"{counts['buffers']} buffer{'s' * (counts['buffers'] != 1)}", " and ".join(card.precisions)]
    return f"{', '.join(words)}; suite {card.suite}"


def _counts(card: TaskCard) -> dict[str, int]:
    timed = sum(case.sweep for case in card.cases)
    return {
        "timed_cases": timed,
        "verification_cases": len(card.cases) - timed,
        "buffers": sum(p.length is not None for p in card.parameters),
    }


def _fields(result: Checked) -> dict[str, object]:
    card = result.card
    about = {} if card is None else {"task": card.name, "suite": card.suite, "precisions": card.precisions}
    counts = {} if card is None else _counts(card)
    return {"card": result.given, **about, **counts, "problems": result.problems}
