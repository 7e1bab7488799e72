"""Splits held-out tasks off, so that nothing of them, and no near copy of their kernels, is left to train on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from cudamaster.core.errors import UsageError, nearest
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.near_copies import Pair, between

_FEW = 10


@dataclass(frozen=True)
class Split:
    """Kernels to train on, kernels of held-out tasks, and those that are in neither.

    `near` are kernels of other tasks that are near copies of a held-out one, each with the most similar one, and
    `beside` those whose baseline is: every prompt for them would show it.
    """

    train: tuple[JudgedKernel, ...]
    held_out: tuple[JudgedKernel, ...] = ()
    near: tuple[tuple[JudgedKernel, Pair], ...] = ()
    beside: tuple[JudgedKernel, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The held-out tasks."""
        return tuple(sorted({one.candidate.task for one in self.held_out}))


def split(
    kernels: Sequence[JudgedKernel],
    names: Sequence[str],
    categories: Sequence[str],
    *,
    threshold: float,
    refuse: bool = False,
) -> Split:
    """The kernels, split by globs of task names and by categories; without any, all are to train on.

    A training kernel that is as similar as `threshold` or more to any held-out one, right or refused, in whatever
    precision, is left out. With `refuse` it is an error that lists the pairs. Raises UsageError also for a glob or a
    category that no kernel has, and where nothing is left to train on.
    """
    if not names and not categories:
        return Split(tuple(kernels))
    _must_match("task", names, {one.candidate.task for one in kernels}, "--hold-out")
    _must_match("category", categories, {one.provenance.category for one in kernels}, "--hold-out-category")

    def is_held_out(kernel: JudgedKernel) -> bool:
        named = any(fnmatch(kernel.candidate.task, each) for each in names)
        return named or any(fnmatch(kernel.provenance.category, each) for each in categories)

    held_out = [one for one in kernels if is_held_out(one)]
    others = [one for one in kernels if not is_held_out(one)]
    pairs = {pair.first: pair for pair in between(_codes(others), _codes(held_out), threshold)}
    near = [(one, pairs[_name(one)]) for one in others if _name(one) in pairs]
    if near and refuse:
        listed = "; ".join(_described(kernel, pair) for kernel, pair in near[:_FEW])
        more = f"; and {len(near) - _FEW} more" if len(near) > _FEW else ""
        reason = f"{len(near)} kernels to train on are near copies of held-out ones: {listed}{more}."
        raise UsageError(reason, "Hold out their tasks too, or leave --near-copies refuse out, which leaves them out.")
    prompts = {_of_baseline(one) for one, _ in near if one.provenance.is_baseline}
    beside = [one for one in others if _name(one) not in pairs and _of_baseline(one) in prompts]
    gone = {_name(one) for one in beside} | set(pairs)
    train = [one for one in others if _name(one) not in gone]
    if not train:
        raise UsageError(
            f"Nothing is left to train on: {len(held_out)} kernels are of held-out tasks, and {len(gone)} are near "
            "copies of theirs or answer to such a baseline.",
            "Hold out less, or export more tasks.",
        )
    return Split(tuple(train), tuple(held_out), tuple(near), tuple(beside))


def _must_match(what: str, patterns: Sequence[str], known: Iterable[str], option: str) -> None:
    there = sorted(known)
    for pattern in patterns:
        if not any(fnmatch(each, pattern) for each in there):
            fix = nearest(pattern, there, f"{option} takes {', '.join(there[:20])}, and globs.")
            raise UsageError(f"The sources have no kernel of a {what} {pattern!r}.", fix)


def _name(kernel: JudgedKernel) -> str:
    """What tells kernels apart here: of one code there may be several, by suites, GPUs and commands."""
    about, candidate = kernel.provenance, kernel.candidate
    return f"{about.suite} {candidate.task} {candidate.precision.value} {candidate.id} {kernel.gpu}"


def _codes(kernels: Iterable[JudgedKernel]) -> dict[str, str]:
    return {_name(one): one.candidate.code for one in kernels}


def _of_baseline(kernel: JudgedKernel) -> tuple[str, str, str]:
    """The task whose prompts show this kernel's baseline. Of two baselines, by two cards, one is enough."""
    return kernel.provenance.suite, kernel.candidate.task, kernel.candidate.precision.value


def _described(kernel: JudgedKernel, pair: Pair) -> str:
    """A pair for people: tasks, precisions and ids, and how similar they are."""
    mine = f"{kernel.candidate.task} ({kernel.candidate.precision.value}, {kernel.candidate.id})"
    _, task, precision, candidate, *_ = pair.second.split(" ")
    return f"{mine} and {task} ({precision}, {candidate}), {pair.similarity:.2f}"
