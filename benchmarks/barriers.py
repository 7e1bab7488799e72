"""Tries the CPU device's checker on every kernel that we have, and on each without one of its barriers.

    python benchmarks/barriers.py honest [GLOB]     # of baselines and playbook kernels nothing may be found
    python benchmarks/barriers.py mutants [GLOB]    # of each mutant something has to be
    python benchmarks/barriers.py table             # results/cpu/barriers.md from what the two have found so far

GLOB is matched against "task-precision". A mutant that nothing refuses is examined by hand. If it does
what the kernel did, results/cpu/equivalent_barriers.yaml lists it with the reason. Results are kept in
results/cpu/barriers.jsonl by what they depend on, so a run continues where it was stopped.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.faults import cpu_checker
from cudamaster.judging.judge_process import CHECK_LIMIT_S, Trial
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case
from cudamaster.workbench.evaluation import Workbench

RESULTS = Path(__file__).parents[1] / "results" / "cpu"
FOUND = RESULTS / "barriers.jsonl"
EQUIVALENT = RESULTS / "equivalent_barriers.yaml"
TABLE = RESULTS / "barriers.md"
BARRIER = re.compile(
    r"(?:\b__syncthreads|\b__syncwarp|\b__barrier_sync)\s*\([^()]*\)\s*;|\b[\w:]*(?:\.|::)sync\s*\([^()]*\)\s*;"
    r"|\bcg::sync\s*\([^()]*\)\s*;"
)
SEED = 20261122
# What verification cases of the playbook's kernels do not reach, and one call at this case does: several tiles of a
# chunk, rows of fragments.
LARGER: dict[str, dict[str, int | float]] = {
    "prefix_sum": {"N": 2200000},
    "square_matrix_mul": {"M": 704},
    "matrix_power": {"N": 704, "P": 2},
}
# A second pass over heads comes with more heads than a grid has blocks; with two blocks the verification cases have it.
HEADS_AT_ONCE = {"triangle_attention": ("65535", "2"), "merge_attn_states": ("65535", "2")}


@dataclass(frozen=True)
class Kernel:
    """A kernel of ours, or one with a barrier taken out; `barrier` is that one's number, from 1, and its line."""

    task: str
    precision: Precision
    name: str
    code: str
    barrier: int | None = None
    line: int | None = None

    @property
    def label(self) -> str:
        """Its name in the results."""
        return f"{self.task}-{self.precision} {self.name}" + (
            "" if self.barrier is None else f" without {self.barrier}"
        )

    @property
    def mutants(self) -> Iterator[Kernel]:
        """The kernel with each of its barriers taken out; comments have none."""
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", lambda found: re.sub(r"[^\n]", " ", found[0]), self.code, flags=re.DOTALL)
        for number, found in enumerate(BARRIER.finditer(plain), 1):
            gap = re.sub(r"[^\n;]", " ", found[0])
            line = plain.count("\n", 0, found.start()) + 1
            code = self.code[: found.start()] + gap + self.code[found.end() :]
            yield Kernel(self.task, self.precision, self.name, code, number, line)


def kernels(pattern: str) -> Iterator[Kernel]:
    """Baselines and playbook kernels of the tasks that match, as regions."""
    device = CpuDevice()
    for card in map(cards.load, cards.names()):
        for precision in BENCHMARK_PRECISIONS:
            if not fnmatch.fnmatch(f"{card.name}-{precision}", pattern):
                continue
            bench = Workbench(card, precision, device, modelled=False)
            yield Kernel(card.name, precision, "baseline", bench.baseline.code)
            for file in sorted((resources.package() / "playbook" / card.name / precision).glob("*.cu")):
                yield Kernel(card.name, precision, file.stem, file.read_text())


def look(kernel: Kernel) -> dict[str, Any]:
    """The result for a kernel: the checker's if it finds something, otherwise that of the whole check."""
    device = CpuDevice()
    bench = Workbench(cards.load(kernel.task), kernel.precision, device, modelled=False, seed=SEED)
    candidate = Candidate(kernel.task, kernel.precision, kernel.code, device.default_command)
    started = time.monotonic()
    status, detail = checked(bench, candidate)
    larger = LARGER.get(kernel.task) if status is Status.CORRECT and kernel.name != "baseline" else None
    if larger is not None and (found := found_at(bench, candidate, bench.card.case(larger))):
        status, detail = Status.FAULT, found
    if status is Status.CORRECT and kernel.task in HEADS_AT_ONCE:
        code = kernel.code.replace(*HEADS_AT_ONCE[kernel.task])
        fewer = Candidate(kernel.task, kernel.precision, code, device.default_command)
        status, detail = checked(bench, fewer)
    if kernel.barrier is not None and status is Status.CORRECT:
        whole = bench.evaluate(candidate, check_only=True)
        status, detail = whole.status, whole.detail
    bench.forget(candidate)
    return {
        "label": kernel.label, "line": kernel.line, "id": candidate.id, "status": str(status),
        "detail": detail, "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip


def checked(bench: Workbench, candidate: Candidate) -> tuple[Status, str]:
    """What only the checker says about a candidate, which the guards need not have seen."""
    with bench._builder.using(candidate):
        bench.build_shared()
        looked = bench._faults.look(candidate, SEED, first_failure=True)
    assert looked is not None
    if looked.found:
        return Status.FAULT, "; ".join(report.summary for report in looked.found)
    return looked.judgement.status, looked.judgement.detail


def found_at(bench: Workbench, candidate: Candidate, case: Case) -> str:
    """What the checker finds in one call at a case of any size; the result is not checked.

    Neither the baseline nor the reference runs, since both take long at large sizes.
    """
    with bench._builder.using(candidate):
        worker = bench._builder.checked_worker(candidate).worker
        assert worker is not None
        request = JudgeRequest(candidate=(str(worker), "--exact"), cases="none", seed=SEED, calls=0, launches=True)
        drawn = case.model_copy(update={"held_out": True})
        _, ran = bench._trials.report(Trial(request, [drawn], CHECK_LIMIT_S))
    found = "; ".join(each.summary for each in cpu_checker.reports(ran.stderr, worker, candidate.code) if each.findings)
    if ran.exit_code != 0 and not found:
        sys.exit(f"{case.label} did not end: {ran.stderr[-300:]}")
    return found


def known() -> dict[str, dict[str, Any]]:
    """Results so far, by label."""
    lines = FOUND.read_text().splitlines() if FOUND.is_file() else []
    return {found["label"]: found for found in map(json.loads, lines)}


def go_through(wanted: Iterator[Kernel]) -> int:
    """Try each kernel without a result, and report unexpected results."""
    before, surprises = known(), 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    for kernel in wanted:
        identity = Candidate(kernel.task, kernel.precision, kernel.code, CpuDevice.default_command).id
        if before.get(kernel.label, {}).get("id") == identity:
            continue
        found = look(kernel)
        with FOUND.open("a") as file:
            file.write(json.dumps(found) + "\n")
        surprise = (found["status"] == "correct") == (kernel.barrier is not None)
        surprises += surprise
        mark = "LOOK AT" if surprise else "as it should"
        print(f"{mark}: {kernel.label}: {found['status']}, {found['detail'][:160]} ({found['seconds']} s)", flush=True)
    return surprises


def _refused_by(found: dict[str, Any]) -> str:
    checker = ("Race ", "that nothing has written", "outside of", "Misaligned")
    return "the checker" if any(words in found["detail"] for words in checker) else f"the rest ({found['status']})"


def table() -> str:
    """The results in words and figures."""
    found = list(known().values())
    honest = [each for each in found if each["line"] is None]
    mutants = [each for each in found if each["line"] is not None]
    equivalent = yaml.safe_load(EQUIVALENT.read_text()) if EQUIVALENT.is_file() else {}
    passed = [each for each in mutants if each["status"] == "correct"]
    by = Counter(_refused_by(each) for each in mutants if each["status"] != "correct")
    raised = [each for each in honest if each["status"] != "correct"]
    lines = [
        "# Barriers taken out, on the CPU device", "",
        "Made by `python benchmarks/barriers.py`. One line for each kernel of ours: how many barriers it has, how many",
        "of the kernels without one of them were refused, and how many were not: because they do what the kernel did,",
        "or by our rule on collectives: equivalent_barriers.yaml says which, and why. Where no verification case gets",
        "to a barrier, a larger case does, or the kernel with a smaller grid.", "",
        f"- {len(honest)} honest kernels, {len(raised)} of which raise something.",
        f"- {len(mutants)} mutants: {len(mutants) - len(passed)} refused "
        f"({', '.join(f'{count} by {name}' for name, count in by.most_common())}), {len(passed)} not.", "",
        "| kernel | barriers | refused | listed | not listed |", "|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for label in dict.fromkeys(each["label"].partition(" without")[0] for each in mutants):
        own = [each for each in mutants if each["label"].startswith(f"{label} without")]
        missed = [each for each in own if each["status"] == "correct"]
        listed = [each for each in missed if each["label"] in equivalent]
        lines.append(
            f"| {label} | {len(own)} | {len(own) - len(missed)} | {len(listed)} | {len(missed) - len(listed)} |"
        )
    for each in raised:
        lines.append(f"\nRaised by an honest kernel, {each['label']}: {each['detail']}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["honest", "mutants", "table"])
    parser.add_argument("glob", nargs="?", default="*")
    asked = parser.parse_args()
    if asked.what == "table":
        TABLE.write_text(table())
        return 0
    ours = kernels(asked.glob)
    wanted = ours if asked.what == "honest" else (mutant for kernel in ours for mutant in kernel.mutants)
    return 1 if go_through(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
