"""What all agents know about the job, apart from the current code."""

from __future__ import annotations

from dataclasses import dataclass

from cudamaster.core.values import Hardware, Precision


@dataclass(frozen=True)
class Brief:
    """Task, interface and device of one run.

    `description` is the task card in words, `declaration` the wrapper's C declaration without a semicolon,
    `default_command` the compile command of a candidate if no agent chose one. `headers` are the libraries whose
    headers a candidate may include.
    """

    task: str
    precision: Precision
    title: str
    description: str
    wrapper: str
    declaration: str
    default_command: str
    hardware: Hardware
    headers: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, str | tuple[str, ...]]:
        """The facts that every request carries."""
        return {"task": self.task, "precision": self.precision.value}
