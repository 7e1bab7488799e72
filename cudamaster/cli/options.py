"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from cudamaster import devices

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

precision: Decorator = click.option(
    "--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True, help="Element type."
)
device: Decorator = click.option(
    "--device",
    type=click.Choice(["auto", *devices.NAMES]),
    default="auto",
    show_default=True,
    help="Where to build and run; auto takes a GPU if there is one.",
)
seed: Decorator = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the inputs; by default a new one each time."
)
# Inputs of all calls are made before the first. With many more calls the harness runs out of memory or time, which
# looks like the kernel's fault; and 2^31 overflows to no calls at all.
MOST_CALLS = 10_000
MOST_JOBS = 256  # each is a thread

as_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")


class Number(click.FloatRange):
    """A number in a range. click's own check lets NaN pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; fails for NaN too."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class Group(click.Group):
    """A group whose help shows whole sentences for its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences, on as many lines as they need: click would cut them."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in commands if each is not None])


def one_of(flags: Mapping[str, bool]) -> str | None:
    """The name of the flag that was given, or None. Raises UsageError for two that contradict each other."""
    from cudamaster.core.errors import UsageError

    given = [name for name, there in flags.items() if there]
    if len(given) > 1:
        said = " and ".join(f"--{name}" for name in given)
        raise UsageError(f"{said} contradict each other.", "Give one of them.")
    return given[0] if given else None


def added(decorators: Sequence[Decorator], command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with options added, in their order in its help."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command
