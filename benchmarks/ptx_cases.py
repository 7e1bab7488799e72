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
        text = "{ .reg .pred p; %s p, %s; selp.u32 %%0, 1, 0, p; }" % (opcode, ", ".join(operands))
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
