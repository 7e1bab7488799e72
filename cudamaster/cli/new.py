"""`cudamaster new`: a task out of a kernel of one's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy, table, working
from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.core.values import Precision, Role, Verdict

if TYPE_CHECKING:
    from cudamaster.devices.protocol import Device
    from cudamaster.making.baseline import Baseline
    from cudamaster.making.reading import Function, Passed, Source
    from cudamaster.making.task_files import Written
    from cudamaster.making.understanding import Question, Understood
    from cudamaster.making.wishes import Wishes

_OF_FILE: list[options.Decorator] = [
    click.option("--wrapper", metavar="NAME", help="The host function, if several launch kernels."),
    click.option("-I", "--include", "folders", multiple=True, metavar="FOLDER",
                 type=click.Path(path_type=Path, file_okay=False), help="Another folder with headers of yours."),
]  # fmt: skip
_OF_PARAMETERS: list[options.Decorator] = [
    click.option("--output", "outputs", multiple=True, metavar="NAME", help="A pointer that is only written."),
    click.option("--inout", "inouts", multiple=True, metavar="NAME", help="A pointer that is read and overwritten."),
    click.option("--scratch", multiple=True, metavar="NAME",
                 help="A pointer to memory that a call may use, and that holds no result."),
    click.option("--input", "inputs", multiple=True, metavar="NAME",
                 help="A pointer that is only read, as const ones are."),
    click.option("--length", "lengths", multiple=True, metavar="NAME=EXPR",
                 help="Elements of a pointer: x='N*C', or as a shape x='[N, C]'."),
    click.option("--range", "ranges", multiple=True, metavar="NAME=LOW:HIGH",
                 help="How an input is filled (x=-1:1, k=ints:0:9), or what a number may be (alpha=0.5:2, K=1:N)."),
    click.option("--precision", type=click.Choice([each.value for each in Precision]),
                 help="The element type of the task, if pointers are of several."),
]  # fmt: skip
_OF_CASES: list[options.Decorator] = [
    click.option("--case", "cases", multiple=True, metavar="SIZES", help="A case to time, such as N=1024,C=2**9."),
    click.option("--check-case", "check_cases", multiple=True, metavar="SIZES",
                 help="A case to check only; without any, small ones at odd sizes are derived."),
    click.option("--fixed-size", "fixed", multiple=True, metavar="NAME",
                 help="A number that no other value is tried of than those of the timed cases."),
    click.option("--multiple", "multiples", multiple=True, metavar="NAME=K",
                 help="A size that is always a multiple of K."),
    click.option("--weight", metavar="EXPR",
                 help="What a timed case counts.  [default: elements of all buffers but scratch]"),
    click.option("--operations", metavar="EXPR", help="Least operations.  [default: one for each output element]"),
    click.option("--bytes-read", metavar="EXPR",
                 help="Bytes that every kernel has to read.  [default: 0, as one may leave out a part]"),
]  # fmt: skip
_OF_TASK: list[options.Decorator] = [
    click.option("--name", metavar="TASK", help="The task's name.  [default: by the function's]"),
    click.option("--into", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
                 help="The folder of tasks.  [default: $CUDAMASTER_TASKS, or the user's data folder]"),
    click.option("--truth", type=click.Choice(["baseline", "c", "python"]), default="baseline", show_default=True,
                 help="What is right: the kernel's own output, or a reference, of which a file to fill in is written."),
    click.option("--replace", is_flag=True, help="Write anew a task that the folder has already."),
    click.option("--check", is_flag=True, help="Build the kernel and check it once."),
    options.device,
    options.as_json,
]  # fmt: skip

_AGAIN = "The task is written: correct its files, or run this command again with other options and --replace."


@dataclass(frozen=True)
class _Made:
    """What was read, understood and written."""

    understood: Understood
    baseline: Baseline
    written: Written
    default_folder: bool


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    return options.added([*_OF_FILE, *_OF_PARAMETERS, *_OF_CASES, *_OF_TASK], command)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@_options
def new(file: Path, as_json: bool, check: bool, device: str, **given: Any) -> None:
    """Make a task of the kernel in FILE, a .cu file of yours: optimize, evaluate and all others then take its name.

    The one host function in FILE that launches kernels is the task's interface; its pointers are device pointers. Own
    headers beside FILE are put in place, `main` and what only it uses is left out. What FILE does not say is asked on a
    terminal; else the missing options are named.
    """
    from cudamaster.devices.choose import choose

    chosen = choose(device)
    made = _make(file, given, chosen, as_json=as_json)
    name = made.written.card.name if made.default_folder else str(made.written.files[0])
    if not as_json:
        _show(made)
    right = _checked(made, chosen, hidden=as_json) if check else None
    if as_json:
        print_json(
            {**_fields(made), "check": None if right is None else {"status": right.status, "detail": right.detail}}
        )
    else:
        if right is not None:
            click.echo(f"Checked on the {chosen.name} device: {right.status}: {right.detail}")
        if right is None or right.correct:
            _say_next(made, name)
        else:
            click.echo(_AGAIN)
    click.get_current_context().exit(0 if right is None or right.correct else 1)


def _checked(made: _Made, device: Device, *, hidden: bool) -> Verdict:
    """The baseline's own verdict. What the judge raises says that the files are written."""
    from cudamaster.workbench.evaluation import Workbench

    bench = Workbench(made.written.card, made.understood.precision, device)
    try:
        with working(f"building and checking the baseline on the {device.name} device", hidden=hidden):
            return bench.evaluate(bench.baseline, check_only=True)
    except CudaMasterError as error:
        error.fix = f"{error.fix} {_AGAIN}"
        error.args = (f"{error.reason} {error.fix}",)
        raise


def _make(file: Path, given: Mapping[str, Any], device: Device, *, as_json: bool) -> _Made:
    """Read the file, understand it, ask or name what is missing, and write the task."""
    from cudamaster.making import baseline, flattening, kept_work, reading, task_files
    from cudamaster.making.adapter import adapter
    from cudamaster.making.card_text import About
    from cudamaster.tasks import folders

    flat = flattening.flatten(file, given["folders"])
    compiler = device.preprocessor().compiler
    source = reading.read(flat, compiler)
    try:
        wrapper = reading.choose_wrapper(source, given["wrapper"])
    except reading.NoWrapper as error:
        if not as_json:
            click.echo(adapter(source, error.kernel))
        raise
    passed = reading.parameters(source, wrapper)
    said = _wishes(given)
    assembled = baseline.assemble(source, wrapper)
    kept_work.must_keep_work(source, wrapper.name, assembled.flat, compiler)
    baseline.must_pass_guard(assembled, wrapper, passed, device)
    asks = not as_json and sys.stdin is not None and sys.stdin.isatty()
    understood = _answered(source, wrapper, passed, said, asks=asks)
    if understood.questions:
        raise _missing(file, understood.questions)
    name = given["name"] or task_files.name_of(wrapper.name)
    folder = given["into"].expanduser().absolute() if given["into"] else folders.default()
    summary = task_files.summary_of(reading.comment_on(source, wrapper), wrapper.name)
    about = About(name, folders.id_for(folder, name), task_files.plain(file.name), summary, given["truth"])
    written = task_files.write(understood, about, assembled, folder, replace=given["replace"])
    return _Made(understood, assembled, written, default_folder=given["into"] is None)


def _wishes(given: Mapping[str, Any]) -> Wishes:
    from cudamaster.making import wishes

    return wishes.Wishes(
        inputs=given["inputs"],
        outputs=given["outputs"],
        inouts=given["inouts"],
        scratch=given["scratch"],
        lengths=wishes.pairs("--length", given["lengths"]),
        ranges=wishes.pairs("--range", given["ranges"]),
        cases=tuple(wishes.case("--case", text) for text in given["cases"]),
        check_cases=tuple(wishes.case("--check-case", text) for text in given["check_cases"]),
        fixed=given["fixed"],
        multiples=wishes.whole_numbers("--multiple", given["multiples"]),
        weight=given["weight"],
        operations=given["operations"],
        bytes_read=given["bytes_read"],
        precision=Precision(given["precision"]) if given["precision"] else None,
    )


def _answered(source: Source, wrapper: Function, passed: Sequence[Passed], said: Wishes, *, asks: bool) -> Understood:
    """What is understood, with the answers of whoever sits at the terminal."""
    from cudamaster.making import understanding

    understood = understanding.understand(source, wrapper, passed, said)
    while asks and understood.questions:
        question = understood.questions[0]
        more = " (several cases: put ; between them)" if question.option == "--case" else ""
        answer = click.prompt(f"{question.text}{more}", default=question.guess, err=True)
        try:
            answered = _with_answer(said, question, answer)
            understood = understanding.understand(source, wrapper, passed, answered)
            said = answered
        except UsageError as error:
            click.echo(f"{error}", err=True)
    return understood


def _with_answer(said: Wishes, question: Question, answer: str) -> Wishes:
    from cudamaster.making import wishes

    if question.option == "--precision":
        if answer not in list(Precision):
            raise UsageError(f"{answer!r} is no precision.", f"Choose one of {', '.join(Precision)}.")
        return replace(said, precision=Precision(answer))
    if question.option == "--case":
        return replace(said, cases=tuple(wishes.case("--case", text) for text in answer.split(";")))
    if question.option == "--scratch":
        if answer == "output":
            return replace(said, outputs=(*said.outputs, question.name))
        if answer != "scratch":
            raise UsageError(f"{answer!r} is neither scratch nor output.", "Answer with one of these words.")
        return replace(said, scratch=(*said.scratch, question.name))
    if question.option == "--length":
        return replace(said, lengths={**said.lengths, question.name: answer})
    return replace(said, ranges={**said.ranges, question.name: answer})


def _missing(file: Path, questions: Sequence[Question]) -> UsageError:
    """All that is missing, with a command that works; its sizes and ranges are guesses."""
    options_given = sys.argv[sys.argv.index("new") + 1 :] if "new" in sys.argv else [str(file)]
    more = [word for question in questions for word in question.example.split(" ", 1)]
    what = "; ".join(f"{question.text} ({question.option})" for question in questions)
    return UsageError(
        f"{file.name} does not say: {what}.",
        f"This works, with guesses to correct: {ourselves('new', *options_given, *more)}",
    )


def _fields(made: _Made) -> dict[str, object]:
    """The same as `_show`, for programs."""
    card = made.written.card
    return {
        "task": card.name,
        "card": str(made.written.files[0]),
        "files": [str(path) for path in made.written.files],
        "wrapper": made.understood.wrapper,
        "precision": made.understood.precision,
        "parameters": [
            parameter.model_dump(include={"name", "type", "role", "length"}) for parameter in card.parameters
        ],
        "inputs": card.inputs,
        "assumed": made.understood.assumed,
        "changed": made.baseline.changes,
        "left_out": made.baseline.left_out,
    }


def _show(made: _Made) -> None:
    """What was understood, assumed, changed and written, for a person."""
    out, task, card = console(), made.understood, made.written.card
    fills = {row.name: row.fill.replace(f"({row.name}, ", "(") for row in task.rows if row.fill}
    sizes = {size.name: size for size in task.sizes}
    rows = []
    for parameter in card.parameters:
        size = sizes.get(parameter.name)
        drawn = fills.get(parameter.name, "")
        if size is not None:
            multiple = f", a multiple of {size.multiple}" if size.multiple > 1 else ""
            drawn = {"free": "any", "fixed": "as timed", "range": f"{size.low} .. {size.high}"}[size.kind] + multiple
        kind = parameter.c_type(task.precision)
        rows.append([parameter.name, kind, parameter.role, parameter.length or "", drawn])
    out.print(f"{task.wrapper} is the task {card.name} ({task.precision}):\n")
    out.print(table(["parameter", "type", "role", "elements", "range"], rows))
    timed = sum(case.sweep for case in card.cases)
    cases = f"{timed} timed case{'s' if timed > 1 else ''}, {len(card.cases) - timed} to check"
    out.print(f"{cases}; others are drawn for every evaluation.")
    for what, said in (("Assumed", task.assumed), ("Changed", made.baseline.changes)):
        for each in said:
            out.print(f"{what}: {each}.")
    if made.baseline.left_out:
        out.print(f"Left out: {', '.join(made.baseline.left_out)}.")
    print_to_copy(out, *(f"Wrote {path}" for path in made.written.files))


def _say_next(made: _Made, name: str) -> None:
    """The commands that come next."""
    reference = [path for path in made.written.files if path.parent.name == "reference"]
    if reference:
        click.echo(f"First write {reference[0]}: until then nothing can be judged.")
    click.echo(f"Next: {ourselves('baselines', name)}")
    click.echo(f"      {ourselves('evaluate', name, 'FASTER.cu')}  (defines {made.understood.wrapper}_optimized)")
    click.echo(f"      {ourselves('optimize', name, '-R', '3', *_model())}")


def _model() -> list[str]:
    """--model with an example, where none is configured: there are no kernels yet to try without one."""
    from cudamaster.cli import commands, configured
    from cudamaster.models import choose as models

    named = any(os.environ.get(name) for name in (models.MODEL, models.variable_of(Role.CODER)))
    of_files = configured.or_nothing("optimize", *commands())
    return [] if named or of_files.get("model") else ["--model", "openai/o4-mini"]
