"""A contrastive search by a script, for tests of its rounds."""

from __future__ import annotations

from dataclasses import asdict

import search_stand_ins
from search_stand_ins import ScriptedModel, ScriptedWorkbench, command, kernel

from cudamaster.core.values import Role
from cudamaster.strategies.contrastive import NAME, Options
from cudamaster.strategies.result import Result


def contrast(idea: str, text: str) -> tuple[Role, str]:
    """A reply in three parts."""
    parts = f"## Analysis\n\nWHY of {idea}\n\n## Algorithm\n\n{idea}\n\n1. POINTS of {idea}\n\n## Code\n"
    return Role.CODER, f"{parts}\n```cuda\n{text}```\n"


def search(
    script: list[tuple[Role, str]], rounds: int, options: Options | None = None, seed: int = 0
) -> tuple[Result, ScriptedModel, ScriptedWorkbench]:
    bench, model = ScriptedWorkbench(), ScriptedModel(script)
    chosen = asdict(options or Options())
    result = search_stand_ins.search(bench, model.for_all(), NAME, rounds, options=chosen, search_seed=seed)
    assert model.exhausted, "the strategy asked less than it should have"
    return result, model, bench


def step(idea: str, score: float | None = None, status: str = "correct") -> list[tuple[Role, str]]:
    return [contrast(idea, kernel(status, score, idea)), command()]
