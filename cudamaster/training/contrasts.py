"""Pairs whose prompts show scored kernels: what a model has to know before it is asked that way.

The pairs of an export show the baseline alone. A small model that has seen no other prompt writes nothing useful when
the contrastive stage shows it exemplars. So supervised fine-tuning can add, for each pair, prompts with exemplars of
the same task that are not faster than its kernel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudamaster.agents.contrast import Exemplar
from cudamaster.core.errors import UsageError
from cudamaster.core.records import from_json
from cudamaster.core.values import Hardware
from cudamaster.models.protocol import Message
from cudamaster.training import prompts
from cudamaster.training.briefs import brief_of
from cudamaster.training.choosing import Group, Standing, group_of
from cudamaster.training.collecting import HARDWARE, read_kernels
from cudamaster.training.database import Database
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.prompts import Form
from cudamaster.training.settings import Exemplars

Pair = dict[str, Any]


def added(data: Path, rows: Sequence[Pair], form: Form, about: Exemplars, copies: int, seed: int) -> list[Pair]:
    """`copies` of each pair of an export, each with a prompt of its own.

    Raises UsageError for a pair whose kernel, or whose baseline, is not in the export's kernels.
    """
    kernels = read_kernels(data)
    standing = Standing(kernels, modelled=True)
    groups: dict[Group, list[JudgedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(group_of(kernel), []).append(kernel)
    places = {(group, one.candidate.id): one for group, members in groups.items() for one in members}
    devices = _devices(data / HARDWARE)
    found = []
    for row in rows:
        of = row["provenance"]
        group = tuple(of[name] for name in ("suite", "task", "precision", "card_hash", "gpu", "harness"))
        own = places.get((group, of["kernel"]))
        baseline = next((one for one in kernels if own is not None and _is_baseline_of(one, own)), None)
        if own is None or baseline is None or own.verdict.score is None:
            what = f"The kernel {of['kernel']}, or its baseline, is not among the kernels of {data}."
            raise UsageError(what, "Export it again from its sources.")
        brief = brief_of(form, baseline, devices)
        slower = [
            Exemplar(one.candidate, one.verdict, one.verdict.score)
            for one in groups[group_of(own)]
            if one is not own and not one.provenance.is_baseline and standing.is_example(one)
            if one.verdict.score is not None and one.verdict.score <= own.verdict.score
        ]
        first = Exemplar(baseline.candidate, baseline.verdict, 1.0, is_baseline=True)
        database = Database(about, seed, {own.candidate.id: first}, {own.candidate.id: slower})
        for number in range(copies):
            messages = prompts.prompt(form, brief, database.draw(own.candidate.id, 1, number))
            found.append({**row, "prompt": _shown(form, messages)})
    return found


def _shown(form: Form, messages: Sequence[Message]) -> str | list[dict[str, str]]:
    """A prompt as rows have it."""
    if form is Form.COMPACT:
        return "".join(message.content for message in messages)
    return [{"role": message.role, "content": message.content} for message in messages]


def _is_baseline_of(kernel: JudgedKernel, own: JudgedKernel) -> bool:
    """Whether it is the baseline of the same task, card and precision, on whatever GPU: its score is 1 in any case."""
    return kernel.provenance.is_baseline and kernel.verdict.correct and group_of(kernel)[:4] == group_of(own)[:4]


def _devices(path: Path) -> dict[str, Hardware]:
    """The devices of an export, by the names of their GPUs."""
    try:
        return {name: from_json(Hardware, one) for name, one in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Export it again from its sources.") from error
