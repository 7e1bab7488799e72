"""The model and the judges take turns on a GPU that they share.

Times that are taken while a model computes on the same GPU are worth nothing. So the model computes only while it
holds its GPUs (devices/cuda.py), as a judge does that measures, and whoever measures there waits: our own judges, and
those of other programs. Where the judges have other GPUs, both go on at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from cudamaster.core.errors import DeviceError
from cudamaster.core.values import Verdict
from cudamaster.devices.cuda import LocalGpu, computing_on


class Turns:
    """Whose turn it is on the GPUs that the model computes on. Without GPUs everybody goes on at once."""

    def __init__(self, gpus: Sequence[LocalGpu], finish: Callable[[], None]) -> None:
        """`finish` waits for what the model still computes on its GPUs, and gives memory back."""
        self.gpus = tuple(gpus)
        self._finish = finish
        self._held: ExitStack | None = None

    @property
    def is_models(self) -> bool:
        """Whether it is the model's turn."""
        return self._held is not None

    @contextmanager
    def of_model(self) -> Iterator[None]:
        """The model computes inside the block, but where `of_judges` lends its turn to the judges."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def of_judges(self) -> Iterator[None]:
        """Inside the block the model does not compute, and judges may measure on its GPUs."""
        had = self._held is not None
        self._give()
        try:
            yield
        finally:
            if had:
                self._take()

    def _take(self) -> None:
        if self._held is not None:
            raise RuntimeError("it is the model's turn already")
        self._held = ExitStack()
        self._held.enter_context(computing_on(self.gpus))

    def _give(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            try:
                if self.gpus:
                    self._finish()
            finally:
                held.close()


def must_have_room(verdict: Verdict, turns: Turns, judges: Sequence[LocalGpu]) -> None:
    """Raise DeviceError where a case was left out for want of memory on a GPU that the model is on."""
    if not set(judges) & set(turns.gpus):
        return
    for case in verdict.cases:
        if case.skipped is not None and "memory" in case.skipped:
            raise DeviceError(
                f"The model leaves too little memory to judge on the same GPU: case {case.label}: {case.skipped}.",
                "Another GPU is needed: put the model on one with model.device, and the judges take the others.",
            )
