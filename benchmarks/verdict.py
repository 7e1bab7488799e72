"""Seconds from candidate to verdict, split into build, start of processes, check and timing, per task and precision.

    python benchmarks/verdict.py [--device cpu|cuda]

Each row is the baseline evaluated as a candidate, with the harness built before (as in every round after the
first); the first row of a task also names what building the harness took.
"""

import argparse
import time

from cudamaster import cards
from cudamaster.devices.choose import choose
from cudamaster.evaluation import Workbench
from cudamaster.values import Candidate, Precision


def main() -> None:
    """Evaluate each task's baseline once and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    device = choose(parser.parse_args().device)
    print(f"candidate to verdict on {device.hardware().name}, wall seconds")
    print(f"{'task':24}{'harness':>9}{'build':>9}{'start':>9}{'check':>9}{'timing':>9}{'total':>9}  status")
    for name in cards.names():
        for precision in Precision:
            bench = Workbench(cards.load(name), precision, device)
            started = time.monotonic()
            bench.build_shared()
            harness = time.monotonic() - started
            # A comment of its own makes it a candidate that no cache knows.
            fresh = f"// {time.time_ns()}\n{bench.baseline.code}"
            started = time.monotonic()
            verdict = bench.evaluate(Candidate(name, precision, fresh, device.default_command))
            total = time.monotonic() - started
            s = verdict.seconds
            split = (harness, s.build, s.start, s.check, s.timing, total)
            print(f"{name + ' ' + precision:24}{''.join(f'{each:9.2f}' for each in split)}  {verdict.status}")


if __name__ == "__main__":
    main()
