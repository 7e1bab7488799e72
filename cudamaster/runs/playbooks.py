"""The playbook with what suites give it: kernels for a task of any shape."""

from __future__ import annotations

from collections.abc import Mapping

from cudamaster.core import resources
from cudamaster.models.playbook import PlaybookModel, Step, Steps, read_steps
from cudamaster.tasks import hgemm


def hgemm_steps(task: str) -> tuple[Step, ...]:
    """The steps for a task of the suite hgemm: those of its layout and sums. Raises UsageError for no such task."""
    found = hgemm.parse_name(task)
    return read_steps(resources.package() / "playbook" / hgemm.SUITE / found.variant, task)


SUITES: Mapping[str, Steps] = {hgemm.SUITE: hgemm_steps}


def playbook() -> PlaybookModel:
    """The shipped playbook, with a user's own and with the suites."""
    return PlaybookModel(suites=SUITES)
