"""How far the harness's times can be trusted: measured on the GPU found, printed, and kept as JSON.

    python benchmarks/timing.py same [TASK-PRECISION...] [--processes 5] [--blocks 20]   a kernel against itself
    python benchmarks/timing.py all [TASK-PRECISION...]                      every baseline against itself, once
    python benchmarks/timing.py more                    a kernel that does 5 % more work against the original
    python benchmarks/timing.py runs [TASK-PRECISION...]     the playbook's kernels in three separately started runs
    python benchmarks/timing.py clocks                  host clock, events and device clock, by length of the kernel

`same` starts both sides as new processes PROCESSES times, and judges the lightest and the heaviest case of a task
BLOCKS times in each, as an evaluation does it.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

from cudamaster.core.records import to_json
from cudamaster.core.speed import Change, Comparison, overall
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Verdict
from cudamaster.devices.cuda import CudaDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.judging.judge_process import Trial
from cudamaster.judging.verdicts import Judgement
from cudamaster.models.playbook import PlaybookModel, merged
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

TURNS = 50
EXTRA_SECONDS = 1.0  # the judge's default (options.h)
QUIET_US = 20.0  # cases longer than this are held to a percent
TASKS = (
    "relu-fp32 swiglu-bf16 dot_product-fp32 spmv_csr-bf16 rope-fp32 simpson_int-fp32 monte_carlo_int-bf16 "
    "matrix_scalar_mul-fp32 matrix_transpose-bf16 conv_2d-fp32"
)
EVERY = [f"{task}-{precision.value}" for task in cards.names() for precision in BENCHMARK_PRECISIONS]
MORE_WORK = "matrix_scalar_mul-fp32 matrix_scalar_mul-bf16 matrix_copy-fp32 matrix_copy-bf16"
CLOCKS = r"""
#include <cstdio>
#include <vector>
#include "mskb/timing.h"
__global__ void wait_kernel(long long cycles) { for (long long start = clock64(); clock64() - start < cycles;) {} }
double middle(std::vector<double> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2] * 1e6; }
int main() {
    using namespace mskb;
    DeviceBuffer scratch(CacheFlush::bytes());
    CacheFlush flush(static_cast<unsigned char*>(scratch.get()));
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    for (double us : {0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0}) {
        auto call = [&] { wait_kernel<<<1, 32>>>(static_cast<long long>(us * khz * 1e-3)); };
        std::vector<double> host, events, device;
        for (int i = 0; i < 210; ++i) {
            flush();
            double seconds = timed_call(call);
            float between = 0, behind = 0;
            flush();
            cudaDeviceSynchronize();
            cudaEventRecord(begin), call(), cudaEventRecord(end), cudaEventSynchronize(end);
            cudaEventElapsedTime(&between, begin, end);
            flush();
            wait_kernel<<<1, 1>>>(static_cast<long long>(100 * khz * 1e-3));
            cudaEventRecord(begin), call(), cudaEventRecord(end), cudaEventSynchronize(end);
            cudaEventElapsedTime(&behind, begin, end);
            if (i >= 10)
                host.push_back(seconds), events.push_back(between * 1e-3), device.push_back(behind * 1e-3);
        }
        std::fprintf(stderr, "%8.0f %10.2f %10.2f %10.2f\n", us, middle(host), middle(events), middle(device));
    }
}
"""


def bench(name: str, device: CudaDevice, calls: int, *, ends: bool = False) -> Workbench:
    """The workbench of "task-precision"; with `ends` of its lightest and its heaviest timed case alone."""
    task, precision = name.rsplit("-", 1)
    card = cards.load(task)
    if ends:
        timed = sorted((case for case in card.cases if case.sweep), key=lambda case: case.weight)
        sweep = [dict(case.values) for case in (timed[0], timed[-1])]
        card = cards.TaskCard.model_validate({**card.model_dump(), "sweep": sweep})
    return Workbench(card, Precision(precision), device, calls=calls)


def built(benches: Sequence[Workbench]) -> None:
    """Everything compiled before anything is timed."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each._builder.build(each.baseline), benches))


def evaluated(each: Workbench, candidate: Candidate) -> Verdict:
    """A verdict that has to be right."""
    verdict = each.evaluate(candidate)
    if not verdict.correct:
        sys.exit(f"{each.card.name} {each.precision}: {verdict.status}, {verdict.detail}\n{verdict.log}")
    return verdict


def timed(each: Workbench, options: Sequence[str] = (), repeat: int = 1) -> Judgement:
    """The baseline against itself at the timed sizes, with as little checking as the judge can do."""
    build = each._builder.build(each.baseline)
    cases = [case for case in each.card.cases if case.sweep] * repeat
    request = JudgeRequest(
        candidate=(str(build.worker),),
        cases="sweep",
        seed=secrets.randbits(63),
        others=("--oracle-operations", "1e5", "--oracle-elements", "1024", *options),
    )
    judged = each._trials.run(Trial(request, cases, 600))
    if judged.speed is None:
        sys.exit(f"{each.card.name} {each.precision}: {judged.status}, {judged.detail}\n{judged.log}")
    return judged


def same(names: Sequence[str], device: CudaDevice, processes: int, blocks: int, kept: Path | None) -> dict[str, object]:
    """A against A: how often P and S are called the same, and how far they are from 1."""
    benches = [bench(name, device, TURNS, ends=True) for name in names]
    built(benches)
    result: dict[str, object] = {}
    print("| task | P: same | abs(P-1), mean | worst | us | turns | S: same | abs(S-1), mean | worst | 1 % or more |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, each in zip(names, benches, strict=True):
        # Turns beyond the 50 may take as long as in the whole sweep.
        sweep = sum(case.sweep for case in cards.load(each.card.name).cases)
        options = ["--repeat", str(blocks), "--extra-seconds", f"{EXTRA_SECONDS / (1 + sweep) * (1 + 2 * blocks):g}"]
        whole: list[Comparison] = []
        by_case: dict[str, list[tuple[float, int, Comparison]]] = {}
        for _ in range(processes):
            judged = [case for case in timed(each, options, repeat=blocks).cases if case.timing]
            for pair in zip(judged[::2], judged[1::2], strict=True):
                whole.append(
                    overall([(c.weight, c.timing.baseline_us, c.timing.candidate_us) for c in pair if c.timing])
                )
            for case in judged:
                assert case.timing is not None
                assert case.speed is not None
                us = statistics.median(case.timing.baseline_us)
                by_case.setdefault(case.label, []).append((us, len(case.timing.baseline_us), case.speed))
        first = f"| {name} | {_same(whole)} | {_far(whole)} "
        for seen in by_case.values():
            us, turns = (statistics.median(s[k] for s in seen) for k in (0, 1))
            speeds = [speed for _, _, speed in seen]
            beyond = sum(abs(speed.speedup - 1) >= 0.01 for speed in speeds)
            print(
                f"{first}| {us:.1f} | {turns:.0f} | {_same(speeds)} | {_far(speeds)} | {beyond} of {len(seen)} |",
                flush=True,
            )
            first = "| | | | "
        result[name] = {"P": whole, "cases": by_case}
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(to_json({name: result[name]})) + "\n")
    return result


def _same(speeds: Sequence[Comparison]) -> str:
    return f"{sum(speed.change is Change.SAME for speed in speeds)} of {len(speeds)}"


def _far(speeds: Sequence[Comparison]) -> str:
    off = [abs(speed.speedup - 1) for speed in speeds]
    return f"{statistics.fmean(off):.4f} | {max(off):.4f}"


def every(names: Sequence[str], device: CudaDevice, kept: Path | None) -> dict[str, object]:
    """Baselines against themselves, once each; lines are kept in `kept` as they come."""
    benches = [bench(name, device, TURNS) for name in names]
    built(benches)
    result: dict[str, object] = {}
    changes, started = Counter[Change](), monotonic()
    quiet, beyond, turns, own_s, calls_s = 0, 0, 0, 0.0, 0.0
    for name, each in zip(names, benches, strict=True):
        judged = timed(each)
        assert judged.speed is not None
        changes[judged.speed.change] += 1
        rows = []
        for case in judged.cases:
            if case.timing is None or case.speed is None:
                continue
            us = statistics.median(case.timing.baseline_us)
            rows.append((case.label, us, case.speed.speedup, case.speed.change, len(case.timing.baseline_us)))
            turns += len(case.timing.baseline_us)
            calls_s += (sum(case.timing.baseline_us) + sum(case.timing.candidate_us)) * 1e-6
            if us > QUIET_US:
                quiet += 1
                if abs(case.speed.speedup - 1) >= 0.01:
                    beyond += 1
                    print(f"{name} {case.label}: {us:.1f} us, S {case.speed.speedup:.4f}", flush=True)
        own_s += judged.seconds.timing
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(to_json({"name": name, "P": judged.speed, "cases": rows})) + "\n")
        result[name] = {"P": judged.speed, "cases": rows, "notes": judged.notes}
        if judged.speed.change is not Change.SAME or judged.notes:
            low, high = judged.speed.interval.low, judged.speed.interval.high
            print(
                f"{name}: P {judged.speed.speedup:.4f}, {judged.speed.change} ({low:.4f} to {high:.4f}) {judged.notes}",
                flush=True,
            )
    print(f"{dict(changes)} of {len(names)}, {monotonic() - started:.0f} s")
    print(f"{beyond} of {quiet} cases over {QUIET_US:g} us are 1 % or more from 1")
    beside_ms = (own_s - calls_s) / turns * 1e3
    print(f"{turns} turns took {own_s:.0f} s, {calls_s:.0f} s of them in calls: {beside_ms:.2f} ms beside each")
    return result


def more(device: CudaDevice) -> dict[str, object]:
    """5 % more work, case by case: told apart where a call takes longer than 20 µs."""
    result = {}
    for name in MORE_WORK.split():
        each = bench(name, device, TURNS)
        code = padded(each.baseline.code)
        verdict = evaluated(each, Candidate(each.card.name, each.precision, code, each.baseline.command))
        for case in verdict.cases:
            if case.timing is None or case.speed is None:
                continue
            us = statistics.median(case.timing.baseline_us)
            on_device = [
                statistics.median(t) for t in (case.timing.baseline_device_us, case.timing.candidate_device_us)
            ]
            print(
                f"{name:24} {case.label:28} {us:9.1f} us  S {case.speed.speedup:.4f} {case.speed.change.value:7} "
                f"on the device {on_device[0] / on_device[1]:.4f}",
                flush=True,
            )
            result[f"{name} {case.label}"] = {"us": us, "speed": case.speed, "on_device": on_device}
    return result


def padded(code: str) -> str:
    """5 % more threads, which redo the first elements."""
    code, guards = re.subn(
        r"if \(i >= (.+)\)\n\s*return;",
        r"size_t n = \1;\n    if (i >= n + n / 20)\n        return;\n    i = i < n ? i : i - n;",
        code,
    )
    code, grids = re.subn(r"\((.+) - 1\) / threads \+ 1", r"(\1 + \1 / 20 - 1) / threads + 1", code)
    assert guards == grids == 1, code
    return code


def runs(names: Sequence[str], device: CudaDevice, kept: Path | None) -> dict[str, object]:
    """The last playbook step of some tasks, evaluated three times: P each time, and the spread of cases over 20 µs."""
    result: dict[str, dict[str, object]] = {}
    pairs = []
    for name in names:
        each = bench(name, device, TURNS)
        steps = PlaybookModel().steps(each.card.name, each.precision.value)
        if steps:
            step = steps[-1]
            command = merged(device.default_command, step.flags)
            pairs.append((name, each, Candidate(each.card.name, each.precision, step.code, command)))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: pair[1]._builder.build(pair[2]), pairs))
    for name, each, candidate in pairs:
        verdicts = [evaluated(each, candidate) for _ in range(3)]
        scores = [verdict.score or 0 for verdict in verdicts]
        spread, rows = 0.0, []
        for cases in zip(*[[c for c in v.cases if c.timing] for v in verdicts], strict=True):
            ratios = [case.speed.speedup for case in cases if case.speed]
            times = [case.timing for case in cases if case.timing]
            sides = {
                "baseline_us": [statistics.median(timing.baseline_us) for timing in times],
                "candidate_us": [statistics.median(timing.candidate_us) for timing in times],
            }
            if min(sides["candidate_us"]) > QUIET_US:
                spread = max(spread, max(ratios) / min(ratios) - 1)
            rows.append({"case": cases[0].label, "S": ratios, **sides})
        print(
            f"{name:24} P {scores[0]:.3f} {scores[1]:.3f} {scores[2]:.3f}  spread {max(scores) / min(scores) - 1:.4f}, "
            f"of cases over 20 us {spread:.4f}",
            flush=True,
        )
        result[name] = {"P": scores, "spread_of_long_cases": spread, "cases": rows}
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps({"name": name, **result[name]}) + "\n")
    return dict(result)


def clocks(device: CudaDevice) -> dict[str, object]:
    """One kernel of known length under three clocks, medians of 200 in microseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiled = device.compile(CLOCKS, ("-O2", "-std=c++17"), "clocks", folder)
        assert compiled.object is not None, compiled.log
        linked = device.link([compiled.object], folder / "clocks")
        assert linked.object is not None, linked.log
        ran = device.execute([str(linked.object)], 120)
    print("kernel us    host us  events us  device us")
    print(ran.stderr, end="")
    return {"table": ran.stderr}


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["same", "all", "more", "runs", "clocks"])
    parser.add_argument("tasks", nargs="*", default=[], help="TASK-PRECISION, of `same`, `all` and `runs`")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    given = parser.parse_args()
    device = CudaDevice()
    lines = given.out and given.out.with_suffix(".jsonl")
    measure: dict[str, Callable[[], dict[str, object]]] = {
        "same": lambda: same(given.tasks or TASKS.split(), device, given.processes, given.blocks, lines),
        "all": lambda: every(given.tasks or EVERY, device, lines),
        "more": lambda: more(device),
        "runs": lambda: runs(given.tasks or TASKS.split(), device, lines),
        "clocks": lambda: clocks(device),
    }
    figures = measure[given.what]()
    if given.out is not None:
        about = {"device": device.hardware().name, **device.hardware().figures}
        given.out.write_text(json.dumps(to_json({"about": about, given.what: figures})) + "\n")


if __name__ == "__main__":
    main()
