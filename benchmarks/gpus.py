"""The share of the wall time in which a suite's GPUs measure, and how a second GPU shortens the wall time.

    python benchmarks/gpus.py record FOLDER [--tasks GLOB ...]      replies to a suite; needs neither GPU nor model
    python benchmarks/gpus.py measure FOLDER [--gpus 1 2] [--ray each|one] [--compiling] [--out FILE.json]

The replies are the playbook's, and each takes as long as a reasoning model may take for it, drawn once from SECONDS
with a fixed seed: the playbook itself answers at once, which would leave only the GPU's work.
`measure` replays them in that time (`suite --replay-models FOLDER --real-time`) on the first GPU, on the first two and
so on, with all tasks begun at once. Nothing else should use the machine meanwhile. Then it says where the seconds of a
task went, on average: with models (replies), in each part of its evaluations, and in everything else, which is mostly
profiling. `--ray` uses a Ray cluster on this machine, with a node for each GPU or one node that has all of them;
`--compiling` adds a node without a GPU, which then compiles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudamaster.core import resources
from cudamaster.core.values import Role
from cudamaster.devices.cuda import find_gpus
from cudamaster.runs.folder import write_record
from cudamaster.runs.record import Exchange, decoded

TASKS = ("*elu",)  # relu, elu, selu, gelu and leaky_relu, in both precisions
# Wall seconds of a reply, lowest and highest.
SECONDS = {Role.PLANNER: (8.0, 20.0), Role.CODER: (10.0, 30.0), Role.COMPILER: (2.0, 6.0)}
SEED = 20261122


def record(folder: Path, tasks: Sequence[str]) -> None:
    """Make the record: a suite on the CPU device, whose replies then get their times."""
    chosen = [word for task in tasks for word in ("--tasks", task)]
    fixed = ("--precision", "both", "-R", "1", "-D", "0")
    suite(folder.parent, "--device", "cpu", *chosen, *fixed, "--record", str(folder))
    random_numbers = random.Random(SEED)
    for path in sorted(folder.glob("*/exchanges/*.json")):
        exchange = decoded(Exchange, path)
        seconds = random_numbers.uniform(*SECONDS[exchange.request.role])
        usage = replace(exchange.reply.usage, seconds=seconds)
        write_record(path, replace(exchange, reply=replace(exchange.reply, usage=usage)))


@contextlib.contextmanager
def cluster(gpus: Sequence[str], nodes: str, *, compiling: bool) -> Iterator[str]:
    """Inside the block, a cluster on this machine with these GPUs (UUIDs); gives its address."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cores = len(os.sched_getaffinity(0))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0, "include_dashboard": False})
    try:
        # Each node is told which GPUs are its own: Ray would give the first one of the machine to every node.
        for own in [[gpu] for gpu in gpus] if nodes == "each" else [list(gpus)]:
            made.add_node(num_cpus=cores, num_gpus=len(own), env_vars={"CUDA_VISIBLE_DEVICES": ",".join(own)})
        if compiling:
            own_cache = str(resources.cache() / "of-the-node-that-compiles")  # as if it were another machine
            without = {"CUDA_VISIBLE_DEVICES": "", resources.CACHE: own_cache}
            made.add_node(num_cpus=cores, num_gpus=0, env_vars=without)
        yield str(made.address)
    finally:
        made.shutdown()


def measure(
    folder: Path, gpus: Sequence[int], nodes: str | None = None, *, compiling: bool = False
) -> list[dict[str, object]]:
    """Run the suite on so many GPUs, one number after the other; with `nodes` ("each", "one") through Ray."""
    found = [gpu.uuid for gpu in find_gpus()]
    if len(found) < max(gpus):
        raise SystemExit(f"There are {len(found)} GPUs here. Give fewer with --gpus.")
    rows = []
    print("GPUs  wall s  measuring, part of it  held")
    for count in gpus:
        with contextlib.ExitStack() as block:
            out = block.enter_context(tempfile.TemporaryDirectory())
            here = {"CUDA_VISIBLE_DEVICES": ",".join(found[:count])}
            ray: tuple[str, ...] = ()
            if nodes is not None:
                ray = (f"--ray={block.enter_context(cluster(found[:count], nodes, compiling=compiling))}",)
                here = {}
            tasks = str(len(list(folder.glob("*/run.json"))))
            more = ("--precision", "both", "--device", "cuda", "-j", tasks)
            replay = ("--replay-models", str(folder), "--real-time")
            suite(Path(out), *replay, *more, *ray, **here)
            written = json.loads(next(Path(out).glob("*/suite.json")).read_text())
            parts_s = where_it_went(Path(out), written["entries"])
        session = written["sessions"][-1]
        wall, use = session["seconds"], session["use"]
        measuring, held = ([unit[what] / wall for unit in use] for what in ("measuring_s", "held_s"))
        parts = ["  ".join(f"{part:.0%}" for part in column) for column in (measuring, held)]
        print(f"{count:4}  {wall:6.0f}  {parts[0]:21}  {parts[1]}", flush=True)
        print(f"      a task, s: {', '.join(f'{part} {seconds:.1f}' for part, seconds in parts_s.items())}", flush=True)
        done = sum(entry["state"] == "done" for entry in written["entries"])
        run = {"gpus": count, "ray": nodes, "compiling": compiling, "tasks": len(written["entries"]), "done": done}
        how = {"seconds": wall, "ended": session["ended"], "measuring": measuring, "held": held, "parts_s": parts_s}
        rows.append({**run, **how})
    return rows


def where_it_went(out: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The seconds of a task by what they went into, the mean over all tasks of the suite in `out`."""
    total: dict[str, float] = defaultdict(float)
    for entry in entries:
        total["all"] += entry["seconds"]
    for path in out.glob("*/*/exchanges/*.json"):
        total["replies"] += decoded(Exchange, path).reply.usage.seconds
    for path in [*out.glob("*/*/verdicts/*.json"), *out.glob("*/*/confirmations/*.json")]:
        for part, seconds in json.loads(path.read_text())["seconds"].items():
            total[part] += seconds
    known = sum(seconds for part, seconds in total.items() if part != "all")
    total["besides"] = total["all"] - known
    return {part: seconds / len(entries) for part, seconds in total.items()}


def suite(out: Path, *options: str, **environment: str) -> None:
    """Run `cudamaster suite`; what it says goes to stderr."""
    command = [sys.executable, "-m", "cudamaster", "suite", *options, "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`cudamaster suite` ended with {done.returncode}; see what it says above.")


def main() -> None:
    """Make the record, or measure with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "measure"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=TASKS, metavar="GLOB", help="tasks to record, in both precisions")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--ray", choices=["each", "one"], help="through a Ray cluster: a node for each GPU, or one node"
    )
    parser.add_argument("--compiling", action="store_true", help="with --ray: and a node without a GPU, which compiles")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    given = parser.parse_args()
    if given.what == "record":
        record(given.folder, given.tasks)
        return
    rows = measure(given.folder, given.gpus, given.ray, compiling=given.compiling)
    if given.out is not None:
        given.out.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
