"""The training sets: rows of plain JSON values from judged kernels. Every row says where it is from.

Nothing but what `choosing.Standing` lets through is ever a completion, the chosen one of a pair, or an exemplar. The
baseline is shown in every prompt, and is none of these: to hand it back is no improvement.

A refused kernel has a score of 0 in the rows (as its reward), so that no column is ever null: `datasets` takes the type
of a column from the first rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from cudamaster.agents.brief import Brief
from cudamaster.agents.contrast import Exemplar
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Hardware, content_hash
from cudamaster.models.protocol import Message
from cudamaster.strategies.exemplars import Pool, Selection
from cudamaster.training import prompts
from cudamaster.training.briefs import brief_of
from cudamaster.training.choosing import Group, Standing, group_of, is_refused, margin_of, surely_faster
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.prompts import Form
from cudamaster.training.searches import Search

Row: TypeAlias = dict[str, Any]
_UNKNOWN = 1e9  # the upper end of an interval of which nothing is known: JSON has no infinity


@dataclass(frozen=True)
class Wanted:
    """How sets are made of kernels.

    `at_least` is the least P of a completion in the SFT set, and `best` how many of a group it has (0: all). A kernel
    is the rejected one of at most `pairs` preference pairs for being wrong, and as many for being slower. `prompts` are
    the draws of exemplars for a group, up to `exemplars` each, from the seed `seed`.
    """

    form: Form = Form.FULL
    modelled: bool = False
    at_least: float = 1.0
    best: int = 0
    pairs: int = 4
    prompts: int = 8
    exemplars: int = 2
    seed: int = 0


@dataclass
class Sets:
    """The rows of each set, and why kernels are in none: reasons with their counts."""

    sft: list[Row] = field(default_factory=list)
    preference: list[Row] = field(default_factory=list)
    contrastive: list[Row] = field(default_factory=list)
    trajectories: list[Row] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> Mapping[str, list[Row]]:
        """The rows by the names of the sets."""
        return {name: getattr(self, name) for name in NAMES}


NAMES = ("sft", "preference", "contrastive", "trajectories")


def make(
    kernels: Sequence[JudgedKernel],
    searches: Sequence[Search],
    devices: Mapping[str, Hardware],
    wanted: Wanted,
    standing: Standing,
) -> Sets:
    """The sets of these kernels and searches; `devices` are known by the names of their GPUs."""
    sets = Sets()
    groups: dict[Group, list[JudgedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(group_of(kernel), []).append(kernel)
    for members in groups.values():
        _of_group(sets, members, kernels, devices, wanted, standing)
    for search in searches:
        if search.about.verdict.mark and not (wanted.modelled and search.about.verdict.modelled):
            sets.left_out["searches without measured times"] += 1
        else:
            sets.trajectories.append(_trajectory(search))
    return sets


def _of_group(
    sets: Sets,
    members: Sequence[JudgedKernel],
    every: Sequence[JudgedKernel],
    devices: Mapping[str, Hardware],
    wanted: Wanted,
    standing: Standing,
) -> None:
    """The rows of one task, precision, card, GPU and harness version."""
    own = [one for one in members if not one.provenance.is_baseline]
    reasons = [why for one in own if (why := standing.why_not(one))]
    sets.left_out.update(reasons)
    baseline = _baseline_of(members[0], [*members, *every])
    if baseline is None:
        sets.left_out["without their baseline, which no prompt can do without"] += len(own) - len(reasons)
        return
    try:
        brief = brief_of(wanted.form, baseline, devices)
    except CudaMasterError as error:
        sets.left_out["without the task's card, which the full form needs"] += len(own) - len(reasons)
        sets.notes.append(error.reason)
        return
    shown = Exemplar(baseline.candidate, baseline.verdict, 1.0, is_baseline=True)
    asked = _Asked(wanted.form, brief, shown)
    right = _each_code_once(sorted((one for one in own if standing.is_example(one)), key=_score, reverse=True))
    sets.left_out["the same code as a faster one, by another command"] += len(own) - len(reasons) - len(right)
    fast = [one for one in right if _score(one) >= wanted.at_least]
    sets.left_out[f"P below {wanted.at_least:g}, so not in sft"] += len(right) - len(fast)
    chosen = fast[: wanted.best or None]
    sets.left_out[f"not among the {wanted.best} best, so not in sft"] += len(fast) - len(chosen)
    sets.sft += [
        {"prompt": asked.prompt(), "completion": asked.answer(one), "provenance": provenance(one)} for one in chosen
    ]
    in_this_group = [one for one in members if one.provenance.is_baseline]
    _pairs(sets, asked, right, [one for one in own if is_refused(one)], in_this_group, wanted.pairs)
    _contrastive(sets, asked, right, members[0], wanted)


@dataclass(frozen=True)
class _Asked:
    """The prompt of a group, and replies to it, in the form that was asked for."""

    form: Form
    brief: Brief
    baseline: Exemplar

    def prompt(self, exemplars: Sequence[Exemplar] = ()) -> Any:
        messages = prompts.prompt(self.form, self.brief, exemplars or (self.baseline,))
        return messages[0].content if self.form is Form.COMPACT else [_message(each) for each in messages]

    def answer(self, kernel: JudgedKernel) -> Any:
        text = prompts.completion(self.form, kernel.provenance.idea, kernel.candidate.code)
        return text if self.form is Form.COMPACT else [{"role": "assistant", "content": text}]


def _pairs(
    sets: Sets,
    asked: _Asked,
    right: Sequence[JudgedKernel],
    wrong: Sequence[JudgedKernel],
    baselines: Sequence[JudgedKernel],
    most: int,
) -> None:
    """Right over wrong, and faster over slower where that is sure. `right` is ordered, the fastest first."""
    for number, rejected in enumerate(wrong):
        # Each has other partners, so that not all are told apart from one kernel.
        others = [one for one in right if one.candidate.code.strip() != rejected.candidate.code.strip()]
        for step in range(min(most, len(others))):
            _pair(sets, asked, others[(number + step) % len(others)], rejected, "right")
    margins = {one.candidate.id: margin_of(one) for one in right}  # of raw samples, which takes a while
    for rejected in (*right, *baselines):
        faster = [one for one in right if surely_faster(one, rejected, lambda each: margins[each.candidate.id])]
        for chosen in _spread(faster, most):
            _pair(sets, asked, chosen, rejected, "faster")


def _pair(sets: Sets, asked: _Asked, chosen: JudgedKernel, rejected: JudgedKernel, why: str) -> None:
    sets.preference.append(
        {
            "prompt": asked.prompt(),
            "chosen": asked.answer(chosen),
            "rejected": asked.answer(rejected),
            "provenance": {"why": why, "chosen": provenance(chosen), "rejected": provenance(rejected)},
        }
    )


def _each_code_once(kernels: Sequence[JudgedKernel]) -> list[JudgedKernel]:
    """The first kernel of each code: compiled by another command it is the same text to a model."""
    first: dict[str, JudgedKernel] = {}
    for one in kernels:
        first.setdefault(one.candidate.code.strip(), one)
    return list(first.values())


def _spread(kernels: Sequence[JudgedKernel], most: int) -> list[JudgedKernel]:
    """At most so many of them, evenly spread over their order, the first one always among them."""
    if len(kernels) <= most:
        return list(kernels)
    return [kernels[index * len(kernels) // most] for index in range(most)]


def _contrastive(
    sets: Sets, asked: _Asked, right: Sequence[JudgedKernel], member: JudgedKernel, wanted: Wanted
) -> None:
    """Prompts with exemplars, drawn as section 2.4.3 of the CUDA-L1 paper has it; no two show the same ones."""
    pool = Pool([asked.baseline])
    for one in right:
        pool.add(Exemplar(one.candidate, one.verdict, _score(one)))
    # A seed of the group's own: what is exported beside it does not change its draws.
    random = Random(f"{wanted.seed} {content_hash(*group_of(member))}")
    drawn: dict[tuple[str, ...], tuple[Exemplar, ...]] = {}
    for _ in range(4 * wanted.prompts):
        exemplars = pool.draw(Selection(wanted.exemplars), random)
        drawn.setdefault(tuple(one.candidate.id for one in exemplars), exemplars)
        if len(drawn) == wanted.prompts:
            break
    about = provenance(member)
    common = {name: about[name] for name in _OF_GROUP}
    sets.contrastive += [
        {
            "prompt": asked.prompt(exemplars),
            "exemplars": [
                {
                    "code": one.candidate.code,
                    "score": one.score,
                    "command": one.candidate.command,
                    "kernel": one.candidate.id,
                    "is_baseline": one.is_baseline,
                }
                for one in exemplars
            ],
            "provenance": common,
        }
        for exemplars in drawn.values()
    ]


def _baseline_of(member: JudgedKernel, kernels: Sequence[JudgedKernel]) -> JudgedKernel | None:
    """The baseline of a group: the one judged in it, or else the same task's on another GPU or by another version."""
    task = group_of(member)[:4]
    there = (one for one in kernels if one.provenance.is_baseline and one.verdict.correct)
    return next((one for one in there if group_of(one)[:4] == task), None)


def _trajectory(search: Search) -> Row:
    about = provenance(search.about)
    return {
        "messages": [_message(each) for each in search.messages],
        "attempts": [
            {
                "message": one.message,
                "kernel": one.kernel,
                "idea": one.idea,
                "status": one.status.value,
                "score": _finite(one.score or 0.0, 0.0),
            }
            for one in search.tried
        ],
        "provenance": {
            **{name: about[name] for name in _OF_GROUP},
            "source": about["source"],
            "strategy": search.strategy,
            "models": search.models,
            "score": _finite(search.score, 0.0),
            "finished": search.finished,
        },
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}


def _score(kernel: JudgedKernel) -> float:
    """P of a kernel that may be an example."""
    assert kernel.verdict.score is not None
    return kernel.verdict.score


def _finite(value: float, otherwise: float) -> float:
    """A number that JSON has."""
    return float(value) if math.isfinite(value) else otherwise


_OF_GROUP = ("suite", "task", "precision", "category", "card_hash", "gpu", "modelled", "harness")


def provenance(kernel: JudgedKernel) -> Row:
    """Where a kernel in a row is from, and what the judge said: texts, numbers and truth values, none of them null."""
    about, candidate, verdict = kernel.provenance, kernel.candidate, kernel.verdict
    speed = verdict.speed
    return {
        "suite": about.suite,
        "task": candidate.task,
        "precision": candidate.precision.value,
        "category": about.category,
        "card_hash": about.card_hash,
        "gpu": kernel.gpu,
        "modelled": kernel.verdict.modelled is not None or kernel.gpu.endswith(" (modelled)"),
        "harness": about.harness,
        "kernel": candidate.id,
        "command": candidate.command,
        "status": verdict.status.value,
        "score": _finite(verdict.score or 0.0, 0.0),
        "low": _finite(speed.interval.low, 0.0) if speed is not None else 0.0,
        "high": _finite(speed.interval.high, _UNKNOWN) if speed is not None else _UNKNOWN,
        "change": speed.change.value if speed is not None else "",
        "is_baseline": about.is_baseline,
        "idea": about.idea,
        "author": about.author,
        "source": about.source,
    }
