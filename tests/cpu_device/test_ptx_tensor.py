"""Copies of boxes of tensors (cp.async.bulk.tensor), held against numpy: dimensions, swizzles, edges, operations."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran

KERNELS = Path(__file__).parent / "kernels"
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ptx_tensor.cu"
PROGRAMS = ["ptx_tensor", "ptx_ring", "cxx_tensor"]
# As CUtensorMapDataType numbers them; bf16 as its bits.
TYPES = [np.uint8, np.uint16, np.uint32, np.int32, np.uint64, np.int64, np.float16, np.float32, np.float64, np.uint16]
U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16 = range(10)
SPANS = (0, 32, 64, 128)


@dataclass(frozen=True)
class Box:
    """A box of a tensor: the first dimension is the one whose elements lie side by side."""

    type: int
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    fill: int = 0

    @property
    def own_steps(self) -> tuple[int, ...]:
        """One in each dimension where nothing else is said."""
        return self.steps or (1,) * len(self.box)

    @property
    def element(self) -> int:
        """Bytes of one."""
        return np.dtype(TYPES[self.type]).itemsize

    def strides(self) -> list[int]:
        """Bytes from one element to the next in each dimension."""
        found = [self.element]
        for size in self.sizes:
            found.append((found[-1] * size + 15) // 16 * 16)
        return found

    def words(self) -> list[str]:
        """What the program is told of it."""
        return [str(number) for numbers in (self.sizes, self.box, self.own_steps, self.at) for number in numbers]

    def counts(self) -> tuple[int, ...]:
        """Elements in each dimension, as they lie in shared memory."""
        steps = (1, *self.own_steps[1:])
        return tuple(math.ceil(size / step) for size, step in zip(self.box, steps, strict=True))

    def places(self) -> np.ndarray:
        """For each byte of the tile in shared memory the byte of the tensor that comes there; -1 outside of it."""
        strides, steps = self.strides(), (1, *self.own_steps[1:])
        found = []
        for index in np.ndindex(*reversed(self.counts())):
            where = [at + i * step for at, i, step in zip(self.at, reversed(index), steps, strict=True)]
            inside = all(0 <= place < size for place, size in zip(where, self.sizes, strict=True))
            first = sum(place * stride for place, stride in zip(where, strides, strict=False))
            found += [first + byte if inside else -1 for byte in range(self.element)]
        return self._swizzled(np.array(found))

    def written(self) -> np.ndarray:
        """The same of what a store or a reduction changes: whole chunks of 16 bytes, beyond a row's end as well."""
        first = self.places().reshape(-1, 16)[:, :1]
        return np.where(first < 0, -1, first + np.arange(16)).reshape(-1)

    def _swizzled(self, flat: np.ndarray) -> np.ndarray:
        """16 bytes at a time change places within the span, by which 128 bytes they are in."""
        span = SPANS[self.swizzle]
        chunks = np.arange(len(flat) // 16)
        moved = chunks ^ ((chunks // 8) % (span // 16)) if span else chunks
        result = np.empty_like(flat)
        result.reshape(-1, 16)[moved] = flat.reshape(-1, 16)
        return result


PLAIN = {
    "1d": Box(F32, (100,), (64,), (20,)),
    "1d-over-both-ends": Box(U16, (20,), (64,), (-8,)),
    "2d": Box(F32, (37, 50), (16, 8), (4, 30)),
    "2d-corner": Box(BF16, (37, 50), (16, 8), (32, 45)),
    "2d-before-the-first": Box(U8, (40, 9), (32, 5), (-16, -2)),
    "2d-nowhere": Box(F16, (64, 64), (8, 8), (64, -8)),
    "2d-nan": Box(F32, (10, 10), (8, 8), (-4, 5), fill=1),
    "2d-nan-of-16-bits": Box(BF16, (10, 10), (8, 8), (8, 5), fill=1),
    "3d": Box(S32, (10, 9, 8), (8, 4, 3), (4, 2, 6)),
    "3d-steps": Box(F16, (24, 20, 9), (16, 7, 5), (8, 1, 1), (1, 3, 2)),
    "3d-steps-over-the-end": Box(U32, (9, 9, 9), (8, 8, 8), (0, 5, 3), (1, 2, 4)),
    "first-step-means-nothing": Box(U32, (16, 4), (8, 2), (4, 1), (2, 1)),
    "4d": Box(U64, (6, 5, 4, 3), (4, 3, 2, 2), (2, 1, 1, 2)),
    "5d": Box(F64, (4, 3, 3, 3, 3), (2, 2, 2, 2, 2), (2, 1, 2, 0, 1)),
    "largest-box": Box(U8, (300, 300), (256, 256), (48, 100)),
}
SWIZZLED = {
    f"{name}-{SPANS[swizzle]}": Box(
        kind, sizes, (SPANS[swizzle] // np.dtype(TYPES[kind]).itemsize, *rest), at, swizzle=swizzle
    )
    for swizzle in (1, 2, 3)
    for name, kind, sizes, rest, at in (
        ("2d", BF16, (200, 70), (64,), (8, 3)),
        ("2d-edge", BF16, (70, 40), (64,), (64, -5)),
        ("2d-f32", F32, (64, 64), (24,), (16, 50)),
        ("3d-u8", U8, (256, 9, 9), (5, 3), (-16, 3, 7)),
    )
}
CASES = PLAIN | SWIZZLED


def directions(box: Box) -> list[str]:
    """What can be done with a box: an H200 writes none at a negative coordinate."""
    return ["load"] if min(box.at) < 0 else ["load", "store"]


def tensor_of(box: Box) -> np.ndarray:
    """Bytes of a tensor, of whatever bits."""
    return np.random.default_rng(5).integers(0, 256, box.strides()[len(box.sizes)], dtype=np.uint8)


def run(
    program: Callable[..., Ran], what: str, operation: str, box: Box, given: np.ndarray, folder: Path
) -> tuple[Ran, np.ndarray]:
    (folder / "in").write_bytes(given.tobytes())
    head = [what, operation, str(box.type), str(box.swizzle), str(box.fill), str(folder / "in"), str(folder / "out")]
    ran = program(*head, *box.words())
    made = (folder / "out").read_bytes() if (folder / "out").exists() else b""
    return ran, np.frombuffer(made, np.uint8)


def expected_tile(box: Box, tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tile, and which of its bytes are outside of the tensor."""
    places = box.places()
    return np.where(places < 0, 0, tensor[np.maximum(places, 0)]).astype(np.uint8), places < 0


@pytest.mark.parametrize("name", CASES)
def test_boxes_are_loaded(build, tmp_path, name):
    """Each byte of the tile is the tensor's or, outside of it, zero or a part of a NaN."""
    box = CASES[name]
    tensor = tensor_of(box)
    ran, tile = run(build("ptx_tensor").run, "load", str(len(box.sizes)), box, tensor, tmp_path)
    assert ran.exit_code == 0, ran.stderr
    expected, outside = expected_tile(box, tensor)
    if box.fill:
        assert outside.any()
        numbers = tile.view(np.uint32) if box.type == F32 else tile.view(np.uint16).astype(np.uint32) << 16
        assert np.isnan(numbers.view(np.float32)[outside.reshape(-1, box.element)[:, 0]]).all()
        tile = np.where(outside, 0, tile)
    assert (tile == expected).all()


@pytest.mark.parametrize("name", [name for name, box in CASES.items() if not box.fill and "store" in directions(box)])
def test_boxes_are_stored(build, tmp_path, name):
    """What is in the tile comes to the tensor's elements, in whole chunks, and nothing else of it changes."""
    box = CASES[name]
    tensor = tensor_of(box)
    ran, made = run(build("ptx_tensor").run, "store", str(len(box.sizes)), box, tensor, tmp_path)
    assert ran.exit_code == 0, ran.stderr
    places = box.written()
    expected, tile = tensor.copy(), np.arange(len(places)) % 251
    expected[places[places >= 0]] = tile[places >= 0]
    assert (made == expected).all()
    assert name != "2d-corner" or (made != tensor)[45 * 80 + 37 * 2 : 46 * 80].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2d-corner", "5d", "2d-edge-128", "3d-u8-32"])
def test_boxes_under_the_sanitizer(build, tmp_path, name):
    """No byte beside the tensor or the tile is touched."""
    box = CASES[name]
    for what in directions(box):
        ran, _ = run(build("ptx_tensor", debug=True).run, what, str(len(box.sizes)), box, tensor_of(box), tmp_path)
        assert ran.exit_code == 0, ran.stderr
        assert "AddressSanitizer" not in ran.stderr


OPERATIONS: list[Callable[[np.ndarray, np.ndarray], np.ndarray]] = [
    np.add,
    np.minimum,
    np.maximum,
    lambda old, with_: np.where(old >= with_, 0, old + 1),
    lambda old, with_: np.where((old == 0) | (old > with_), with_, old - 1),
    np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor,
]
REDUCTIONS = [
    (0, U32),
    (0, S32),
    (0, U64),
    (0, F32),
    (0, F64),
    (0, F16),
    (1, S32),
    (1, U64),
    (2, S64),
    (2, F16),
    (3, U32),
]
REDUCTIONS += [(4, U32), (5, U32), (6, S32), (7, U64)]


@pytest.mark.parametrize(("operation", "kind"), REDUCTIONS)
def test_boxes_are_reduced(build, tmp_path, operation, kind):
    """Each operation, of the type that the map has, on whole chunks of 16 bytes."""
    box = Box(kind, (20, 9), (16, 4), (8, 7), swizzle=3 if np.dtype(TYPES[kind]).itemsize == 8 else 0)
    tensor = tensor_of(box)
    if np.issubdtype(TYPES[kind], np.floating):
        tensor = np.random.default_rng(7).integers(-9, 9, len(tensor) // box.element).astype(TYPES[kind]).view(np.uint8)
    ran, made = run(build("ptx_tensor").run, "reduce", str(operation), box, tensor, tmp_path)
    assert ran.exit_code == 0, ran.stderr
    places = box.written()
    tile = (np.arange(len(places)) % 251).astype(np.uint8).view(TYPES[kind])
    element, inside = places.reshape(-1, box.element)[:, 0] // box.element, places.reshape(-1, box.element)[:, 0] >= 0
    expected = tensor.view(TYPES[kind]).copy()
    with np.errstate(all="ignore"):
        expected[element[inside]] = OPERATIONS[operation](expected[element[inside]], tile[inside])
    assert (made.view(TYPES[kind]) == expected).all()


@pytest.mark.parametrize(
    ("what", "operation", "words"),
    [
        ("by-value", "2", "`const __grid_constant__ CUtensorMap`"),
        ("misaligned", "2", "no multiple of 128 bytes"),
        ("other-rank", "2", "another number of dimensions than its map has"),
        ("no-map", "2", "cuTensorMapEncodeTiled has not made"),
        ("reduce", "3", "an operation that the map's type has not"),
        ("reduce", "5", "an operation that the map's type has not"),
    ],
)
def test_wrong_uses_end_the_block(build, tmp_path, what, operation, words):
    """What a GPU would answer with a fault, or with nothing, is said."""
    box = PLAIN["2d"]
    ran, _ = run(build("ptx_tensor").run, what, operation, box, tensor_of(box), tmp_path)
    assert ran.exit_code == 9
    assert words in ran.stderr


@pytest.mark.parametrize(
    ("what", "at", "words"),
    [
        ("load", (1, 30), "first coordinate is no multiple of 16 bytes"),
        ("load", (-6, 30), "first coordinate is no multiple of 16 bytes"),
        ("store", (2, 30), "first coordinate is no multiple of 16 bytes"),
        ("store", (-4, 30), "to global memory at a negative coordinate"),
        ("store", (4, -1), "to global memory at a negative coordinate"),
        ("reduce", (4, -1), "to global memory at a negative coordinate"),
    ],
)
def test_coordinates_that_stop_an_h200_end_the_block(build, tmp_path, what, at, words):
    """It says "an illegal instruction was encountered"; no manual has the rule."""
    box = Box(F32, (37, 50), (16, 8), at)
    ran, _ = run(build("ptx_tensor").run, what, "2", box, tensor_of(box), tmp_path)
    assert ran.exit_code == 9
    assert words in ran.stderr


def test_a_box_narrower_than_its_swizzle_is_not_executed(build, tmp_path):
    """Its layout is nowhere defined: rather none than a guess."""
    box = Box(F32, (64, 64), (8, 8), (0, 0), swizzle=3)
    ran, _ = run(build("ptx_tensor").run, "load", "2", box, tensor_of(box), tmp_path)
    assert ran.exit_code == 9
    assert "narrower than its swizzle" in ran.stderr


@pytest.mark.parametrize("name", ["1d-over-both-ends", "2d-corner", "3d-steps", "2d-edge-64", "2d-128"])
def test_honest_boxes_raise_nothing(build_checked, tmp_path, name):
    """In both directions, and with an operation."""
    box = CASES[name]
    program = build_checked("ptx_tensor")
    whats = [(what, str(len(box.sizes))) for what in directions(box)]
    if box.type == U32:
        whats.append(("reduce", "0"))
    for what, operation in whats:
        ran, _ = run(program.run, what, operation, box, tensor_of(box), tmp_path)
        assert (ran.exit_code, ran.stderr) == (0, ""), what


@pytest.mark.parametrize("name", ["ring", "shared"])
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_products_of_tiles_in_a_ring(build, build_checked, name, reversed_threads):
    """A producer's boxes, swizzled, are what descriptors of the same swizzle read; nothing is wrong with the kernel.

    In a block, and in two of a cluster that copy to each other.
    """
    ran = build("ptx_ring").run(name, reversed_threads=reversed_threads)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert build_checked("ptx_ring").found(name) == (set(), "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ring", "shared"])
def test_products_of_tiles_under_the_sanitizer(build, name):
    """The result is a variable of its own there, and still at a multiple of 128."""
    ran = build("ptx_ring", debug=True).run(name)
    assert (ran.exit_code, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no-wait-for-tiles", "early"),
        ("released-too-early", "early"),
        ("no-wait-for-products", "early"),
        ("half-the-bytes", "early"),
        ("overwritten", "early"),
        ("shared-alone", "early"),
        ("no-fence-of-inits", "unfenced"),
        ("no-fence-of-proxies", "unfenced"),
        ("no-barrier", "race"),
    ],
)
def test_a_ring_that_waits_or_fences_too_little_is_found(build_checked, name, kind):
    """Whatever is left out, the checker names it."""
    kinds, said = build_checked("ptx_ring").found(name)
    assert kind in kinds, said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-wait-for-room", "more arrivals at an mbarrier than its phase expects"),
        ("phase-before", "more arrivals at an mbarrier than its phase expects"),
        ("too-many-bytes", "0 arrivals and 16 bytes are missing"),
        ("too-many-bytes", "thread (128,0,0), line 41: waits at the mbarrier empty for its phase of parity 0"),
        ("no-wait-for-the-copy-out", "ends before its copy in bulk has read shared memory"),
        ("no-wait-for-products", "ends before its wgmma is done"),
        ("no-wgmma-fence", "wgmma.mma_async before any wgmma.fence"),
        ("shared-by-nobody", "0 arrivals and 4096 bytes are missing"),
        ("shared-left-too-early", "the shared memory of a block of the cluster that has ended"),
    ],
)
def test_a_ring_that_cannot_go_on_says_why(build, name, words):
    """Rules of barriers and products that are broken end the block."""
    ran = build("ptx_ring").run(name, limit_s=20)
    assert ran.exit_code == 9
    assert words in ran.stderr


def test_a_ring_with_another_swizzle_gives_another_result(build):
    """Who reads with another swizzle than was written reads other elements."""
    assert build("ptx_ring").run("unswizzled").exit_code == 3


@pytest.mark.slow
def test_boxes_by_the_functions_of_cpp(build, build_checked):
    """cuda::ptx and what came before it: the same copies."""
    for debug in (False, True):
        ran = build("cxx_tensor", debug=debug).run()
        assert (ran.exit_code, ran.stderr) == (0, "")
    assert build_checked("cxx_tensor").found() == (set(), "")


@pytest.mark.slow
def test_the_program_for_a_gpu_finds_nothing_wrong_here(tmp_path):
    """Eight hundred boxes at random places, operations and rules, as benchmarks/ptx_tensor.cu tries them anywhere."""
    device = CpuDevice()
    compiled = device.compile(BENCHMARK.read_text(), ["-O2"], "tensor", tmp_path)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], tmp_path / "tensor")
    assert linked.object is not None, linked.log
    ran = device.execute([str(linked.object)], 60)
    assert ran.exit_code == 0, ran.stderr
    assert "800 boxes, 0 wrong" in ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "path", [*(KERNELS / f"{name}.cu" for name in PROGRAMS), BENCHMARK], ids=lambda path: path.stem
)
def test_the_programs_are_ptx(tmp_path, path):
    """nvcc and ptxas take the same programs."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
