"""Which kernels may be examples to follow, and which of two is surely the faster one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias

from cudamaster.bundles.contents import labels, margin
from cudamaster.core.speed import Change, between
from cudamaster.core.values import RACES_UNSEEN, Status
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.reward import blame

Group: TypeAlias = tuple[str, str, str, str, str, str]
# What another device says of these does not depend on it: a race or a wrong sum is the kernel's own.
_ANYWHERE = (Status.WRONG, Status.FAULT, Status.REJECTED)


def group_of(kernel: JudgedKernel) -> Group:
    """What two kernels must have in common to be compared: suite, task, precision, card, GPU and harness version."""
    about, candidate = kernel.provenance, kernel.candidate
    return about.suite, candidate.task, candidate.precision.value, about.card_hash, kernel.gpu, about.harness


def is_refused(kernel: JudgedKernel) -> bool:
    """Whether a kernel failed. One that a device cannot execute did not: that says nothing about it."""
    return kernel.verdict.status not in (Status.CORRECT, Status.UNSUPPORTED)


class Standing:
    """What may be an example to follow: right, timed in every case, and refused nowhere."""

    def __init__(self, kernels: Iterable[JudgedKernel], *, modelled: bool) -> None:
        """`modelled` lets in times of the model of a GPU, which are left out otherwise."""
        self._modelled = modelled
        self._refused: dict[tuple[str, ...], set[str]] = {}
        self._failed: set[tuple[str, ...]] = set()
        for one in kernels:
            if is_refused(one):
                self._failed.add(_built(one))
            if one.verdict.status in _ANYWHERE:
                self._refused.setdefault(_code(one), set()).add(one.gpu)

    def why_not(self, kernel: JudgedKernel) -> str:
        """Why a kernel is no example to follow; empty if it is one."""
        verdict = kernel.verdict
        if verdict.status is Status.UNSUPPORTED:
            return "the device cannot execute it"
        if not verdict.correct or _built(kernel) in self._failed:
            return "refused"
        if self._refused.get(_code(kernel), set()) - {kernel.gpu}:
            return "right here, refused on another device"
        if verdict.score is None or not math.isfinite(verdict.score) or verdict.mark == "emulated":
            return "right, without a time"
        skipped = any(case.skipped and case.modelled is None for case in verdict.cases)
        if skipped or not verdict.complete or verdict.lacking:
            return "right, with cases left out"
        if any(note.startswith(RACES_UNSEEN) for note in verdict.notes):
            return "right, not checked for races to the end"
        if blame(verdict) is not None:
            return "right, with findings against it"
        if verdict.modelled is not None and not self._modelled:
            return "modelled (--modelled takes them)"
        return ""

    def is_example(self, kernel: JudgedKernel) -> bool:
        """Whether a kernel may be an example to follow."""
        return not self.why_not(kernel)


def _code(kernel: JudgedKernel) -> tuple[str, str, str, str]:
    """The text as a model learns it: without blank lines around it."""
    candidate = kernel.candidate
    return kernel.provenance.suite, candidate.task, candidate.precision.value, candidate.code.strip()


def _built(kernel: JudgedKernel) -> tuple[str, ...]:
    return *_code(kernel), kernel.candidate.command, kernel.gpu


def surely_faster(
    first: JudgedKernel, second: JudgedKernel, margins: Callable[[JudgedKernel], float] | None = None
) -> bool:
    """Whether `first` is surely faster than `second`, by P of both.

    Both are of one group. Against the baseline, the verdict of the kernel itself decides: they were timed in turn. Two
    kernels were not, so their intervals have to lie apart, and the ratio has to exceed what differs from one process to
    the next (`core.speed.between`); both were timed by the same protocol, in the same cases, and have raw samples or
    modelled times. What is not known that well is not known. `margins` gives that difference for a kernel, by default
    from its raw samples.
    """
    if group_of(first) != group_of(second):
        return False
    one, other = first.verdict.speed, second.verdict.speed
    if second.provenance.is_baseline:
        return one is not None and one.change is Change.FASTER and one.interval.low > 1
    if first.provenance.is_baseline:
        return other is not None and other.change is Change.SLOWER and other.interval.high < 1
    if one is None or other is None or _protocol(first) != _protocol(second):
        return False
    if not labels(first.verdict) or labels(first.verdict) != labels(second.verdict):
        return False
    of = margins or margin_of
    return one.interval.low > other.interval.high and between(other, one, (of(second), of(first)))[0] is Change.FASTER


def margin_of(kernel: JudgedKernel) -> float:
    """What P of a kernel may differ by from one process to the next, a part of 1; 0 for modelled times."""
    return margin(kernel.verdict)


def _protocol(kernel: JudgedKernel) -> tuple[object, ...]:
    """How the times were got: the calls of the protocol, or the version of the model."""
    verdict = kernel.verdict
    return tuple(sorted(verdict.protocol.items())), verdict.modelled and verdict.modelled.version
