"""Writes a problem as a task: the card, the module, and the reference in double precision that calls the module."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cudamaster.core.errors import CudaMasterError, unwritable
from cudamaster.kernelbench.drafting import draft
from cudamaster.kernelbench.problem import Fault, Problem
from cudamaster.tasks import cards, folders
from cudamaster.tasks.cards import TaskCard

_REFERENCE = '''"""{title}: the module of pytorch/{name}.py in double precision, with the parameters of a call."""

import importlib.util
from pathlib import Path

import torch

ARRAYS = "torch"
SEED = 42
ARGUMENTS = {arguments!r}  # of forward, in order; None for what is no parameter of the wrapper
STATE = {state!r}  # parameters and buffers of the module, by their names in the wrapper


def _module():
    path = Path(__file__).parent.parent / "pytorch" / "{name}.py"
    spec = importlib.util.spec_from_file_location("problem_{name}", path)
    module = importlib.util.module_from_spec(spec)
    torch.manual_seed(SEED)
    spec.loader.exec_module(module)
    return module


def _model(module):
    given = module.get_init_inputs()
    torch.manual_seed(SEED)
    if isinstance(given, dict):
        return module.Model(**given).double()
    if len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return module.Model(*given[0], **given[1]).double()
    return module.Model(*given).double()


MODULE = _module()
torch.manual_seed(SEED)
GIVEN = MODULE.get_inputs()
# forward may write to buffers, so each call has a model of its own.
MODEL = _model(MODULE)


def reference({parameters}):
    owners, named = dict(MODEL.named_modules()), dict(MODEL.named_parameters())
    values = dict({passed})
    for name, path in STATE.items():
        if path in named:
            named[path].data = values[name]
        else:
            owner, _, own = path.rpartition(".")
            owners[owner]._buffers[own] = values[name].clone()
    taken = [given if name is None else values[name] for name, given in zip(ARGUMENTS, GIVEN)]
    with torch.no_grad():
        made = tuple(_tensors(MODEL(*taken)))
    return made if len(made) > 1 else made[0]


def _tensors(result):
    if isinstance(result, torch.Tensor):
        yield result.double() if result.is_floating_point() else result
    else:
        for each in result.values() if isinstance(result, dict) else result:
            yield from _tensors(each)
'''


@dataclass(frozen=True)
class Imported:
    """A task that was made of a problem."""

    file: Path
    card: TaskCard
    path: Path
    faults: tuple[Fault, ...]


def task_name(file: Path) -> str:
    """The name of a problem's task: its file's, with kb_ before one that begins with a digit or is a shipped task's."""
    plain = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_") or "problem"
    return plain if plain[0].isalpha() and not folders.shipped(plain) else f"kb_{plain}"


def write(problem: Problem, folder: Path, name: str, number: int) -> Imported:
    """Write a problem's task into a folder of tasks.

    Raises CardError for a problem that no card can describe, UsageError for a folder that cannot be written.
    """
    fields = draft(problem, name, number)
    card, module = folder / "tasks" / f"{name}.yaml", folder / "pytorch" / f"{name}.py"
    reference = folder / "reference" / f"{name}.py"
    written = [path for path in (card, module, reference) if not path.exists()]
    try:
        for path in (card, module, reference):
            path.parent.mkdir(parents=True, exist_ok=True)
        if not (module.exists() and problem.file.samefile(module)):
            shutil.copyfile(problem.file, module)
        reference.write_text(_reference(problem, name, fields), encoding="utf-8")
        card.write_text(yaml.safe_dump(fields, sort_keys=False, width=110), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error, "Give another folder with --into.") from error
    try:
        loaded = cards.load(str(card))
    except CudaMasterError:
        for path in written:
            path.unlink()
        raise
    return Imported(problem.file, loaded, card, problem.faults)


def _reference(problem: Problem, name: str, fields: Mapping[str, Any]) -> str:
    passed = [p["name"] for p in fields["parameters"] if p.get("role") != "output"]
    taken = set(passed)
    return _REFERENCE.format(
        name=name,
        title=fields["title"],
        arguments=[each["name"] if each["name"] in taken else None for each in problem.told["inputs"]],
        state={each["name"]: each["path"] for each in problem.told["state"]},
        parameters=", ".join(passed),
        passed=", ".join(f"{each}={each}" for each in passed),
    )
