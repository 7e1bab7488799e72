"""Eager PyTorch as a baseline, held against a timing of the same module that has nothing of ours in it.

    python benchmarks/kernelbench.py [--json FILE]

On a GPU, with a Python that has PyTorch for CUDA ($CUDAMASTER_PYTHON, or the one that runs this). It imports the four
problems of examples/kernelbench, evaluates the kernel that lies beside each, and times each module once more by
torch.utils.benchmark in a process of its own: single calls from an idle GPU with a cold L2 cache, as the judge makes
them, and calls one behind the other. It ends with 1 if a kernel is wrong, or if the single calls take twice or half as
long as the judge says: these calls are the host's work, and two processes on one machine differ by half.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from cudamaster.build import eager
from cudamaster.core.values import Candidate
from cudamaster.devices.choose import choose
from cudamaster.kernelbench import folders, problem, writing
from cudamaster.workbench.evaluation import Workbench

EXAMPLES = Path(__file__).parent.parent / "examples" / "kernelbench"
AGREE = 2.0
INDEPENDENT = """
import importlib.util, json, sys
import torch
from torch.utils.benchmark import Timer
spec = importlib.util.spec_from_file_location("problem", sys.argv[1])
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)
model = problem.Model(*problem.get_init_inputs()).cuda()
inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in problem.get_inputs()]
scratch = torch.zeros(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, dtype=torch.int32, device="cuda")
with torch.no_grad():
    for _ in range(10):
        model(*inputs)
    timer = Timer("model(*inputs)", globals={"model": model, "inputs": inputs})
    single = []
    for _ in range(200):
        scratch.amax()
        torch.cuda.synchronize()
        single.append(timer.timeit(1).mean * 1e6)
    print(json.dumps({"single": single, "behind": timer.blocked_autorange(min_run_time=0.5).median * 1e6}))
"""


def independent(file: Path) -> tuple[float, float]:
    """Microseconds of a call of the module: alone, and one behind the other."""
    command = [eager.python(), "-c", INDEPENDENT, str(file)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout)
    return statistics.median(told["single"]), told["behind"]


def main() -> None:
    """All four."""
    device, found, fine = choose("cuda"), [], True
    print(f"PyTorch {eager.torch_of(eager.python())[0]} of {eager.python()} on {device.hardware().name}")
    print(
        f"{'task':22} {'eager µs':>9} {'ours µs':>9} {'P':>6} {'torch.benchmark µs':>19} {'behind µs':>10} {'ratio':>6}"
    )
    with tempfile.TemporaryDirectory() as place:
        folder = folders.opened(Path(place) / "examples", None)
        for number, file in enumerate(sorted(EXAMPLES.glob("*.py")), 1):
            card = writing.write(problem.read(file), folder, file.stem, number).card
            bench = Workbench(card, card.precisions[0], device)
            code = (EXAMPLES / "kernels" / f"{file.stem}.cu").read_text(encoding="utf-8")
            verdict = bench.evaluate(Candidate(card.name, card.precisions[0], code, device.default_command))
            own = bench.evaluate(bench.baseline)
            single, behind = independent(file)
            times = next((case.times_us for case in verdict.cases if case.sweep and case.times_us), None)
            if not verdict.correct or not own.correct or times is None or verdict.score is None:
                fine = False
                print(f"{file.stem:22} {verdict.status}: {verdict.detail}; baseline {own.status}: {own.detail}")
                print(verdict.log)
                continue
            ratio = times[0] / single
            agrees = 1 / AGREE < ratio < AGREE
            fine = fine and agrees
            told = f"{times[0]:9.1f} {times[1]:9.1f} {verdict.score:6.2f} {single:15.1f} {behind:7.1f} {ratio:6.2f}"
            word = "agrees" if agrees else "too far apart"
            print(f"{file.stem:22} {told} {word}; eager against itself {own.score}")
            found.append(
                {
                    "task": file.stem,
                    "eager_us": times[0],
                    "ours_us": times[1],
                    "p": verdict.score,
                    "interval": None if verdict.speed is None else [*vars(verdict.speed.interval).values()],
                    "independent_us": single,
                    "behind_us": behind,
                    "notes": list(verdict.notes),
                    "isolation": verdict.hardware.get("isolation"),
                }
            )
    if "--json" in sys.argv:
        Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
