"""The playbook with what suites give it: kernels for a task of any shape."""

from __future__ import annotations

from collections.abc import Mapping

from cudamaster.families.steps import steps
from cudamaster.models.playbook import PlaybookModel, Steps
from cudamaster.tasks import hgemm

SUITES: Mapping[str, Steps] = {hgemm.SUITE: steps}


def playbook() -> PlaybookModel:
    """The shipped playbook, with a user's own and with the suites."""
    return PlaybookModel(suites=SUITES)
