"""What a role is asked, for tests of prompts: about the recorded kernels, or as `cudamaster prompt` shows it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from recorded_runs import COMMAND, hardware

from cudamaster.agents.brief import Brief
from cudamaster.cli import main
from cudamaster.core.values import Candidate, Findings, Precision, Role, Verdict
from cudamaster.runs import prompting
from cudamaster.tasks import cards


def brief_of(task: str, precision: str = "fp32") -> Brief:
    card, which = cards.load(task), Precision(precision)
    return Brief(
        task=task,
        precision=which,
        title=card.title,
        description=card.describe(which),
        wrapper=card.wrapper(which, optimized=True),
        declaration=card.declaration(which),
        default_command=COMMAND,
        hardware=hardware(),
    )


def asked(role: Role, candidate: Candidate, told: Verdict, found: Findings | None = None) -> tuple[str, str]:
    """The system and the user message."""
    brief = brief_of(candidate.task, candidate.precision.value)
    none = Findings(candidate.id, "there is none.")
    request = prompting.of_kernel(role, brief, candidate, candidate, told, found or none)
    system, user = request.messages
    return system.content, user.content


def rows(prompt: str) -> list[list[str]]:
    """Cells of the table of cases."""
    lines = [line for line in prompt.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shown(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["prompt", *map(str, arguments)])
