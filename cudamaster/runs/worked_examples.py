"""Playbook kernels of other tasks, shown to whoever writes code as worked examples, when a run asks for that.

They stand before the task in the first user message of the Coder, whatever the strategy: a model is wrapped, and no
agent knows of them. The task's own kernels are never among them, in neither precision. Even so a run with examples
measures a model that was helped: relatives of a task can carry over whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as changed

from cudamaster.agents import prompts
from cudamaster.core.values import Precision, Role
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Message, Model, Reply, Request
from cudamaster.tasks import cards


@dataclass(frozen=True)
class WorkedExample:
    """A kernel of the playbook that was made fast by hand: the task it is for in one line, and its whole text."""

    task: str
    title: str
    code: str


def choose(task: str, precision: Precision, count: int) -> tuple[WorkedExample, ...]:
    """Up to `count` examples for a task, those of its own category first, else in the order of the benchmark.

    Of each task it is the last step, which stands on the ones before it. A task that is none of the benchmark's has no
    category there.
    """
    if count == 0:
        return ()
    known = [cards.load(name) for name in cards.names()]
    category = next((card.category for card in known if card.name == task), None)
    others = sorted((card for card in known if card.name != task), key=lambda card: card.category != category)
    playbook = PlaybookModel()
    return tuple(
        WorkedExample(card.name, card.title, playbook.steps(card.name, precision.value)[-1].code)
        for card in others[:count]
    )


def shown(models: Mapping[Role, Model], examples: tuple[WorkedExample, ...]) -> dict[Role, Model]:
    """The models, the Coder's with `examples` before each task."""
    return {
        role: _Shown(model, examples) if role is Role.CODER and examples else model for role, model in models.items()
    }


class _Shown:
    def __init__(self, inner: Model, examples: tuple[WorkedExample, ...]) -> None:
        self._inner = inner
        self._text = prompts.render("worked_examples.md.j2", examples=examples)

    @property
    def name(self) -> str:
        return self._inner.name

    def ask(self, request: Request) -> Reply:
        messages = list(request.messages)
        first = next(place for place, message in enumerate(messages) if message.role == "user")
        messages[first] = Message("user", f"{self._text}\n{messages[first].content}")
        return self._inner.ask(changed(request, messages=tuple(messages)))
