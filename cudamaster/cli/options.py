"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cudamaster import devices
from cudamaster.core.values import Precision
from cudamaster.library.ranges import LARGEST_SEED
from cudamaster.library.ranges import MOST_CALLS as MOST_CALLS

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet
    from cudamaster.tasks.cards import TaskCard

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

precision: Decorator = click.option(
    "--precision",
    type=click.Choice([each.value for each in Precision]),
    default="fp32",
    show_default="fp32, or the one that the task has",
    help="Element type.",
)
BOTH = "both"  # of the fifty; of other tasks all that they have
PRECISIONS = click.Choice([*(each.value for each in Precision), BOTH])
precisions: Decorator = click.option(
    "--precision", type=PRECISIONS, default=BOTH, show_default=True, help="Element type; both means all of a task."
)
device: Decorator = click.option(
    "--device",
    type=click.Choice(["auto", *devices.NAMES]),
    default="auto",
    show_default=True,
    help="Where to build and run; auto takes a GPU if there is one.",
)
ray: Decorator = click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Build and measure on a Ray cluster (docs/cluster.md), by default the one that this machine is part of. "
    "ADDRESS is HOST:PORT of its head node. Put it last, or write --ray=ADDRESS.",
)
seed: Decorator = click.option(
    "--seed", type=click.IntRange(0, LARGEST_SEED), help="Seed of the inputs; by default a new one each time."
)
MOST_JOBS = 256  # each is a thread

of_suite: Decorator = click.option(
    "--suite",
    "of",
    metavar="NAME|FOLDER",
    help="A suite, by its name or by the folder of its tasks; `cudamaster tasks` lists them.",
)
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


def fleet_at(address: str | None, device: str) -> Fleet | None:
    """The cluster's nodes for our work, until the command ends; None without an address of a cluster.

    Says which cluster it is, what it has and which nodes are left out. Raises UsageError and DeviceError.
    """
    if address is None:
        return None
    from cudamaster.cluster.fleet import connect

    fleet = click.get_current_context().with_resource(connect(address, device))
    click.echo(f"Cluster at {fleet.place}, {fleet.described}", err=True)
    for note in fleet.notes:
        click.echo(f"Note: {note}", err=True)
    return fleet


def was_given(name: str) -> bool:
    """Whether a parameter of the running command was given, on its command line or by the environment.

    What a configuration file says is for all commands and stands for a default.
    """
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(name) if context is not None else None
    return source in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)


def given_precision(precision: str) -> str | None:
    """What was given with --precision or is in a configuration file; None where it is the option's default."""
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source("precision") if context is not None else None
    return precision if source not in (None, click.core.ParameterSource.DEFAULT) else None


def precision_of(card: TaskCard, given: str) -> Precision:
    """The precision of a task that is meant: what was given, or without that the only one that the task has.

    Raises UsageError if the task does not exist in what was given.
    """
    from cudamaster.library import subjects

    wanted = given_precision(given)
    if wanted not in card.precisions and not was_given("precision"):
        wanted = None  # a file's is for all tasks, and this one does not have it
    return subjects.precision_of(card, wanted)


def precisions_of(card: TaskCard, given: str) -> tuple[Precision, ...]:
    """The precisions of a task that are meant, `both` being all. Raises UsageError as `precision_of`."""
    return card.precisions if given == BOTH else (precision_of(card, given),)


def cards_of(tasks: Sequence[str], of: str | None) -> list[TaskCard]:
    """The cards of the tasks that are meant: those named, or all of the suite `of`, or of MSKernelBench.

    Raises UsageError for a task that the suite does not have.
    """
    from cudamaster.tasks import cards

    return [cards.load(source) for source in sources_of(tasks, of)]


def sources_of(tasks: Sequence[str], of: str | None) -> list[str]:
    """What `cards.load` takes for each of the tasks that `cards_of` gives. Raises UsageError as that does."""
    from cudamaster.core.errors import UsageError, nearest
    from cudamaster.tasks import cards, task_suites

    if of is None:
        return list(tasks or cards.names())
    suite = task_suites.named(of)
    sources = dict(zip(suite.tasks, suite.sources, strict=True))
    if unknown := next((task for task in tasks if task not in sources), None):
        fix = nearest(unknown, sources, f"`cudamaster tasks --suite {of}` lists them.")
        raise UsageError(f"The suite {suite.name} has no task {unknown!r}.", fix)
    if not sources:
        raise UsageError(f"The suite {suite.name} has no tasks.", f"Put their cards into {suite.folder / 'tasks'}.")
    return [sources[task] for task in tasks or sources]


def of_hgemm(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which task of the suite hgemm is meant where the TASK is `hgemm`.

    The command gets the whole name. It is put directly above the options and arguments that the command has beside it.
    What a configuration file says of these options is for `hgemm` alone, and no error with another task.
    """

    @click.option("--shape", metavar="MxNxK", help="With the task hgemm: rows, columns and sums, as 4096x2048x512.")
    @click.option("--accumulate", type=click.Choice(["fp32", "fp16"]),
                  help="With the task hgemm: the type of the sums.  [default: fp32]")  # fmt: skip
    @click.option("--b-layout", type=click.Choice(["row", "column"]),
                  help="With the task hgemm: how B is stored.  [default: column]")  # fmt: skip
    @click.option("--open-headers", is_flag=True,
                  help="With the task hgemm: kernels may include CUTLASS's headers.")  # fmt: skip
    @functools.wraps(command)
    def named(
        *given: Any,
        shape: str | None,
        accumulate: str | None,
        b_layout: str | None,
        open_headers: bool,
        **more: Any,
    ) -> Any:
        which = "name" if "name" in more else "task"
        if more[which] != "hgemm":
            shape, accumulate, b_layout = (
                value if was_given(name) else None
                for name, value in (("shape", shape), ("accumulate", accumulate), ("b_layout", b_layout))
            )
            open_headers = open_headers and was_given("open_headers")
        more[which] = hgemm_name(more[which], shape, accumulate, b_layout, open_headers=open_headers)
        return command(*given, **more)

    return named


def hgemm_name(
    task: str | None, shape: str | None, accumulate: str | None, b_layout: str | None, *, open_headers: bool = False
) -> str | None:
    """The name of the task that is meant: any task's own, or that of the suite hgemm with this shape and variant.

    Raises UsageError for `hgemm` without a shape, for a shape that is none, and for a shape with another task.
    """
    options = {"--shape": shape, "--accumulate": accumulate, "--b-layout": b_layout, "--open-headers": open_headers}
    given = [name for name, value in options.items() if value]
    if task != "hgemm" and not given:
        return task
    from cudamaster.core.errors import UsageError
    from cudamaster.tasks import hgemm

    if task != hgemm.SUITE:
        verb = "belongs" if len(given) == 1 else "belong"
        what = f"{' and '.join(given)} {verb} to the task hgemm, and the task is {task or 'not given'}."
        them = "it" if len(given) == 1 else "them"
        raise UsageError(what, f"Give {them} with hgemm alone; a whole name such as {hgemm.EXAMPLE} says all of it.")
    if shape is None:
        raise UsageError("hgemm has a task for every shape, and none was given.", "Add --shape 4096x2048x512, say.")
    of = hgemm.parse_shape(shape)
    of.must_be_legal()
    layout = hgemm.Layout.NN if b_layout == "row" else hgemm.Layout.TN
    sums = hgemm.Accumulate(accumulate or hgemm.Accumulate.FP32)
    return hgemm.name(of, layout, sums, open_headers=open_headers)


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
