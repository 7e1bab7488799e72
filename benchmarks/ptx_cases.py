"""Instructions whose results depend on registers alone, and a program that applies all of them to the same data.

A case is an opcode and letters of its operands' constraints, the destination first; `p` is a predicate, and what is no
letter stands as it is. The program writes 64 bits per case and row; it is the same on the CPU device and on a GPU.
"""

from __future__ import annotations

import numpy as np

ROWS = 256
_GROUP = 40  # cases of one kernel
_LETTERS = "hrlfdp"


def _expand(text: str) -> list[str]:
    """`a{b,c}d` as "abd" and "acd"."""
    start = text.find("{")
    if start < 0:
        return [text]
    end = text.index("}", start)
    return [
        one for choice in text[start + 1 : end].split(",") for one in _expand(text[:start] + choice + text[end + 1 :])
    ]


_TEXTS = """
{add,sub,min,max}.{s16,u16} h h h
{add,sub,min,max,div,rem}.{s32,u32} r r r
{add,sub,min,max}.{s64,u64} l l l
{add,sub}.sat.s32 r r r
add.{u16x2,s16x2} r r r
{min,max}.{u16x2,s16x2} r r r
{min,max}.relu.{s32,s16x2} r r r
mul.{hi,lo}.{s16,u16} h h h
mul.{hi,lo}.{s32,u32} r r r
mul.{hi,lo}.{s64,u64} l l l
mul.wide.{s16,u16} r h h
mul.wide.{s32,u32} l r r
mul24.{hi,lo}.{s32,u32} r r r
mad.{hi,lo}.{s32,u32} r r r r
mad.lo.{s16,u64} {h h h h,l l l l}
mad.hi.sat.s32 r r r r
mad.wide.{s16,u16} r h h r
mad.wide.{s32,u32} l r r l
mad24.{hi,lo}.{s32,u32} r r r r
sad.{s32,u32} r r r r
{abs,neg}.s32 r r
{abs,neg}.s64 l l
{add,sub,mul}{,.rn,.rz,.rm,.rp}.f32 f f f
{add,sub,mul}{.rn,.rz,.rm,.rp}.ftz.f32 f f f
{add,sub,mul}.{sat,rz.ftz.sat}.f32 f f f
{fma,mad}.{rn,rz,rm,rp}.f32 f f f f
fma.rn.{ftz,sat,ftz.sat}.f32 f f f f
{add,sub,mul}.{rn,rz,rm,rp}.f64 d d d
fma.{rn,rz,rm,rp}.f64 d d d d
div.{rn,rz,rm,rp}.f32 f f f
div.{rn,rz,rm,rp}.f64 d d d
div.{approx,full}.f32 f f f
{rcp,sqrt}.{rn,rz,rm,rp}.f32 f f
{rcp,sqrt}.{rn,rz,rm,rp}.f64 d d
{rcp,sqrt,rsqrt,lg2,ex2,sin,cos}.approx.f32 f f
{rcp,sqrt,rsqrt,lg2,ex2}.approx.ftz.f32 f f
tanh.approx.f32 f f
{abs,neg}{,.ftz}.f32 f f
{abs,neg}.f64 d d
{min,max}{,.ftz,.NaN,.xorsign.abs,.NaN.xorsign.abs}.f32 f f f
{min,max}.f64 d d d
{add,sub,mul}{,.rn,.ftz,.sat}.f16 h h h
{add,sub,mul}.{rn,ftz,sat}.f16x2 r r r
fma.rn{,.ftz,.sat,.relu}.f16 h h h h
fma.rn{,.relu}.f16x2 r r r r
{add,sub,mul}.bf16 h h h
{add,sub,mul}.bf16x2 r r r
fma.rn{,.relu}.bf16 h h h h
fma.rn{,.relu}.bf16x2 r r r r
{abs,neg}{,.ftz}.f16 h h
{abs,neg}.{f16x2,bf16x2} r r
{abs,neg}.bf16 h h
{min,max}{,.ftz,.NaN,.xorsign.abs,.NaN.xorsign.abs}.f16 h h h
{min,max}{,.NaN}.bf16 h h h
{min,max}{,.NaN}.{f16x2,bf16x2} r r r
ex2.approx.f16 h h
ex2.approx.{f16x2,ftz.bf16x2} r r
ex2.approx.ftz.bf16 h h
tanh.approx.{f16,bf16} h h
tanh.approx.{f16x2,bf16x2} r r
testp.{finite,infinite,number,notanumber,normal,subnormal}.f32 p f
testp.{finite,infinite,number,notanumber,normal,subnormal}.f64 p d
copysign.f32 f f f
copysign.f64 d d d
{and,or,xor}.b16 h h h
{and,or,xor}.b32 r r r
{and,or,xor}.b64 l l l
{not,cnot}.b32 r r
{not,cnot}.b64 l l
lop3.b32 r r r r 0x{00,1b,96,ca,e8,ff}
{shl,shr}.b32 r r r
{shl,shr}.b64 l l r
shr.s32 r r r
shr.s64 l l r
shr.s16 h h r
shf.{l,r}.{wrap,clamp}.b32 r r r r
prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} r r r r
{popc,clz}.b32 r r
{popc,clz}.b64 r l
brev.b32 r r
brev.b64 l l
bfind{,.shiftamt}.{u32,s32} r r
bfind{,.shiftamt}.{u64,s64} r l
fns.b32 r r 3 {0,2,-1,-2}
bfe.{u32,s32} r r r r
bfe.{u64,s64} l l r r
bfi.b32 r r r r 7
bfi.b64 l l l r 20
szext.{wrap,clamp}.{u32,s32} r r r
bmsk.{wrap,clamp}.b32 r r r
dp4a.{u32,s32}.{u32,s32} r r r r
dp2a.{lo,hi}.{u32,s32}.{u32,s32} r r r r
setp.{eq,ne,lt,le,gt,ge}.{s32,u32} p r r
setp.{lo,ls,hi,hs}.u32 p r r
setp.{eq,lt,ge}.s64 p l l
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f32 p f f
setp.{eq,lt}.ftz.f32 p f f
setp.{lt,neu}.f64 p d d
setp.{lt,gt,ltu}.{f16,bf16} p h h
setp.{lt,ne}.s16 p h h
set.{lt,ne}.u32.s32 r r r
set.{lt,geu}.f32.f32 f f f
set.{lt,neu}.u32.f32 r f f
set.{gt,leu}.f16x2.f16x2 r r r
slct.s32.s32 r r r r
slct{,.ftz}.f32.f32 f f f f
cvt.{u32,s32}.{u8,s8,u16,s16} r h
cvt.{u8,s8,u16,s16}.{u32,s32} {h r,h r}
cvt{,.sat}.{s16,u16}.s32 h r
cvt.sat.{u32}.s32 r r
cvt.{u64,s64}.{u32,s32} l r
cvt{,.sat}.{u32,s32}.{u64,s64} r l
cvt.{rni,rzi,rmi,rpi}{,.ftz}.{s32,u32}.f32 r f
cvt.{rni,rzi,rmi,rpi}.{s64,u64}.f32 l f
cvt.{rni,rzi}.{s16,u16,s8,u8}.f32 h f
cvt.{rni,rzi,rmi,rpi}.{s32,u32}.f64 r d
cvt.{rni,rzi}.{s64,u64}.f64 l d
cvt.{rni,rzi,rmi,rpi}.f32.f32 f f
cvt.{rni,rzi}.f64.f64 d d
cvt{.sat,.ftz,.ftz.sat}.f32.f32 f f
cvt.{rn,rz,rm,rp}.f32.{s32,u32} f r
cvt.{rn,rz,rm,rp}.f32.{s64,u64} f l
cvt.{rn,rz,rm,rp}.f64.{s64,u64} d l
cvt.rn.f64.{s32,u32} d r
cvt.{rn,rz,rm,rp}{,.ftz,.sat}.f32.f64 f d
cvt{,.ftz}.f64.f32 d f
cvt.{rn,rz}.f16.f32 h f
cvt.{rm,rp}.f16.f32 h f
cvt.rn.{sat,relu}.f16.f32 h f
cvt.rn.f16.{s32,u32} h r
cvt.rn.f16.{s64,u64} h l
cvt.{f32}.f16 f h
cvt{,.sat}.f32.f16 f h
cvt.f64.f16 d h
cvt.rn.f16.f64 h d
cvt.{rni,rzi,rmi,rpi}.{s32,u32}.f16 r h
cvt.{rni,rzi,rmi,rpi}.f16.f16 h h
cvt.{rn,rz}{,.relu}.bf16.f32 h f
cvt.{rm,rp}.bf16.f32 h f
cvt.f32.bf16 f h
cvt.{rni,rzi}.{s32,u32}.bf16 r h
cvt.rn.bf16.{s32,u32} h r
cvt.{rn,rz}{,.relu}.{f16x2,bf16x2}.f32 r f f
cvt.{rn,rz}{,.relu}.satfinite.{f16x2,bf16x2}.f32 r f f
cvt.rna{,.satfinite}.tf32.f32 r f
cvt.{rn,rz}{,.relu}.tf32.f32 r f
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32 h f f
cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2 h r
cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2} r h
cvt.pack.sat.{u16,s16}.s32 r r r
cvt.pack.sat.{u8,s8}.s32.b32 r r r r
"""


def cases() -> list[str]:
    """Every case, written out."""
    found: list[str] = []
    for line in _TEXTS.strip().splitlines():
        # A last brace of operands goes with the choice of types: its alternatives are whole operand lists.
        found += [one for one in _expand(line) if _fits(one)]
    return list(dict.fromkeys(found))


_WIDTHS = {"16": "h", "32": "rf", "64": "ld"}


def _fits(case: str) -> bool:
    """Whether the destination's letter has the width of the opcode's last type, where that says it."""
    opcode, letter = case.split()[:2]
    if opcode.startswith("mad.lo."):
        return letter in _WIDTHS[opcode[-2:]]
    return True


def data(seed: int = 2411) -> np.ndarray:
    """Three operands for each row, of 64 bits: random ones, moderate ones, special ones, and small numbers."""
    random = np.random.default_rng(seed)
    wild = random.integers(0, 1 << 64, (ROWS, 3), dtype=np.uint64)
    high = (random.integers(0x3FC, 0x404, (ROWS, 3), dtype=np.uint64) << 20) | random.integers(
        0, 1 << 20, (ROWS, 3), dtype=np.uint64
    )
    low = (random.integers(0x7A, 0x86, (ROWS, 3), dtype=np.uint64) << 23) | random.integers(
        0, 1 << 23, (ROWS, 3), dtype=np.uint64
    )
    signs = random.integers(0, 2, (ROWS, 3), dtype=np.uint64)
    moderate = (signs << 63) | (high << 32) | (signs << 31) | low
    singles = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x40000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001]
    singles += [0x3F000000, 0x3FC00000, 0x4F000000, 0x5F000000, 0x477FF000, 0x33800000, 0x43E00000, 0x7C00, 0x3C003C00]
    doubles = [0, 0, 0x000FFFFF, 0x00100000, 0x3FF00000, 0x40000000, 0x7FEFFFFF, 0x7FF00000, 0x7FF80000, 0x41E00000]
    special = random.choice(np.array(doubles, np.uint64), (ROWS, 3)) << 32
    special |= random.choice(np.array(singles, np.uint64), (ROWS, 3))
    special ^= (random.integers(0, 2, (ROWS, 3), dtype=np.uint64) << 63) | (
        random.integers(0, 2, (ROWS, 3), dtype=np.uint64) << 31
    )
    small = random.integers(0, 70, (ROWS, 3), dtype=np.uint64)
    kinds = random.integers(0, 8, (ROWS, 3))
    chosen = np.where(kinds < 2, wild, moderate)
    chosen = np.where(kinds >= 5, special, chosen)
    return np.where(kinds == 7, small, chosen)


_FROM = {
    "h": "(unsigned short)({})",
    "r": "(unsigned)({})",
    "l": "({})",
    "f": "__uint_as_float((unsigned)({}))",
    "d": "__longlong_as_double((long long)({}))",
}
_TO = {"h": "x", "r": "x", "l": "x", "f": "__float_as_uint(x)", "d": "(unsigned long long)__double_as_longlong(x)"}
_TYPES = {"h": "unsigned short", "r": "unsigned", "l": "unsigned long long", "f": "float", "d": "double"}


def _case_text(case: str, number: int) -> str:
    opcode, target, *sources = case.split()
    inputs, operands = [], []
    for source in sources:
        if source in _LETTERS:
            operands.append(f"%{len(inputs) + 1}")
            inputs.append(f'"{source}"({_FROM[source].format("abc"[len(inputs)])})')
        else:
            operands.append(source)
    if target == "p":
        text = f"{{ .reg .pred p; {opcode} p, {', '.join(operands)}; selp.u32 %0, 1, 0, p; }}"
    else:
        text = f"{opcode} %0, {', '.join(operands)};"
    letter = "r" if target == "p" else target
    return (
        f'    {{ {_TYPES[letter]} x; asm volatile("{text}" : "={letter}"(x) : {", ".join(inputs)});'
        f" out[{number} * rows + i] = {_TO[letter]}; }}\n"
    )


def program() -> str:
    """The program: `program IN OUT` reads rows of three 64-bit numbers and writes the results, case by case."""
    names = cases()
    parts = ["#include <cstdio>\n#include <cstdlib>\n#include <vector>\ntypedef unsigned long long Word;\n"]
    calls = []
    for first in range(0, len(names), _GROUP):
        body = "".join(_case_text(names[at], at) for at in range(first, min(first + _GROUP, len(names))))
        kernel = f"cases_{first}"
        parts.append(
            f"__global__ void {kernel}(const Word* in, Word* out, int rows) {{\n"
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= rows)\n        return;\n"
            "    Word a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];\n"
            f"    (void)c;\n{body}}}\n"
        )
        calls.append(f"    {kernel}<<<(rows + 63) / 64, 64>>>(in, out, rows);\n")
    parts.append(
        f"""int main(int, char** arguments) {{
    const int rows = {ROWS}, count = {len(names)};
    std::vector<Word> given(3 * rows), made((size_t)rows * count);
    FILE* file = fopen(arguments[1], "rb");
    if (!file || fread(given.data(), 8, given.size(), file) != given.size())
        return 2;
    fclose(file);
    Word *in, *out;
    cudaMalloc(&in, given.size() * 8);
    cudaMalloc(&out, made.size() * 8);
    cudaMemcpy(in, given.data(), given.size() * 8, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, made.size() * 8);
{"".join(calls)}    if (cudaDeviceSynchronize() != cudaSuccess)
        return 3;
    cudaMemcpy(made.data(), out, made.size() * 8, cudaMemcpyDeviceToHost);
    file = fopen(arguments[2], "wb");
    return file && fwrite(made.data(), 8, made.size(), file) == made.size() && fclose(file) == 0 ? 0 : 4;
}}
"""
    )
    return "".join(parts)


TILES = 16
_WORDS = 32  # of 32 bits, of one lane of a product: its factors and what is added, then room


def products() -> list[str]:
    """Every shape and type of mma.sync, as its opcode."""
    halves = [f"m16n8k{k}.row.col.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f16", "f32")]
    singles = [f"m16n8k{k}.row.col.f32.bf16.bf16.f32" for k in (8, 16)]
    singles += [f"m16n8k{k}.row.col.f32.tf32.tf32.f32" for k in (4, 8)]
    singles += [f"m16n8k32.row.col.f32.{a}.{b}.f32" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    singles += ["m16n8k32.row.col.f16.e4m3.e5m2.f16", "m16n8k16.row.col.f32.e4m3.e4m3.f32"]
    doubles = [f"{shape}.row.col.f64.f64.f64.f64" for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")]
    whole = [
        f"{shape}.row.col{limit}.s32.{a}.{b}.s32"
        for shapes, kinds in (
            (("m8n8k16", "m16n8k16", "m16n8k32"), ("u8", "s8")),
            (("m8n8k32", "m16n8k32", "m16n8k64"), ("u4", "s4")),
        )
        for shape in shapes
        for a, b in ((kinds[0], kinds[0]), (kinds[0], kinds[1]), (kinds[1], kinds[1]))
        for limit in ("", ".satfinite")
    ]
    bits = [
        f"{shape}.row.col.s32.b1.b1.s32.{operation}.popc"
        for shape in ("m8n8k128", "m16n8k128", "m16n8k256")
        for operation in ("xor", "and")
    ]
    return [f"mma.sync.aligned.{one}" for one in [*halves, *singles, *doubles, *whole, *bits]]


ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "u8": 8, "s8": 8, "u4": 4, "s4": 4}
ELEMENT_BITS |= {"b1": 1, "f32": 32, "s32": 32}


def parts_of(opcode: str) -> tuple[tuple[int, int, int], tuple[str, ...], tuple[int, ...]]:
    """Of a product m, n and k, the types of d, a, b and c, and the registers of a lane for each of them."""
    shape = next(word for word in opcode.split(".") if word.startswith("m") and "n8k" in word)
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    sizes = int(m), int(n), int(k)
    types = tuple(word for word in opcode.split(".") if word in ELEMENT_BITS)
    width = 64 if types[1] == "f64" else 32
    bits = [sizes[0] * sizes[1] * ELEMENT_BITS[types[0]], sizes[0] * sizes[2] * ELEMENT_BITS[types[1]]]
    bits += [sizes[2] * sizes[1] * ELEMENT_BITS[types[2]], sizes[0] * sizes[1] * ELEMENT_BITS[types[3]]]
    return sizes, types, tuple(count // 32 // width for count in bits)


def product_data(opcode: str, seed: int = 7) -> np.ndarray:
    """Words of 32 bits for each tile and lane: a, b and c of a product. Half of the tiles have small whole numbers."""
    random = np.random.default_rng([seed, *opcode.encode()])
    _, types, counts = parts_of(opcode)
    found = []
    for kind, count in zip((types[1], types[2], types[3]), counts[1:], strict=True):
        shape = (TILES, 32, count)
        if kind == "f64":
            wild = random.standard_normal(shape).view(np.uint64)
            small = random.integers(-8, 9, shape).astype(np.float64).view(np.uint64)
            words = np.where(np.arange(TILES)[:, None, None] % 2, wild, small)
            found.append(words.view(np.uint32).reshape(TILES, 32, 2 * count))
            continue
        if kind in ("f32", "tf32"):
            wild = random.standard_normal(shape).astype(np.float32).view(np.uint32)
            small = random.integers(-8, 9, shape).astype(np.float32).view(np.uint32)
        elif kind in ("f16", "bf16"):
            both = (*shape, 2)
            narrow = [random.standard_normal(both), random.integers(-8, 9, both)]
            patterns = [
                values.astype(np.float16).view(np.uint16)
                if kind == "f16"
                else (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
                for values in narrow
            ]
            wild, small = (pattern.view(np.uint32).reshape(shape) for pattern in patterns)
        elif kind in ("e4m3", "e5m2"):
            eight = random.integers(0, 0x70, (*shape, 4), dtype=np.uint8)
            eight |= random.integers(0, 2, (*shape, 4), dtype=np.uint8) << 7
            wild = eight.view(np.uint32).reshape(shape)
            ones = np.array([0x38, 0xB8, 0x40, 0] if kind == "e4m3" else [0x3C, 0xBC, 0x40, 0], np.uint8)
            small = random.choice(ones, (*shape, 4)).view(np.uint32).reshape(shape)
        else:
            wild = random.integers(0, 1 << 32, shape, dtype=np.uint32)
            small = wild
        found.append(np.where(np.arange(TILES)[:, None, None] % 2, wild, small))
    words = np.concatenate(found, axis=2).astype(np.uint32)
    return np.pad(words, ((0, 0), (0, 0), (0, _WORDS - words.shape[2])))


def _product_text(opcode: str, number: int) -> str:
    _, types, counts = parts_of(opcode)
    d, a, b, c = counts
    wide = types[1] == "f64"
    letters = {"f64": "d", "f32": "f"}
    width = 2 if wide else 1
    names = [f"%{at}" for at in range(d + a + b + c)]
    groups = [names[:d], names[d : d + a], names[d + a : d + a + b], names[d + a + b :]]
    text = f"{opcode} {', '.join('{' + ','.join(group) + '}' for group in groups)};"
    from_word = {"d": "double_at(in, {})", "f": "__uint_as_float(in[{}])", "r": "in[{}]"}
    to_letter = letters.get(types[0], "r")
    kinds = ["d" if wide else "r"] * (a + b) + [letters.get(types[3], "r")] * c
    inputs = ", ".join(f'"{kind}"({from_word[kind].format(width * at)})' for at, kind in enumerate(kinds))
    outputs = ", ".join(f'"={to_letter}"(x[{at}])' for at in range(d))
    stores = {
        "d": "put_double(out, {0}, x[{0}]);",
        "f": "out[{0}] = __float_as_uint(x[{0}]);",
        "r": "out[{0}] = x[{0}];",
    }
    kind = {"d": "double", "f": "float", "r": "unsigned"}[to_letter]
    return (
        f"__global__ void product_{number}(const unsigned* all_in, unsigned* all_out) {{\n"
        f"    const unsigned* in = all_in + (blockIdx.x * 32 + threadIdx.x) * {_WORDS};\n"
        f"    unsigned* out = all_out + (blockIdx.x * 32 + threadIdx.x) * 8;\n"
        f"    {kind} x[{d}];\n"
        f'    asm volatile("{text}" : {outputs} : {inputs});\n'
        f"    {' '.join(stores[to_letter].format(at) for at in range(d))}\n}}\n"
    )


def product_program() -> str:
    """The program: `program IN OUT` reads the words of every product and writes eight words of each lane."""
    names = products()
    kernels = "".join(_product_text(name, at) for at, name in enumerate(names))
    calls = "".join(
        f"    product_{at}<<<{TILES}, 32>>>(in + {at} * per_in, out + {at} * per_out);\n" for at in range(len(names))
    )
    return f"""#include <cstdio>
#include <cstring>
#include <vector>
__device__ double double_at(const unsigned* words, int at) {{
    return __hiloint2double((int)words[at + 1], (int)words[at]);
}}
__device__ void put_double(unsigned* words, int at, double value) {{
    words[2 * at] = (unsigned)__double2loint(value);
    words[2 * at + 1] = (unsigned)__double2hiint(value);
}}
{kernels}int main(int, char** arguments) {{
    const size_t count = {len(names)}, per_in = {TILES * 32 * _WORDS}, per_out = {TILES * 32 * 8};
    std::vector<unsigned> given(count * per_in), made(count * per_out);
    FILE* file = fopen(arguments[1], "rb");
    if (!file || fread(given.data(), 4, given.size(), file) != given.size())
        return 2;
    fclose(file);
    unsigned *in, *out;
    cudaMalloc(&in, given.size() * 4);
    cudaMalloc(&out, made.size() * 4);
    cudaMemcpy(in, given.data(), given.size() * 4, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, made.size() * 4);
{calls}    if (cudaDeviceSynchronize() != cudaSuccess)
        return 3;
    cudaMemcpy(made.data(), out, made.size() * 4, cudaMemcpyDeviceToHost);
    file = fopen(arguments[2], "wb");
    return file && fwrite(made.data(), 4, made.size(), file) == made.size() && fclose(file) == 0 ? 0 : 4;
}}
"""
