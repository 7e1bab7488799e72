"""Builds every kernel of the playbook with the nvcc that this environment finds, and links the workers of some. No GPU.

    python benchmarks/packaged_cuda.py [--device-code sm_90] [--jobs N] [--link TASK:PRECISION ...] [FILTER]

Run it with the Python of an environment that has nothing but `cudamaster[cuda]`, and a PATH without a toolkit, to see
that the packages are enough. FILTER keeps the files whose path contains it. Exits with 1 if a kernel is not built.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices import cuobjdump
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.faults import compute_sanitizer
from cudamaster.models.playbook import merged, read_step
from cudamaster.profiling import sass
from cudamaster.tasks import cards

# The second one makes tensor maps, so it is linked with the driver.
LINKED = ["relu:fp32", "matrix_mul:bf16"]


def main() -> None:
    """Build, link, disassemble, and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--device-code", default="sm_90")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--link", nargs="*", default=LINKED, metavar="TASK:PRECISION")
    options = parser.parse_args()
    capability = f"{options.device_code.removeprefix('sm_')[:-1]}.{options.device_code[-1]}"
    device = CudaDevice(LocalGpu(0, "no GPU", "GPU-none", capability, "none", "81920", "1", "1", "1"))
    print(f"nvcc {device.nvcc}, release {device.toolkit}")
    print(f"cuobjdump {cuobjdump.find()}\ncompute-sanitizer {compute_sanitizer.find()}", flush=True)
    library = resources.package() / "playbook"
    files = [path for path in sorted(library.glob("*/*/*.cu")) if options.filter in str(path.relative_to(library))]
    with ThreadPoolExecutor(options.jobs) as pool:
        built = sum(pool.map(lambda path: compiled(device, path, path.relative_to(library)), files))
    print(f"{built} of {len(files)} kernels built for {options.device_code}", flush=True)
    linked = sum(worker(device, *pair.split(":")) for pair in options.link)
    print(f"{linked} of {len(options.link)} workers linked")
    sys.exit(0 if built == len(files) and linked == len(options.link) else 1)


def compiled(device: CudaDevice, path: Path, name: Path) -> bool:
    """Whether a playbook file becomes an object, with the flags that it names."""
    step = read_step(path)
    flags = device.parse_command(merged(device.default_command, step.flags))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = device.compile(step.code, flags.arguments, "candidate", Path(folder))
    log = "" if result.object is not None else f"\n{result.log}"
    print(f"{'built' if not log else 'FAILED':7}{time.monotonic() - started:6.1f} s  {name}{log}", flush=True)
    return result.object is not None


def worker(device: CudaDevice, task: str, precision: str) -> bool:
    """Whether the whole way from candidate to worker works for a task's last step, and its disassembly."""
    path = sorted((resources.package() / "playbook" / task / precision).glob("*.cu"))[-1]
    step = read_step(path)
    candidate = Candidate(task, Precision(precision), step.code, merged(device.default_command, step.flags))
    builder = Builder(cards.load(task), Precision(precision), device)
    build = builder.build(candidate)
    if build.worker is None:
        print(f"{task} {precision}: {build.status}: {build.log}")
        return False
    mixes = sass.disassembled(build.worker)
    if isinstance(mixes, sass.NoMix):
        print(f"{task} {precision}: {mixes}")
        return False
    total = sum(mix.total for mix in mixes)
    print(f"{task} {precision}: worker linked, {len(mixes)} kernels of {total} instructions", flush=True)
    return True


if __name__ == "__main__":
    main()
