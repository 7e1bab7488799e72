"""CPU time of `cudamaster --help` (goal 0.3 s): best and median of ten, beside a bare `python -c pass`."""

import resource
import statistics
import subprocess
import sys


def cpu_seconds(command: list[str]) -> float:
    """CPU time of one run, user and system, of the process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time both, in turn."""
    bare, full = [], []
    for _ in range(10):
        bare.append(cpu_seconds([sys.executable, "-c", "pass"]))
        full.append(cpu_seconds([sys.executable, "-m", "cudamaster", "--help"]))
    ratio = statistics.median(full) / statistics.median(bare)
    print("CPU time of cudamaster --help (ten runs)")
    print(f"  best {min(full):.3f} s, median {statistics.median(full):.3f} s; goal 0.3 s")
    print(f"  python -c pass: median {statistics.median(bare):.3f} s, so {ratio:.1f} times that")


if __name__ == "__main__":
    main()
