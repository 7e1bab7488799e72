"""The part of a report that is about one suite."""

from __future__ import annotations

from dataclasses import replace as changed

from cudamaster.core.errors import CudaMasterError, UsageError, nearest
from cudamaster.report.data import Missing, Report, TaskResult
from cudamaster.report.numbers import suite_of
from cudamaster.tasks import task_suites
from cudamaster.tasks.cards import MSKERNELBENCH


def only(report: Report, suite: str) -> Report:
    """Results of the suite of that name, or in that folder. Raises UsageError, which names those that there are.

    The name is what the results say; the suite itself need not be here. Libraries are measured on MSKernelBench.
    """
    there = dict.fromkeys(suite_in(report, one) for one in report.results)
    there |= dict.fromkeys(suite_in(report, one) for one in report.missing)
    if report.authorities:
        there[MSKERNELBENCH] = None
    known = [name for name in there if name]
    name = suite
    if suite not in known:
        try:
            found = task_suites.named(suite)
        except CudaMasterError:
            name = ""
        else:
            there_too = f"{found.name} in {found.folder}"  # where suites of several folders have its name
            name = there_too if there_too in known else found.name
        if name not in known:
            every = f"There are results of {', '.join(known)}." if known else "No result is of a known suite."
            raise UsageError(f"There is no result of a suite {suite!r}.", nearest(suite, known, every))
    return changed(
        report,
        results=tuple(one for one in report.results if suite_in(report, one) == name),
        missing=tuple(one for one in report.missing if suite_in(report, one) == name),
        authorities=report.authorities if name == MSKERNELBENCH else (),
        disagreements=report.disagreements if name == MSKERNELBENCH else (),
    )


def suite_in(report: Report, one: TaskResult | Missing) -> str:
    """The suite that a result is of; empty for a task of one's own whose record does not say it."""
    return suite_of(one) or (MSKERNELBENCH if one.task in report.benchmark else "")
