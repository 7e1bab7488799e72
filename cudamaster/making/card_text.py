"""The files of a task as text: its card with comments to edit it by, and a reference to fill in."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jinja2
import yaml

from cudamaster.core import resources
from cudamaster.core.expressions import Number
from cudamaster.core.values import Precision, wrapper_name
from cudamaster.making import drawn_cases, wishes
from cudamaster.making.understanding import Row, Size, Understood
from cudamaster.tasks.parameters import RANGES, Parameter

Truth = Literal["baseline", "c", "python"]
_MEANINGS = {
    "input": "is read",
    "output": "is written",
    "inout": "is read and overwritten",
    "scratch": "is scratch memory",
}


@dataclass(frozen=True)
class About:
    """What a card says of a task as a whole. `id` is its place in lists, `file` the user's file that it is made of."""

    name: str
    id: int
    file: str
    summary: str
    truth: Truth


def card(task: Understood, about: About) -> str:
    """The card as YAML."""
    unit = {row.name: _bytes(row, task.precision) for row in task.rows if row.role != "scalar"}
    # A call that is faster than the floor is refused, so nothing counts that a kernel may leave alone: of inputs it may
    # read a part, and of what is read and overwritten it may change a part.
    written = wishes.total([(str(row.length), unit[row.name]) for row in task.rows if row.role == "output"])
    default = wrapper_name(about.name, task.precision)
    outputs = [row.name for row in task.rows if row.role in ("output", "inout")]
    return _template("new_card.yaml.j2").render(
        name=about.name,
        id=about.id,
        file=about.file,
        title=_yaml(about.name.replace("_", " ").capitalize()),
        summary=_yaml(about.summary),
        formula=_yaml(f"{', '.join(outputs)} = what the baseline computes"),
        own_wrapper=task.wrapper if task.wrapper != default else "",
        precision=task.precision.value,
        truth=about.truth,
        sizes=_yaml({size.name: size.default for size in task.sizes}),
        fixed=_yaml([size.name for size in task.sizes if _always_the_same(task, size)])
        if any(_always_the_same(task, size) for size in task.sizes)
        else "",
        parameters=[_yaml(_parameter(task, row)) for row in task.rows],
        inputs=[row.fill for row in task.rows if row.fill is not None],
        sweep=[_yaml(_case(task, case)) for case in task.cases],
        verify=[_yaml(_case(task, case)) for case in drawn_cases.check_cases(task)],
        held_out=[_yaml(block) for block in drawn_cases.held_out(task)],
        held_out_large=[_yaml(block) for block in drawn_cases.held_out_large(task)],
        weight=task.weight,
        bytes_read=task.bytes_read,
        bytes_written=written,
        operations=task.operations,
    )


def reference(task: Understood, about: About) -> str | None:
    """A reference that fails until it is written, None where the baseline's own output is the truth."""
    if about.truth == "baseline":
        return None
    arguments = []
    for row in task.rows:
        if row.type == "stream":
            continue
        if about.truth == "python":
            arguments += [row.name] if row.role not in ("output", "scratch") else []
            continue
        kind = "T" if row.type == "T" else _as_parameter(row).element_type(task.precision)
        if row.role == "scalar":
            arguments.append(f"{kind} {row.name}")
        if row.role in ("input", "inout"):
            arguments.append(f"const {kind}* {row.name}")
        if row.role in ("output", "inout"):
            arguments.append(f"mskb::Expected& {_result(row)}")
    if any(map(keyword.iskeyword, arguments)):
        arguments = ["**given"]  # by their names, which Python does not take for parameters
    is_c = about.truth == "c"
    return _template(f"new_reference.{'h' if is_c else 'py'}.j2").render(
        name=about.name,
        arguments=arguments,
        outputs=[_result(row) if is_c else row.name for row in task.rows if row.role in ("output", "inout")],
        inouts=[row.name for row in task.rows if row.role == "inout"],
    )


def _parameter(task: Understood, row: Row) -> Mapping[str, object]:
    fields: dict[str, object] = {"name": row.name, "type": row.type}
    if row.type == "stream":
        return {**fields, "meaning": "the stream to launch in"}
    if row.role == "scalar":
        counted = any(row.name in wishes.named_in(str(each.length)) for each in task.rows if each.length is not None)
        return {**fields, "meaning": "a size of buffers" if counted else "passed by value"}
    fields["role"] = row.role
    fields |= {"shape": list(row.shape)} if row.shape else {"length": row.length}
    if row.role in ("output", "inout") and row.type in RANGES:
        fields["check"] = "exact"
    return {**fields, "meaning": _MEANINGS[row.role]}


def _always_the_same(task: Understood, size: Size) -> bool:
    return size.kind == "fixed" and size.default is not None


def _case(task: Understood, case: wishes.Case) -> dict[str, Number]:
    """A case in the order of the card's sizes; what is no whole number is written as none."""
    return {
        size.name: float(case[size.name]) if size.real else case[size.name] for size in task.sizes if size.name in case
    }


def _result(row: Row) -> str:
    return f"{row.name}_after" if row.role == "inout" else row.name


def _bytes(row: Row, precision: Precision) -> str:
    return "element_bytes" if row.type == "T" else str(_as_parameter(row).element_bytes(precision))


def _as_parameter(row: Row) -> Parameter:
    return Parameter.model_validate({"name": row.name, "type": row.type, "meaning": ""})


def _yaml(value: object) -> str:
    """A value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return str(text).removesuffix("\n").removesuffix("\n...")


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
