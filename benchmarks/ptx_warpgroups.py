"""Products of a warpgroup (wgmma): cases of all types and layouts of the factors, their data, and a program for them.

Each case is two steps of k, of 32 bytes each, of a product with 64 rows and 32 columns. Positions of elements in shared
memory are computed here by rows and chunks of 16 bytes, and not from the bits of an address.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROWS, COLUMNS, STEPS = 64, 32, 2
B_AT = 16384  # where the second factor begins in shared memory
IMAGE = 32768
_MODES = {0: 0, 128: 1, 64: 2, 32: 3}
BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


@dataclass(frozen=True)
class Case:
    """Types of d, a and b; of each factor how it is swizzled, and whether its rows or columns lie side by side."""

    d: str
    a: str
    b: str
    a_swizzle: int = 128
    b_swizzle: int = 128
    a_turned: bool = False
    b_turned: bool = False
    registers: bool = False  # a is in registers
    signs: tuple[int, int] = (1, 1)
    wild: bool = False  # numbers of any size, and not small whole ones alone

    @property
    def inner(self) -> int:
        """Elements of k in a step."""
        return 32 // BYTES[self.a]

    @property
    def name(self) -> str:
        """The case in words."""
        factors = ["registers" if self.registers else _words(self.a_swizzle, self.a_turned)]
        wild = "-wild" if self.wild else ""
        factors.append(_words(self.b_swizzle, self.b_turned))
        return f"{self.d}.{self.a}.{self.b}-{'-'.join(factors)}{self.signs}{wild}"


def _words(swizzle: int, turned: bool) -> str:
    return f"{swizzle}{'turned' if turned else ''}"


def cases() -> list[Case]:
    """All that the test looks at."""
    found = [Case("f32", "bf16", "bf16", a, b) for a in _MODES for b in _MODES if a == b or 128 in (a, b)]
    turns = ((True, False), (False, True), (True, True))
    found += [Case("f32", "bf16", "bf16", mode, mode, *turned) for mode in _MODES for turned in turns]
    found += [Case("f32", "f16", "f16"), Case("f16", "f16", "f16"), Case("f32", "tf32", "tf32")]
    found += [Case("f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    found += [Case("f16", "e4m3", "e5m2"), Case("f32", "tf32", "tf32", 0, 32)]
    found += [Case("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
    kinds = (("f32", "bf16"), ("f16", "f16"), ("f32", "tf32"), ("s32", "s8"))
    found += [Case(d, a, a, registers=True) for d, a in kinds]
    found += [Case("f32", "e4m3", "e4m3", registers=True), Case("f32", "bf16", "bf16", b_turned=True, registers=True)]
    found += [Case("f32", "bf16", "bf16", signs=signs) for signs in ((-1, 1), (1, -1), (-1, -1))]
    wild = [("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"), ("f16", "f16", "f16")]
    wild += [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    return found + [Case(*kinds, wild=True) for kinds in wild]


def _chunk(chunk: int, row: int, swizzle: int) -> int:
    """Which chunk of 16 bytes of a row is put where."""
    return chunk ^ (row % 8) // {128: 1, 64: 2, 32: 4}[swizzle]


def place(outer: int, at: int, size: int, swizzle: int, turned: bool, rows: int) -> int:
    """Where element `at` of k of a row or column lies in its factor."""
    if turned:
        if not swizzle:
            return outer // 8 * 128 + at // 8 * 128 * (rows // 8) + at % 8 * 16 + outer % 8 * size
        side = outer * size
        block, within = divmod(side, swizzle)
        row = block * swizzle * 32 + at // 8 * 8 * swizzle + at % 8 * swizzle
        return row + _chunk(within // 16, at, swizzle) * 16 + within % 16
    side = at * size
    if not swizzle:
        return outer // 8 * 512 + side // 16 * 128 + outer % 8 * 16 + side % 16
    tile, within = divmod(side, swizzle)
    row = tile * rows * swizzle + outer * swizzle
    return row + _chunk(within // 16, outer, swizzle) * 16 + within % 16


def _descriptors(swizzle: int, turned: bool, rows: int, start: int) -> list[int]:
    """Of both steps: place, leading and stride offsets, and mode."""
    if turned:
        leading, stride = (128 * (rows // 8), 128) if not swizzle else (32 * swizzle, 8 * swizzle)
        step = 2 * leading if not swizzle else 2 * stride
    else:
        leading, stride = (128, 512) if not swizzle else (16, 8 * swizzle)
        step = 256 if not swizzle else rows * 32 if swizzle == 32 else 32
    mode = _MODES[swizzle] << 62
    return [(start + number * step) >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode for number in range(STEPS)]


def _wild(random: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    if kind == "f16":
        return random.standard_normal(shape).astype(np.float16).view(np.uint16)
    if kind in ("bf16", "tf32"):
        bits = random.standard_normal(shape).astype(np.float32).view(np.uint32)
        return bits & np.uint32(0xFFFFE000) if kind == "tf32" else (bits >> 16).astype(np.uint16)
    size = random.integers(0, 0x60, shape, dtype=np.uint8)
    return size | random.integers(0, 2, shape, dtype=np.uint8) << 7


def matrices(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The patterns of both factors: rows or columns, and k."""
    random = np.random.default_rng([3, *case.name.encode()])
    inner = STEPS * case.inner

    def patterns(kind: str, long: int) -> np.ndarray:
        shape = (long, inner)
        if case.wild:
            return _wild(random, kind, shape)
        if kind == "f16":
            return random.integers(-4, 5, shape).astype(np.float16).view(np.uint16)
        if kind in ("bf16", "tf32"):
            bits = random.integers(-4, 5, shape).astype(np.float32).view(np.uint32)
            return bits if kind == "tf32" else (bits >> 16).astype(np.uint16)
        if kind == "e4m3":
            return random.choice(np.array([0x38, 0xB8, 0x40, 0xC4, 0], np.uint8), shape)
        if kind == "e5m2":
            return random.choice(np.array([0x3C, 0xBC, 0x40, 0xC2, 0], np.uint8), shape)
        return random.integers(0, 256, shape, dtype=np.uint8)

    return patterns(case.a, ROWS), patterns(case.b, COLUMNS)


def data(case: Case) -> bytes:
    """What the program reads of a case: descriptors, registers of a, and shared memory."""
    a, b = matrices(case)
    image = np.zeros(IMAGE, np.uint8)
    size = BYTES[case.a]
    for start, factor, swizzle, turned in (
        (0, a, case.a_swizzle, case.a_turned),
        (B_AT, b, case.b_swizzle, case.b_turned),
    ):
        raw = factor.view(np.uint8).reshape(*factor.shape, size)
        for outer in range(factor.shape[0]):
            for at in range(factor.shape[1]):
                where = start + place(outer, at, size, swizzle, turned, factor.shape[0])
                image[where : where + size] = raw[outer, at]
    descriptors = _descriptors(case.a_swizzle, case.a_turned, ROWS, 0)
    descriptors += _descriptors(case.b_swizzle, case.b_turned, COLUMNS, B_AT)
    registers = np.zeros((STEPS, 128, 4), np.uint32)
    each = 4 // size
    for step in range(STEPS):
        for thread in range(128):
            lane, warp = thread % 32, thread // 32
            for number in range(4):
                row = 16 * warp + lane // 4 + 8 * (number % 2)
                first = step * case.inner + number // 2 * 4 * each + lane % 4 * each
                registers[step, thread, number] = a[row, first : first + each].copy().view(np.uint32)[0]
    return np.array(descriptors, np.uint64).tobytes() + registers.tobytes() + image.tobytes()


def _kernel(case: Case, number: int) -> str:
    count = COLUMNS // 4 if case.d == "f16" else COLUMNS // 2
    letter = "f" if case.d == "f32" else "r"
    kind = "float" if case.d == "f32" else "unsigned"
    accumulators = ", ".join(f"%{at}" for at in range(count))
    outputs = ", ".join(f'"+{letter}"(d[{at}])' for at in range(count))
    turns = f", {int(case.a_turned)}, {int(case.b_turned)}" if case.a in ("f16", "bf16") else ""
    if case.registers:
        turns = f", {int(case.b_turned)}" if turns else ""
        left = "{" + ", ".join(f"%{count + at}" for at in range(4)) + "}"
        inputs = ", ".join(f'"r"(registers[(step * 128 + t) * 4 + {at}])' for at in range(4))
        after = count + 4
    else:
        left, inputs, after = f"%{count}", '"l"(descriptors[step] + base)', count + 1
    signs = "" if case.d == "s32" else f", {case.signs[0]}, {case.signs[1]}"
    opcode = f"wgmma.mma_async.sync.aligned.m64n{COLUMNS}k{case.inner}.{case.d}.{case.a}.{case.b}"
    text = f"{opcode} {{{accumulators}}}, {left}, %{after}, p{signs}{turns};"
    bits = "__float_as_uint(d[i])" if case.d == "f32" else "d[i]"
    return f"""__global__ void __launch_bounds__(128) product_{number}(const unsigned char* in, unsigned* out) {{
    extern __shared__ __align__(1024) unsigned char shared[];
    const unsigned long long* descriptors = (const unsigned long long*)in;
    const unsigned* registers = (const unsigned*)(in + 8 * {2 * STEPS});
    const unsigned* image = registers + {STEPS * 128 * 4};
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < {IMAGE // 4}; i += 128)
        ((unsigned*)shared)[i] = image[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long base = (unsigned long long)__cvta_generic_to_shared(shared) >> 4;
    {kind} d[{count}];
    for (int i = 0; i < {count}; ++i)
        d[i] = 0;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < {STEPS}; ++step)
        asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{after + 1}, 0; {text} }}"
                     : {outputs}
                     : {inputs}, "l"(descriptors[{STEPS} + step] + base), "r"(step));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < {count}; ++i)
        out[t * 16 + i] = {bits};
}}
"""


def program() -> str:
    """`program IN OUT` reads the data of all cases and writes sixteen words of each thread and case."""
    kernels = "".join(_kernel(case, number) for number, case in enumerate(cases()))
    calls = "".join(
        f"    product_{number}<<<1, 128, {IMAGE}>>>(in + {number} * per_in, out + {number} * per_out);\n"
        for number in range(len(cases()))
    )
    return f"""#include <cstdio>
#include <vector>
{kernels}int main(int, char** arguments) {{
    const size_t count = {len(cases())}, per_in = {len(data(cases()[0]))}, per_out = {128 * 16};
    std::vector<unsigned char> given(count * per_in);
    std::vector<unsigned> made(count * per_out);
    FILE* file = fopen(arguments[1], "rb");
    if (!file || fread(given.data(), 1, given.size(), file) != given.size())
        return 2;
    fclose(file);
    unsigned char* in;
    unsigned* out;
    cudaMalloc(&in, given.size());
    cudaMalloc(&out, made.size() * 4);
    cudaMemcpy(in, given.data(), given.size(), cudaMemcpyHostToDevice);
    cudaMemset(out, 0, made.size() * 4);
{calls}    if (cudaDeviceSynchronize() != cudaSuccess)
        return 3;
    cudaMemcpy(made.data(), out, made.size() * 4, cudaMemcpyDeviceToHost);
    file = fopen(arguments[2], "wb");
    return file && fwrite(made.data(), 4, made.size(), file) == made.size() && fclose(file) == 0 ? 0 : 4;
}}
"""
