"""Every instruction's result on the same random data, as bits, on the CPU device or a GPU; compares two such files.

python benchmarks/ptx_results.py --device cpu --save cpu.npz
python benchmarks/ptx_results.py --device cuda --save gpu.npz
python benchmarks/ptx_results.py --compare cpu.npz gpu.npz

tests/cpu_device/h200_ptx.npz has an H200's results in the same form.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import ptx_cases
import ptx_warpgroups

from cudamaster.devices.cpu.device import CpuDevice

PROGRAMS = {"cases": ptx_cases.program, "products": ptx_cases.product_program, "warpgroups": ptx_warpgroups.program}
WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64, "p": 1}


def built(device: str, program: str, name: str, folder: Path) -> Path:
    """The executable of a program."""
    if device == "cuda":
        source, executable = folder / f"{name}.cu", folder / name
        source.write_text(program)
        # nvcc 13.0 makes of -arch=sm_90a a pass for plain sm_90 too, which has no wgmma.
        command = ["nvcc", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-w"]
        subprocess.run([*command, "-o", str(executable), str(source)], check=True)
        return executable
    cpu = CpuDevice()
    compiled = cpu.compile(program, ["-O1"], name, folder)
    if compiled.object is None:
        sys.exit(compiled.log)
    linked = cpu.link([compiled.object], folder / name)
    if linked.object is None:
        sys.exit(linked.log)
    return linked.object


def write_data(folder: Path) -> None:
    """What the three programs read."""
    ptx_cases.data().tofile(folder / "cases.in")
    np.concatenate([ptx_cases.product_data(one).ravel() for one in ptx_cases.products()]).tofile(folder / "products.in")
    (folder / "warpgroups.in").write_bytes(b"".join(map(ptx_warpgroups.data, ptx_warpgroups.cases())))


def results(device: str) -> dict[str, np.ndarray]:
    """By case its results: a row of bits per row of data, or per tile and lane."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for program, text in PROGRAMS.items():
            executable = built(device, text(), program, folder)
            files = [str(folder / f"{program}.in"), str(folder / f"{program}.out")]
            subprocess.run([str(executable), *files], check=True)
        return {case: bits for program in PROGRAMS for case, bits in read_results(folder, program).items()}


def read_results(folder: Path, program: str) -> dict[str, np.ndarray]:
    """What one of the programs wrote."""
    file = folder / f"{program}.out"
    if program == "cases":
        cases = ptx_cases.cases()
        rows = np.fromfile(file, dtype=np.uint64).reshape(len(cases), -1)
        return {
            case: bits & np.uint64((1 << WIDTHS[case.split()[1]]) - 1) for case, bits in zip(cases, rows, strict=True)
        }
    wide = {"products": ptx_cases.products(), "warpgroups": [f"wgmma {one.name}" for one in ptx_warpgroups.cases()]}
    return dict(zip(wide[program], np.fromfile(file, np.uint32).reshape(len(wide[program]), -1), strict=True))


def said(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def made_by(device: str) -> dict[str, str]:
    """What is said beside results: on what they were made, and when."""
    about = {"device": "the CPU device", "driver": "", "toolkit": ""}
    if device == "cuda":
        gpus = said("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        name, driver = gpus.splitlines()[0].split(", ")
        toolkit = said("nvcc", "--version").split("release ")[1].split(",")[0]
        about = {"device": name, "driver": driver, "toolkit": f"CUDA {toolkit}"}
    return about | {"date": datetime.datetime.now(tz=datetime.UTC).date().isoformat()}


def save(path: Path, found: dict[str, np.ndarray], about: dict[str, str]) -> None:
    """All results in one array of bytes, for which an archive of many small ones has too much beside them."""
    least = [np.min_scalar_type(int(bits.max())) for bits in found.values()]
    parts = [bits.astype(kind) for bits, kind in zip(found.values(), least, strict=True)]
    np.savez_compressed(
        path,
        names=np.array(list(found)),
        widths=np.array([kind.itemsize for kind in least], np.uint8),
        counts=np.array([len(bits) for bits in parts]),
        bits=np.concatenate([np.ascontiguousarray(bits).view(np.uint8) for bits in parts]),
        **{word: np.array(value) for word, value in about.items()},
    )


def load(path: Path) -> dict[str, np.ndarray]:
    """By case its results, as `save` keeps them."""
    kept = np.load(path)
    found, at = {}, 0
    every_bit = kept["bits"]  # once: each look unpacks the whole array
    parts = (kept[word].tolist() for word in ("names", "widths", "counts"))
    for name, width, count in zip(*parts, strict=True):
        found[name] = every_bit[at : at + width * count].view(f"u{width}")
        at += width * count
    return found


def compare(one: Path, other: Path) -> int:
    """How many cases differ; each with its number of results that do and the first of them."""
    first, second = load(one), load(other)
    different = 0
    for case in first:
        if case not in second:
            print(f"{case}: in {one} alone")
            continue
        unlike = np.flatnonzero(first[case] != second[case])
        if len(unlike):
            different += 1
            at = unlike[0]
            values = f"{int(first[case][at]):#x} and {int(second[case][at]):#x}"
            print(f"{case}: {len(unlike)} of {len(first[case])} differ, the first at {at}: {values}")
    print(f"{different} of {len(first)} cases differ")
    return different


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="where to run every instruction")
    parser.add_argument("--save", type=Path, help="file for the results (.npz)")
    parser.add_argument("--compare", type=Path, nargs=2, help="two such files")
    chosen = parser.parse_args()
    if chosen.compare:
        sys.exit(compare(*chosen.compare) > 0)
    if chosen.device is None or chosen.save is None:
        parser.error("give --device and --save, or --compare")
    save(chosen.save, results(chosen.device), made_by(chosen.device))


if __name__ == "__main__":
    main()
