"""Every instruction's result on the same random data, as bits, on the CPU device or a GPU; and two of them compared.

python benchmarks/ptx_results.py --device cpu --save cpu.npz
python benchmarks/ptx_results.py --device cuda --save gpu.npz
python benchmarks/ptx_results.py --compare cpu.npz gpu.npz
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import ptx_cases
import ptx_warpgroups

from cudamaster.devices.cpu import CpuDevice

WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64, "p": 1}


def built(device: str, program: str, name: str, folder: Path) -> Path:
    """The executable of a program."""
    if device == "cuda":
        source, executable = folder / f"{name}.cu", folder / name
        source.write_text(program)
        subprocess.run(["nvcc", "-std=c++17", "-arch=sm_90a", "-w", "-o", str(executable), str(source)], check=True)
        return executable
    cpu = CpuDevice()
    compiled = cpu.compile(program, ["-O1"], name, folder)
    if compiled.object is None:
        sys.exit(compiled.log)
    linked = cpu.link([compiled.object], folder / name)
    if linked.object is None:
        sys.exit(linked.log)
    return linked.object


def results(device: str) -> dict[str, np.ndarray]:
    """By case its results: a row of bits per row of data, or per tile and lane."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases, products = ptx_cases.cases(), ptx_cases.products()
        ptx_cases.data().tofile(folder / "cases.in")
        np.concatenate([ptx_cases.product_data(one).ravel() for one in products]).tofile(folder / "products.in")
        groups = ptx_warpgroups.cases()
        (folder / "warpgroups.in").write_bytes(b"".join(map(ptx_warpgroups.data, groups)))
        for program, text in (
            ("cases", ptx_cases.program()),
            ("products", ptx_cases.product_program()),
            ("warpgroups", ptx_warpgroups.program()),
        ):
            executable = built(device, text, program, folder)
            files = [str(folder / f"{program}.in"), str(folder / f"{program}.out")]
            subprocess.run([str(executable), *files], check=True)
        rows = np.fromfile(folder / "cases.out", dtype=np.uint64).reshape(len(cases), -1)
        wide = np.fromfile(folder / "warpgroups.out", dtype=np.uint32).reshape(len(groups), -1)
        tiles = np.fromfile(folder / "products.out", dtype=np.uint32).reshape(len(products), -1)
    found = {}
    for case, bits in zip(cases, rows, strict=True):
        width = WIDTHS[case.split()[1]]
        found[case] = bits & np.uint64((1 << width) - 1)
    found |= dict(zip(products, tiles, strict=True))
    return found | {f"wgmma {case.name}": bits for case, bits in zip(groups, wide, strict=True)}


def compare(one: Path, other: Path) -> int:
    """How many cases differ; each with its number of results that do and the first of them."""
    first, second = np.load(one), np.load(other)
    different = 0
    for case in first.files:
        if case not in second.files:
            print(f"{case}: in {one} alone")
            continue
        unlike = np.flatnonzero(first[case] != second[case])
        if len(unlike):
            different += 1
            at = unlike[0]
            values = f"{int(first[case][at]):#x} and {int(second[case][at]):#x}"
            print(f"{case}: {len(unlike)} of {len(first[case])} differ, the first at {at}: {values}")
    print(f"{different} of {len(first.files)} cases differ")
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
    np.savez_compressed(chosen.save, **results(chosen.device))


if __name__ == "__main__":
    main()
