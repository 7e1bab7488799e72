"""Kernels of saved reports and of results that were kept on purpose: the best one of each, without its raw times."""

from __future__ import annotations

from collections.abc import Sequence

from cudamaster.core.values import Candidate, CaseVerdict, Status, Verdict
from cudamaster.report.data import CaseResult, Kernel, TaskResult
from cudamaster.tasks import cards
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of, harness_of

_NO_SAMPLES = "from a saved result, which keeps medians and intervals and no raw times"


def kernels_of(result: TaskResult) -> list[JudgedKernel]:
    """The best kernel of a result and its baseline, as far as it has them.

    A search ends at once if its baseline fails, so that of a judged kernel is right; its P is 1 by definition.
    """
    found = []
    if result.baseline is not None:
        detail = "the baseline of a search, which it could not have begun without"
        verdict = _verdict(result, result.baseline, Status.CORRECT, detail, score=1.0)
        found.append(_judged(result, result.baseline, verdict, is_baseline=True))
    if result.best is not None and result.status is not None:
        verdict = _verdict(result, result.best, result.status, _NO_SAMPLES, score=result.score, cases=result.cases)
        found.append(_judged(result, result.best, verdict))
    return found


def _verdict(
    result: TaskResult,
    kernel: Kernel,
    status: Status,
    detail: str,
    *,
    score: float | None,
    cases: Sequence[CaseResult] = (),
) -> Verdict:
    own = bool(cases)
    return Verdict(
        candidate=kernel.candidate,
        device="cpu" if result.hardware.emulated else "cuda",
        emulated=result.hardware.emulated,
        status=status,
        detail=detail,
        score=score,
        speed=result.speed if own else None,
        complete=result.complete,
        notes=result.notes if own else (),
        sanitizers=result.sanitizers if own else {},
        cases=tuple(_case(case) for case in cases),
        modelled=result.hardware.modelled,
    )


def _case(case: CaseResult) -> CaseVerdict:
    return CaseVerdict(
        label=case.label,
        sweep=True,
        weight=case.weight,
        status=case.status,
        skipped=case.skipped,
        empty_us=case.empty_us,
        floor_us=case.floor_us,
    )


def _judged(result: TaskResult, kernel: Kernel, verdict: Verdict, *, is_baseline: bool = False) -> JudgedKernel:
    about = Provenance(
        suite=result.suite or cards.MSKERNELBENCH,
        category=result.category,
        card_hash=result.card_hash or "",
        harness=harness_of(result.versions),
        source=result.origin,
        idea="" if is_baseline else result.idea or "",
        is_baseline=is_baseline,
        gpu=gpu_of(result.hardware),
        started=result.started,
        author="" if is_baseline else result.author or "",
    )
    return JudgedKernel(Candidate(result.task, result.precision, kernel.code, kernel.command), verdict, about)
