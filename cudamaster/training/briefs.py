"""What a prompt says about the task and the GPU of a kernel that was judged earlier, perhaps elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from cudamaster.agents.brief import Brief
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Hardware
from cudamaster.tasks import cards
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.prompts import Form


def brief_of(form: Form, baseline: JudgedKernel, devices: Mapping[str, Hardware]) -> Brief:
    """The brief for kernels that were judged beside this baseline; `devices` are known by the names of their GPUs.

    A compact prompt needs the task's name and precision alone. The full one describes the task by its card. Raises
    UsageError and CardError where there is no such card here, or where it is not the one that they were judged by.
    """
    candidate, about = baseline.candidate, baseline.provenance
    hardware = devices.get(baseline.gpu) or _hardware_of(baseline)
    if form is Form.COMPACT:
        return Brief(candidate.task, candidate.precision, "", "", "", "", candidate.command, hardware)
    card = cards.load(candidate.task)
    if not card.times_as(about.card_hash):
        raise UsageError(
            f"The card of {card.name} has changed since its kernels were judged.",
            "Judge them again, or export --form compact, which describes no task.",
        )
    return Brief(
        task=card.name,
        precision=candidate.precision,
        title=card.title,
        description=card.describe(candidate.precision),
        wrapper=card.wrapper(candidate.precision, optimized=True),
        declaration=card.declaration(candidate.precision),
        default_command=candidate.command,
        hardware=hardware,
        headers=tuple(card.headers),
    )


def _hardware_of(kernel: JudgedKernel) -> Hardware:
    """The device as far as a verdict knows it."""
    verdict = kernel.verdict
    name = verdict.modelled.gpu if verdict.modelled is not None else kernel.gpu
    return Hardware(name, verdict.hardware, verdict.emulated, verdict.modelled)
