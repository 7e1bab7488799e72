"""The model of the GPU: counts of kernels, the fit of its constants, and how far it is off (docs/gpu_model.md).

    python benchmarks/gpu_model.py counts TASK-PRECISION [FILE.cu] [--case heaviest|all|LABEL]
    python benchmarks/gpu_model.py counters
    python benchmarks/gpu_model.py count-all --out FOLDER [-j 2] [--tasks GLOB] [--cases 3]
    python benchmarks/gpu_model.py pack FOLDER
    python benchmarks/gpu_model.py times FOLDER... [--out results/h200/times.csv]
    python benchmarks/gpu_model.py measure [--out results/h200/times.csv] [-j 4]
    python benchmarks/gpu_model.py collect --out FOLDER [--tasks GLOB...] [--seconds S]
    python benchmarks/gpu_model.py tables FOLDER...
    python benchmarks/gpu_model.py fit | validate | intervals | parts | classes | draw | worth | ranges
    python benchmarks/gpu_model.py instructions
    python benchmarks/gpu_model.py whole --out FOLDER [-j 2]

`counts` prints what a kernel does, by default the baseline at its heaviest case, as JSON, and the seconds that took.
`count-all` goes on where it was stopped; what failed is kept with its reason, and `--again` tries it once more.
`times` adds what runs measured of playbook kernels to a table of times. `measure` needs a machine of one GPU, and times
there what the table lacks: kernels of tasks that allocate memory in a call.
`whole` does all from counting every timed case to the picture, one after the other (an hour on two cores).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import gpu_model_collecting as collecting
import gpu_model_counters as counters
import gpu_model_counting as counting
import gpu_model_data as data
import gpu_model_instructions as instructions
import gpu_model_intervals as intervals
import gpu_model_measuring as measuring
import gpu_model_tables as tables
import gpu_model_times as times
import gpu_model_validation as validation
import gpu_model_worth as worth

from cudamaster.cli.output import report_error
from cudamaster.core.errors import CudaMasterError

_ALL_CASES = 100
_LIMIT_S = 600.0


def main() -> None:
    """Run one subcommand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("counts", help="print what one kernel does")
    shown.add_argument("task", help="TASK-PRECISION")
    shown.add_argument("file", type=Path, nargs="?", help="a kernel; by default the baseline")
    shown.add_argument("--case", default="heaviest", help="heaviest, all, or a label")
    held = commands.add_parser("counters", help="hold counts against Nsight Compute's on an H200")
    held.add_argument("--to", type=Path, default=validation.FOLDER / "counters.md")
    every = commands.add_parser("count-all", help="count baselines and playbook kernels")
    every.add_argument("--out", type=Path, required=True, help="folder, which later runs go on in")
    every.add_argument("-j", "--jobs", type=int, default=2, help="kernels at a time")
    every.add_argument("--tasks", default="*", help="TASK or TASK-PRECISION, with * and ?")
    every.add_argument("--cases", type=int, default=3, help="timed cases of each kernel, from heaviest to lightest")
    every.add_argument("--limit", type=float, default=_LIMIT_S, help="seconds for one kernel")
    every.add_argument("--again", action="store_true", help="count what failed once more")
    one = commands.add_parser("count-one", help="count one kernel, as count-all does in a process of its own")
    one.add_argument("folder", type=Path)
    one.add_argument("task")
    one.add_argument("precision")
    one.add_argument("code", help="hash of its text")
    one.add_argument("--cases", type=int, default=3)
    packed = commands.add_parser("pack", help="make one file of counts that are kept in a folder")
    packed.add_argument("folder", type=Path)
    packed.add_argument("--to", type=Path, default=validation.COUNTS)
    taken = commands.add_parser("times", help="add times of the kernels of runs to a table")
    taken.add_argument("folder", type=Path, nargs="+", help="run folders, or folders that hold some")
    taken.add_argument("--out", type=Path, default=validation.TIMES)
    alone = commands.add_parser("measure", help="time playbook kernels that a table lacks, on a machine of one GPU")
    alone.add_argument("--out", type=Path, default=validation.TIMES)
    alone.add_argument("-j", "--jobs", type=int, default=4, help="kernels that are built at a time")
    for name, words in (
        ("fit", "fit the constants"),
        ("validate", "hold the model against measured times"),
        ("intervals", "fit the intervals of speedups, and hold them against both"),
        ("parts", "hold each part of it against counters"),
        ("classes", "hold classes against measured ones"),
        ("worth", "what each part of the formulas is worth"),
        ("ranges", "how far errors move within the ranges of figures"),
    ):
        commands.add_parser(name, help=words).add_argument("--gpu", default="h200")
    commands.add_parser("draw", help="draw what validate found")
    commands.add_parser("instructions", help="fit the number of instructions to what Nsight Compute counted")
    collected = commands.add_parser("collect", help="times and counters of all kernels and their variants, on GPUs")
    collected.add_argument("--out", type=Path, required=True, help="folder, which later runs go on in")
    collected.add_argument("--earlier", type=Path, nargs="*", default=[], help="folders with what was measured before")
    tabled = commands.add_parser("tables", help="make tables of what collect kept")
    tabled.add_argument("folder", type=Path, nargs="+")
    collected.add_argument("--tasks", nargs="*", default=[], help="TASK or TASK-PRECISION, with * and ?")
    collected.add_argument("--plain", action="store_true", help="no variants")
    collected.add_argument("--leave-out", type=Path, help="file with the hashes of variants that are known to be wrong")
    collected.add_argument(
        "-j", "--jobs", type=int, default=os.cpu_count() or 1, help="kernels that are built at a time"
    )
    collected.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after that")
    whole = commands.add_parser("whole", help="count, pack, fit, validate, intervals, classes and draw")
    whole.add_argument("--out", type=Path, required=True, help="folder for counts, which later runs go on in")
    whole.add_argument("-j", "--jobs", type=int, default=2, help="kernels at a time")
    whole.add_argument("--gpu", default="h200")
    given = parser.parse_args()
    match given.command:
        case "counters":
            counters.compare(given.to)
        case "counts":
            counting.show(given.task, given.file, given.case)
        case "count-all":
            if given.again:
                data.forget_failed(given.out)
            data.count_all(given.out, given.jobs, given.tasks, given.cases, given.limit)
        case "count-one":
            print(data.count_one(given.folder, given.task, given.precision, given.code, given.cases))
        case "pack":
            data.pack(given.folder, given.to)
        case "times":
            times.update(given.folder, given.out, validation.COUNTS)
        case "measure":
            measuring.measure(given.out, given.jobs)
        case "collect":
            wrong = frozenset(given.leave_out.read_text().split() if given.leave_out else ())
            collecting.collect(given.out, given.earlier, given.tasks, wrong, given.plain, given.jobs, given.seconds)
        case "tables":
            tables.make(given.folder, data.MEASURED, validation.FOLDER / "counters.csv.gz")
        case "fit":
            validation.run_fit(given.gpu)
        case "validate":
            validation.run_validate(given.gpu)
        case "intervals":
            intervals.run(given.gpu)
        case "parts":
            validation.run_parts(given.gpu)
        case "classes":
            validation.run_classes(given.gpu)
        case "worth":
            worth.run_worth(given.gpu)
        case "ranges":
            worth.run_ranges(given.gpu)
        case "draw":
            validation.run_draw()
        case "instructions":
            instructions.run()
        case "whole":
            data.count_all(given.out, given.jobs, "*", _ALL_CASES, _LIMIT_S)
            data.pack(given.out, validation.COUNTS)
            validation.run_fit(given.gpu)
            validation.run_validate(given.gpu)
            intervals.run(given.gpu)
            validation.run_classes(given.gpu)
            validation.run_draw()


if __name__ == "__main__":
    try:
        main()
    except CudaMasterError as error:
        report_error(error)
        sys.exit(error.exit_code)
