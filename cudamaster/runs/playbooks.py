"""The playbook with what suites give it: kernels for a task of any shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cudamaster.families.steps import steps
from cudamaster.models.playbook import PlaybookModel, Steps
from cudamaster.tasks import hgemm

SUITES: Mapping[str, Steps] = {hgemm.SUITE: steps}


def playbook(own: Path | None = None) -> PlaybookModel:
    """The shipped playbook, with a user's own and with the suites; `own` as in PlaybookModel."""
    return PlaybookModel(suites=SUITES, own=own)
