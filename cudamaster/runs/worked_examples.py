"""Playbook kernels of other tasks, shown to whoever writes code as worked examples, when a run asks for that.

They stand before the task in the first user message of the Coder or of an outside agent, whatever the strategy: a model
is wrapped, and no agent knows of them. The task's own kernels are never among them, in neither precision. Even so a run
with examples measures a model that was helped: relatives of a task can carry over whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from pathlib import Path

from cudamaster.agents import prompts
from cudamaster.core.values import Precision, Role
from cudamaster.models.protocol import AnsweredBy, Message, Model, Reply, Request
from cudamaster.runs import playbooks
from cudamaster.tasks import cards, hgemm


@dataclass(frozen=True)
class WorkedExample:
    """A kernel of the playbook that was made fast by hand: the task it is for in one line, and its whole text."""

    task: str
    title: str
    code: str


def choose(task: str, precision: Precision, count: int, card: str = "") -> tuple[WorkedExample, ...]:
    """Up to `count` examples for a task, those of its own category first, else in the order of the benchmark.

    Of each task it is the last step, which stands on the ones before it. For a task in fp16 the examples are in bf16.
    `card` is the path of the task's card if its name may not find it.
    """
    if count == 0:
        return ()
    known = [cards.load(name) for name in cards.names()]
    every = [*known, *map(cards.load, [card] if Path(card).is_file() else cards.own_names())]
    category = next((card.category for card in every if card.name == task), "dense" if hgemm.is_meant(task) else None)
    others = sorted((card for card in known if card.name != task), key=lambda card: card.category != category)
    playbook = playbooks.playbook()
    return tuple(
        WorkedExample(card.name, card.title, playbook.steps(card.name, card.among([precision])[-1].value)[-1].code)
        for card in others[:count]
    )


def shown(models: Mapping[Role, Model], examples: tuple[WorkedExample, ...]) -> dict[Role, Model]:
    """The models, the Coder's with `examples` before each task."""
    if not examples:
        return dict(models)
    text = prompts.render("worked_examples.md.j2", examples=examples)
    return {
        role: AnsweredBy(model.name, partial(_ask, model, text)) if role in (Role.CODER, Role.AGENT) else model
        for role, model in models.items()
    }


def _ask(model: Model, before: str, request: Request) -> Reply:
    messages = list(request.messages)
    first = next(place for place, message in enumerate(messages) if message.role == "user")
    messages[first] = Message("user", f"{before}\n{messages[first].content}")
    return model.ask(changed(request, messages=tuple(messages)))
