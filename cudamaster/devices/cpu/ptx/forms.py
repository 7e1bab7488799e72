"""The instructions that this device executes: which modifiers each takes, in their order, and what its operands are.

A line of the texts below is one form of an instruction, much as the PTX manual writes it:

    mul .hi|.lo [.sat] .s32|.u32:T    =>  =T, T, T

`[ ]` may be left out, `|` is a choice, and `:T` gives the choice a name. Operands: `=` is written; a type, or the name
of a choice of types; `T*2` has twice the bits of T; `~T` may be a wider register; `T{V}` is a vector of as many as the
choice V says, `T{4}` of four; `T?` may be missing; `=T|=pred?` are two destinations of which the second may be missing;
`@` is written later, so the variable itself is handed over; `[]` is an address, `[]{D}` one with as many coordinates as
the choice D says; `imm` a constant; `policy` a cache policy, which means nothing here; `cc` the carry flag, which is
written nowhere.

Each becomes a call of one function in include/cudamaster_cpu/ptx/, with the modifiers as its template's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

WIDTHS = {
    **{f"{kind}{width}": width for kind in "bsu" for width in (8, 16, 32, 64)},
    **{"b128": 128, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "f32": 32, "f64": 64},
    **{"tf32": 32, "e4m3x2": 16, "e5m2x2": 16, "pred": 1},
}

_MATH_ROUNDING = "[.rn|.rz|.rm|.rp]"
_SCOPES = ".cta|.cluster|.gpu|.sys"
_SPACES = ".global|.shared|.shared::cta|.shared::cluster"
_L1 = (
    "[.L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate] "
    "[.L2::evict_normal|.L2::evict_first|.L2::evict_last] [.L2::cache_hint:H] [.L2::64B|.L2::128B|.L2::256B]"
)
_MEMORY = ".b8|.u8|.s8|.b16|.u16|.s16|.b32|.u32|.s32|.b64|.u64|.s64|.f32|.f64|.b128:T"
_COMPARE = ".eq|.ne|.lt|.le|.gt|.ge|.lo|.ls|.hi|.hs|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan"
_COMPARED = ".b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64|.f32|.f64|.f16|.bf16:T"
_LOADS = "[.global|.shared|.shared::cta|.shared::cluster|.local|.const|.param|.param::entry|.param::func]"
_STORES = "[.global|.shared|.shared::cta|.shared::cluster|.local]"
_INTEGERS = ".u16|.u32|.u64|.s16|.s32|.s64:T"
_CONVERTED = ".u8|.u16|.u32|.u64|.s8|.s16|.s32|.s64|.f16|.bf16|.f32|.f64"
_ATOMIC_ORDER = "[.relaxed|.acquire|.release|.acq_rel]"
_RED_ORDER = "[.relaxed|.release]"
_ATOMIC_FORMS = (
    (".add", ".u32|.s32|.u64|.f32|.f64:T"),
    (".add .noftz", ".f16|.f16x2|.bf16|.bf16x2:T"),
    (".min|.max", ".u32|.s32|.u64|.s64:T"),
    (".inc|.dec", ".u32:T"),
    (".and|.or|.xor", ".b32|.b64:T"),
)
_VECTOR_ATOMICS = (
    (".add", ".v2|.v4:V", ".f32:T"),
    (".add|.min|.max .noftz", ".v2|.v4:V", ".f16|.bf16:T"),
    (".add|.min|.max .noftz", ".v2|.v4:V", ".f16x2|.bf16x2:T"),
)


def _atomics() -> str:
    lines = []
    for operation, types in _ATOMIC_FORMS:
        tail = f"[{_SCOPES}] [{_SPACES}] {operation} [.L2::cache_hint:H] {types}"
        lines.append(f"atom {_ATOMIC_ORDER} {tail} => =T, [], T, policy?")
        lines.append(f"red {_RED_ORDER} {tail} => [], T, policy?")
    for operation, vector, types in _VECTOR_ATOMICS:
        for rest in (f"{operation} [.L2::cache_hint:H] {vector} {types}", f"{vector} {types} {operation}"):
            tail = f"[{_SCOPES}] [.global] {rest}"
            lines.append(f"atom {_ATOMIC_ORDER} {tail} => =T{{V}}, [], T{{V}}, policy?")
            lines.append(f"red {_RED_ORDER} {tail} => [], T{{V}}, policy?")
    tail = f"[{_SCOPES}] [{_SPACES}]"
    lines.append(f"atom {_ATOMIC_ORDER} {tail} .exch [.L2::cache_hint:H] .b32|.b64:T => =T, [], T, policy?")
    lines.append(f"atom {_ATOMIC_ORDER} {tail} .cas [.L2::cache_hint:H] .b16|.b32|.b64:T => =T, [], T, T, policy?")
    return "\n".join(lines)


_ARITHMETIC = f"""
add|sub {_INTEGERS} => =T, T, T
add .u16x2|.s16x2:T => =T, T, T
add|sub .sat .s32:T => =T, T, T
add|sub {_MATH_ROUNDING} [.ftz] [.sat] .f32:T => =T, T, T
add|sub {_MATH_ROUNDING} .f64:T => =T, T, T
add|sub [.rn] [.ftz] [.sat] .f16|.f16x2:T => =T, T, T
add|sub [.rn] .bf16|.bf16x2:T => =T, T, T
add|sub .cc .u32|.s32|.u64|.s64:T => cc, =T, T, T
addc|subc [.cc] .u32|.s32|.u64|.s64:T => cc, =T, T, T
mul .hi|.lo {_INTEGERS} => =T, T, T
mul .wide .u16|.s16|.u32|.s32:T => =T*2, T, T
mul {_MATH_ROUNDING} [.ftz] [.sat] .f32:T => =T, T, T
mul {_MATH_ROUNDING} .f64:T => =T, T, T
mul [.rn] [.ftz] [.sat] .f16|.f16x2:T => =T, T, T
mul [.rn] .bf16|.bf16x2:T => =T, T, T
mul24 .hi|.lo .u32|.s32:T => =T, T, T
mad .hi|.lo {_INTEGERS} => =T, T, T, T
mad .hi .sat .s32:T => =T, T, T, T
mad .wide .u16|.s16|.u32|.s32:T => =T*2, T, T, T*2
mad .rn|.rz|.rm|.rp [.ftz] [.sat] .f32:T => =T, T, T, T
mad .rn|.rz|.rm|.rp .f64:T => =T, T, T, T
mad .hi|.lo .cc .u32|.s32|.u64|.s64:T => cc, =T, T, T, T
madc .hi|.lo [.cc] .u32|.s32|.u64|.s64:T => cc, =T, T, T, T
mad24 .hi|.lo .u32|.s32:T => =T, T, T, T
fma .rn|.rz|.rm|.rp [.ftz] [.sat] .f32:T => =T, T, T, T
fma .rn|.rz|.rm|.rp .f64:T => =T, T, T, T
fma .rn [.ftz] [.sat|.relu] .f16|.f16x2:T => =T, T, T, T
fma .rn [.relu] .bf16|.bf16x2:T => =T, T, T, T
sad {_INTEGERS} => =T, T, T, T
div|rem {_INTEGERS} => =T, T, T
div .approx|.full|.rn|.rz|.rm|.rp [.ftz] .f32:T => =T, T, T
div .rn|.rz|.rm|.rp .f64:T => =T, T, T
abs|neg .s16|.s32|.s64|.f64|.bf16|.bf16x2:T => =T, T
abs|neg [.ftz] .f32|.f16|.f16x2:T => =T, T
min|max {_INTEGERS} => =T, T, T
min|max [.relu] .s32|.s16x2:T => =T, T, T
min|max .u16x2|.f64:T => =T, T, T
min|max [.ftz] [.NaN] [.xorsign.abs] .f32|.f16|.f16x2:T => =T, T, T
min|max [.NaN] [.xorsign.abs] .bf16|.bf16x2:T => =T, T, T
rcp|sqrt .approx|.rn|.rz|.rm|.rp [.ftz] .f32:T => =T, T
rcp|sqrt .rn|.rz|.rm|.rp .f64:T => =T, T
rsqrt .approx [.ftz] .f32|.f64:T => =T, T
sin|cos|lg2|ex2 .approx [.ftz] .f32:T => =T, T
ex2 .approx .f16|.f16x2:T => =T, T
ex2 .approx .ftz .bf16|.bf16x2:T => =T, T
tanh .approx .f32|.f16|.f16x2|.bf16|.bf16x2:T => =T, T
testp .finite|.infinite|.number|.notanumber|.normal|.subnormal .f32|.f64:T => =pred, T
copysign .f32|.f64:T => =T, T, T
"""

_BITS = """
and|or|xor .pred|.b16|.b32|.b64:T => =T, T, T
not .pred|.b16|.b32|.b64:T => =T, T
cnot .b16|.b32|.b64:T => =T, T
lop3 .b32:T => =T, T, T, T, imm
lop3 .or|.and .b32:T => =T|=pred, T, T, T, imm, pred
shl|shr .b16|.b32|.b64:T => =T, T, u32
shr .u16|.u32|.u64|.s16|.s32|.s64:T => =T, T, u32
shf .l|.r .clamp|.wrap .b32:T => =T, T, T, u32
prmt .b32 [.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] => =b32, b32, b32, b32
popc|clz .b32|.b64:T => =u32, T
brev .b32|.b64:T => =T, T
bfind [.shiftamt] .u32|.u64|.s32|.s64:T => =u32, T
fns .b32 => =b32, b32, b32, s32
bfe .u32|.u64|.s32|.s64:T => =T, T, u32, u32
bfi .b32|.b64:T => =T, T, T, u32, u32
szext .clamp|.wrap .u32|.s32:T => =T, T, u32
bmsk .clamp|.wrap .b32 => =b32, u32, u32
dp4a .u32|.s32:T .u32|.s32:U => =b32, b32, b32, b32
dp2a .lo|.hi .u32|.s32:T .u32|.s32:U => =b32, b32, b32, b32
"""

_CHOICE = f"""
setp {_COMPARE} [.ftz] {_COMPARED} => =pred|=pred?, T, T
setp {_COMPARE} .and|.or|.xor [.ftz] {_COMPARED} => =pred|=pred?, T, T, pred
setp {_COMPARE} [.ftz] .f16x2|.bf16x2:T => =pred|=pred, T, T
set {_COMPARE} [.ftz] .u32|.s32|.f32:D {_COMPARED} => =D, T, T
set {_COMPARE} .and|.or|.xor [.ftz] .u32|.s32|.f32:D {_COMPARED} => =D, T, T, pred
set {_COMPARE} [.ftz] .f16|.bf16|.u16|.s16|.u32|.s32:D .f16|.bf16:T => =D, T, T
set {_COMPARE} [.ftz] .f16x2|.bf16x2:D .f16x2|.bf16x2:T => =D, T, T
selp .b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64|.f32|.f64:T => =T, T, T, pred
slct [.ftz] .b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64|.f32|.f64:T .s32|.f32:C => =T, T, T, C
"""

_MOVES = f"""
mov .b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64|.f32|.f64|.pred|.b128:T => =T, T
cvt [.rni|.rzi|.rmi|.rpi|.rn|.rz|.rm|.rp] [.ftz] [.sat] {_CONVERTED}:D {_CONVERTED}:T => =~D, ~T
cvt .rn|.rz [.relu] [.satfinite] .f16|.bf16:D .f32:T => =~D, T
cvt .rn|.rz [.relu] [.satfinite] .f16x2|.bf16x2:D .f32:T => =D, T, T
cvt .rna [.satfinite] .tf32:D .f32:T => =D, T
cvt .rn|.rz [.satfinite] [.relu] .tf32:D .f32:T => =D, T
cvt .rn .satfinite [.relu] .e4m3x2|.e5m2x2:D .f32:T => =D, T, T
cvt .rn .satfinite [.relu] .e4m3x2|.e5m2x2:D .f16x2:T => =D, T
cvt .rn [.relu] .f16x2:D .e4m3x2|.e5m2x2:T => =D, T
cvt.pack .sat .u16|.s16:D .s32:T => =b32, T, T
cvt.pack .sat .u8|.s8:D .s32:T .b32 => =b32, T, T, b32
isspacep .global|.shared|.shared::cta|.shared::cluster|.local|.const => =pred, b64
"""

_END = "exit =>"

# Instructions that read and write registers alone, or end a thread: none can fault or wait.
_COMPUTING = (_ARITHMETIC, _BITS, _CHOICE, _MOVES, _END)

_MEMORY_ACCESS = f"""
cvta [.to] .global|.shared|.shared::cta|.shared::cluster|.local|.const|.param .u32|.u64:T => =T, T
ld [.weak] {_LOADS} [.ca|.cg|.cs|.lu|.cv] {_L1} [.v2|.v4:V] {_MEMORY} => =~T{{V}}, [], policy?
ld .volatile {_LOADS} [.v2|.v4:V] {_MEMORY} => =~T{{V}}, []
ld .relaxed|.acquire {_SCOPES} {_LOADS} {_L1} [.v2|.v4:V] {_MEMORY} => =~T{{V}}, [], policy?
ld .mmio .relaxed .sys [.global] {_MEMORY} => =~T, []
ld .global [.ca|.cg|.cs] .nc {_L1} [.v2|.v4:V] {_MEMORY} => =~T{{V}}, [], policy?
ldu [.global] [.v2|.v4:V] {_MEMORY} => =~T{{V}}, []
st [.weak] {_STORES} [.wb|.cg|.cs|.wt] {_L1} [.v2|.v4:V] {_MEMORY} => [], ~T{{V}}, policy?
st .volatile {_STORES} [.v2|.v4:V] {_MEMORY} => [], ~T{{V}}
st .relaxed|.release {_SCOPES} {_STORES} {_L1} [.v2|.v4:V] {_MEMORY} => [], ~T{{V}}, policy?
st .mmio .relaxed .sys [.global] {_MEMORY} => [], ~T
prefetch [.global|.local] .L1|.L2 => []
prefetch .global .L2::evict_last|.L2::evict_normal => []
prefetchu .L1 => []
prefetch [.const|.param] .tensormap => []
applypriority [.global] .L2::evict_normal => [], imm
discard [.global] .L2 => [], imm
createpolicy.fractional .L2::evict_last|.L2::evict_normal|.L2::evict_first|.L2::evict_unchanged \
[.L2::evict_first|.L2::evict_unchanged] .b64 => =b64, f32?
"""

_THREADS = f"""
shfl.sync .up|.down|.bfly|.idx .b32 => =b32|=pred?, b32, b32, b32, b32
vote.sync .all|.any|.uni .pred => =pred, pred, b32
vote.sync .ballot .b32 => =b32, pred, b32
match.any.sync .b32|.b64:T => =b32, T, b32
match.all.sync .b32|.b64:T => =b32|=pred?, T, b32
redux.sync .add|.min|.max .u32|.s32:T => =T, T, b32
redux.sync .and|.or|.xor .b32:T => =T, T, b32
activemask .b32 => =b32
elect.sync => =b32|=pred, b32
bar.warp.sync => b32
bar|barrier [.cta] .sync [.aligned] => u32, u32?
bar|barrier [.cta] .arrive [.aligned] => u32, u32
bar|barrier [.cta] .red .popc [.aligned] .u32 => =u32, u32, pred
bar|barrier [.cta] .red .popc [.aligned] .u32 => =u32, u32, u32, pred
bar|barrier [.cta] .red .and|.or [.aligned] .pred => =pred, u32, pred
bar|barrier [.cta] .red .and|.or [.aligned] .pred => =pred, u32, u32, pred
barrier.cluster.arrive [.release|.relaxed] [.aligned] =>
barrier.cluster.wait [.acquire] [.aligned] =>
mapa [.shared::cluster] .u32|.u64:T => =T, T, u32
getctarank [.shared::cluster] .u32|.u64:T => =u32, T
membar .cta|.gl|.sys =>
fence [.sc|.acq_rel|.acquire|.release] {_SCOPES} =>
fence.proxy .tensormap::generic .release {_SCOPES} =>
fence.proxy .tensormap::generic .acquire {_SCOPES} => [], imm
fence.proxy .alias|.async|.async.global|.async.shared::cta|.async.shared::cluster =>
nanosleep .u32 => u32
trap =>
setmaxnreg .inc|.dec .sync .aligned .u32 => imm
griddepcontrol .launch_dependents|.wait =>
"""

_MATRICES = """
ldmatrix .sync .aligned .m8n8 .x1|.x2|.x4:X [.trans] [.shared|.shared::cta] .b16 => =b32{X}, []
stmatrix .sync .aligned .m8n8 .x1|.x2|.x4:X [.trans] [.shared|.shared::cta] .b16 => [], b32{X}
movmatrix .sync .aligned .m8n8 .trans .b16 => =b32, b32
"""

# Shape, types of the factors, how many registers a and b are, and types of the accumulators.
_FLOAT_PRODUCTS = (
    (".m16n8k8", ".f16 .f16", 2, 1, (".f16", ".f32")),
    (".m16n8k16", ".f16 .f16", 4, 2, (".f16", ".f32")),
    (".m16n8k8", ".bf16 .bf16", 2, 1, (".f32",)),
    (".m16n8k16", ".bf16 .bf16", 4, 2, (".f32",)),
    (".m16n8k4", ".tf32 .tf32", 2, 1, (".f32",)),
    (".m16n8k8", ".tf32 .tf32", 4, 2, (".f32",)),
    (".m16n8k16", ".e4m3|.e5m2 .e4m3|.e5m2", 2, 1, (".f16", ".f32")),
    (".m16n8k32", ".e4m3|.e5m2 .e4m3|.e5m2", 4, 2, (".f16", ".f32")),
)
_DOUBLE_PRODUCTS = ((".m8n8k4", 1, 1, 2), (".m16n8k4", 2, 1, 4), (".m16n8k8", 4, 2, 4), (".m16n8k16", 8, 4, 4))
_INTEGER_PRODUCTS = (
    (".m8n8k16", ".u8|.s8", 1, 1, 2),
    (".m16n8k16", ".u8|.s8", 2, 1, 4),
    (".m16n8k32", ".u8|.s8", 4, 2, 4),
    (".m8n8k32", ".u4|.s4", 1, 1, 2),
    (".m16n8k32", ".u4|.s4", 2, 1, 4),
    (".m16n8k64", ".u4|.s4", 4, 2, 4),
)
_BIT_PRODUCTS = ((".m8n8k128", 1, 1, 2), (".m16n8k128", 2, 1, 4), (".m16n8k256", 4, 2, 4))


def _products() -> str:
    lines = []
    accumulators = {".f16": "b32{2}", ".f32": "f32{4}"}
    for shape, factors, a, b, types in _FLOAT_PRODUCTS:
        for sums in types:
            tail = f"=> ={accumulators[sums]}, b32{{{a}}}, b32{{{b}}}, {accumulators[sums]}"
            lines.append(f"mma.sync .aligned {shape} .row .col {sums} {factors} {sums} {tail}")
    for shape, a, b, c in _DOUBLE_PRODUCTS:
        tail = f"=> =f64{{{c}}}, f64{{{a}}}, f64{{{b}}}, f64{{{c}}}"
        lines.append(f"mma.sync .aligned {shape} .row .col [.rn] .f64 .f64 .f64 .f64 {tail}")
    for shape, kinds, a, b, c in _INTEGER_PRODUCTS:
        tail = f"=> =s32{{{c}}}, b32{{{a}}}, b32{{{b}}}, s32{{{c}}}"
        lines.append(f"mma.sync .aligned {shape} .row .col [.satfinite] .s32 {kinds} {kinds} .s32 {tail}")
    for shape, a, b, c in _BIT_PRODUCTS:
        tail = f"=> =s32{{{c}}}, b32{{{a}}}, b32{{{b}}}, s32{{{c}}}"
        lines.append(f"mma.sync .aligned {shape} .row .col .s32 .b1 .b1 .s32 .xor|.and .popc {tail}")
    return "\n".join(lines)


def _warpgroup_products() -> str:
    """Of wgmma.mma_async both forms of each type: with a in shared memory, and in registers; and where a is sparse."""
    lines = []
    for k, d, factors, turns in (
        (16, ".f32|.f16:D", ".f16 .f16", 1),
        (16, ".f32:D", ".bf16 .bf16", 1),
        (8, ".f32:D", ".tf32 .tf32", 0),
        (32, ".f32|.f16:D", ".e4m3|.e5m2 .e4m3|.e5m2", 0),
        (32, ".s32:D", ".s8|.u8 .s8|.u8", -1),
    ):
        shapes = "|".join(f".m64n{n}k{k}" for n in range(8, 257, 8))
        limit = " [.satfinite]" if turns < 0 else ""
        head = f"wgmma.mma_async .sync .aligned {shapes}:S {d} {factors}{limit}"
        signs = "" if turns < 0 else ", imm, imm"
        lines.append(f"{head} => @D{{S}}, b64, b64, pred{signs}{', imm, imm' if turns > 0 else ''}")
        lines.append(f"{head} => @D{{S}}, b32{{4}}, b64, pred{signs}{', imm' if turns > 0 else ''}")
    shapes = "|".join(f".m64n{n}k32" for n in range(8, 257, 8))
    for d, factors in ((".f32|.f16:D", ".f16 .f16"), (".f32:D", ".bf16 .bf16")):
        head = f"wgmma.mma_async.sp .sync .aligned {shapes}:S {d} {factors}"
        tail = "b64, b32, imm, pred, imm, imm, imm"
        lines.append(f"{head} => @D{{S}}, b64, {tail}, imm")
        lines.append(f"{head} => @D{{S}}, b32{{4}}, {tail}")
    return "\n".join(lines)


_WARPGROUPS = """
wgmma.fence .sync .aligned =>
wgmma.commit_group .sync .aligned =>
wgmma.wait_group .sync .aligned => imm
"""

_IN_SHARED = "[.shared|.shared::cta|.shared::cluster] .b64"
_MBARRIERS = f"""
mbarrier.init {_IN_SHARED} => [], u32
mbarrier.inval {_IN_SHARED} => []
mbarrier.expect_tx|mbarrier.complete_tx [.relaxed] [.cta|.cluster] {_IN_SHARED} => [], u32
mbarrier.arrive|mbarrier.arrive_drop [.release|.relaxed] [.cta|.cluster] {_IN_SHARED} => =b64, [], u32?
mbarrier.arrive|mbarrier.arrive_drop .noComplete [.release] [.cta] [.shared|.shared::cta] .b64 => =b64, [], u32
mbarrier.arrive.expect_tx|mbarrier.arrive_drop.expect_tx [.release|.relaxed] [.cta|.cluster] {_IN_SHARED} \
=> =b64, [], u32
mbarrier.test_wait [.acquire|.relaxed] [.cta|.cluster] {_IN_SHARED} => =pred, [], b64
mbarrier.test_wait.parity [.acquire|.relaxed] [.cta|.cluster] {_IN_SHARED} => =pred, [], u32
mbarrier.try_wait [.acquire|.relaxed] [.cta|.cluster] {_IN_SHARED} => =pred, [], b64, u32?
mbarrier.try_wait.parity [.acquire|.relaxed] [.cta|.cluster] {_IN_SHARED} => =pred, [], u32, u32?
mbarrier.pending_count .b64 => =u32, b64
fence.mbarrier_init .release .cluster =>
"""


def _bulk_reductions() -> str:
    """Copies in bulk that do an operation to each element: to global memory, and to shared memory."""
    to_global = (
        (".add", ".u32|.s32|.u64|.f32|.f64:T"),
        (".add .noftz", ".f16|.bf16:T"),
        (".min|.max", ".u32|.s32|.u64|.s64|.f16|.bf16:T"),
        (".inc|.dec", ".u32:T"),
        (".and|.or|.xor", ".b32|.b64:T"),
    )
    to_shared = (
        (".add", ".u32|.s32|.u64:T"),
        (".min|.max", ".u32|.s32:T"),
        (".inc|.dec", ".u32:T"),
        (".and|.or|.xor", ".b32:T"),
    )
    lines = [
        f"cp.reduce.async.bulk .global .shared::cta .bulk_group [.L2::cache_hint] {operation} {types} "
        "=> [], [], u32, policy?"
        for operation, types in to_global
    ]
    lines += [
        f"cp.reduce.async.bulk .shared::cluster .shared::cta .mbarrier::complete_tx::bytes {operation} {types} "
        "=> [], [], u32, []"
        for operation, types in to_shared
    ]
    return "\n".join(lines)


def _tensor_copies() -> str:
    """Copies of boxes, in tile mode."""
    box, hint = ".1d|.2d|.3d|.4d|.5d:D", "[.L2::cache_hint]"
    operations = ".add|.min|.max|.inc|.dec|.and|.or|.xor"
    into = ".shared::cluster|.shared::cta .global [.tile] .mbarrier::complete_tx::bytes"
    to_blocks = ".shared::cluster .global [.tile] .mbarrier::complete_tx::bytes .multicast::cluster"
    out = ".global .shared::cta"
    return "\n".join(
        (
            f"cp.async.bulk.tensor {box} {into} {hint} => [], []{{D}}, [], policy?",
            f"cp.async.bulk.tensor {box} {to_blocks} {hint} => [], []{{D}}, [], b16, policy?",
            f"cp.async.bulk.tensor {box} {out} [.tile] .bulk_group {hint} => []{{D}}, [], policy?",
            f"cp.reduce.async.bulk.tensor {box} {out} {operations} [.tile] .bulk_group {hint} => []{{D}}, [], policy?",
            f"cp.async.bulk.prefetch.tensor {box} .L2 .global [.tile] {hint} => []{{D}}, policy?",
        )
    )


_TO_SHARED = ".shared|.shared::cta .global [.L2::cache_hint] [.L2::64B|.L2::128B|.L2::256B]"
_COPIES = f"""
cp.async .ca|.cg {_TO_SHARED} => [], [], imm
cp.async .ca|.cg {_TO_SHARED} => [], [], imm, u32
cp.async .ca|.cg {_TO_SHARED} => [], [], imm, pred
cp.async .ca|.cg {_TO_SHARED} => [], [], imm, policy
cp.async .ca|.cg {_TO_SHARED} => [], [], imm, u32, policy
cp.async .ca|.cg {_TO_SHARED} => [], [], imm, pred, policy
cp.async.mbarrier.arrive [.noinc] [.shared|.shared::cta] .b64 => []
cp.async.bulk .shared::cluster|.shared::cta .global|.shared::cta .mbarrier::complete_tx::bytes [.L2::cache_hint] \
=> [], [], u32, [], policy?
cp.async.bulk .shared::cluster .global .mbarrier::complete_tx::bytes .multicast::cluster [.L2::cache_hint] \
=> [], [], u32, [], b16, policy?
st.async [.weak] [.shared::cluster] .mbarrier::complete_tx::bytes .b32|.b64|.u32|.u64|.s32|.s64|.f32|.f64:T => [], T, []
st.async [.weak] [.shared::cluster] .mbarrier::complete_tx::bytes .v2 .b32|.b64|.u32|.u64|.s32|.s64|.f32|.f64:T \
=> [], T{{2}}, []
st.async [.weak] [.shared::cluster] .mbarrier::complete_tx::bytes .v4 .b32|.u32|.s32|.f32:T => [], T{{4}}, []
red.async [.relaxed] [.cluster] [.shared::cluster] .mbarrier::complete_tx::bytes .inc|.dec|.min|.max|.add .u32:T \
=> [], T, []
red.async [.relaxed] [.cluster] [.shared::cluster] .mbarrier::complete_tx::bytes .min|.max|.add .s32:T => [], T, []
red.async [.relaxed] [.cluster] [.shared::cluster] .mbarrier::complete_tx::bytes .and|.or|.xor .b32:T => [], T, []
red.async [.relaxed] [.cluster] [.shared::cluster] .mbarrier::complete_tx::bytes .add .u64:T => [], T, []
cp.async.bulk .global .shared::cta .bulk_group [.L2::cache_hint] => [], [], u32, policy?
{_bulk_reductions()}
cp.async.bulk.prefetch .L2 .global [.L2::cache_hint] => [], u32, policy?
{_tensor_copies()}
cp.async.bulk.commit_group =>
cp.async.bulk.wait_group [.read] => imm
cp.async.commit_group =>
cp.async.wait_group => imm
cp.async.wait_all =>
"""


@dataclass(frozen=True)
class Slot:
    """What an operand may be."""

    written: bool
    type: str  # a type, the name of a choice, "[]", "imm", "policy" or "cc"
    count: str = ""  # of a vector: a number or the name of a choice
    twice: bool = False
    wider: bool = False
    optional: bool = False
    second: str = ""  # type of the other destination behind "|"
    second_optional: bool = False
    placed: bool = False


@dataclass(frozen=True)
class Form:
    """One form of an instruction: its function and how many words name it, what the whole has to match, the modifiers
    that it may have, and its operands."""

    function: str
    words: int
    pattern: re.Pattern[str]
    modifiers: tuple[str, ...]
    slots: tuple[Slot, ...]

    def has(self, word: str) -> bool:
        """Whether the word is one of its name, or a modifier that it may have."""
        return re.search(rf"{re.escape(re.escape('.' + word))}(?!\w)", self.pattern.pattern) is not None


_SLOT = re.compile(
    r"(?P<placed>@?)(?P<written>=?)(?P<wider>~?)(?P<type>\w+|\[\])(?P<twice>(?:\*2)?)(?:\{(?P<count>\w+)\})?"
    r"(?:\|=?(?P<second>\w+))?(?P<optional>\??)"
)
_WORD = re.compile(r"\[(?P<inner>[^\]]*)\]|(?P<plain>\S+)")


@cache
def forms() -> dict[str, tuple[Form, ...]]:
    """All forms, by the first word of the instruction."""
    found: dict[str, list[Form]] = {}
    others = (_MEMORY_ACCESS, _THREADS, _MATRICES, _COPIES, _MBARRIERS, _WARPGROUPS)
    for name, modifiers, operands in _lines((*_COMPUTING, *others, _atomics(), _products(), _warpgroup_products())):
        found.setdefault(name.split(".")[0], []).append(_form(name, modifiers, operands))
    return {word: tuple(those) for word, those in found.items()}


@cache
def computing() -> frozenset[str]:
    """First words of the instructions that only compute: no fault can be theirs."""
    return frozenset(name.split(".")[0] for name, _, _ in _lines(_COMPUTING))


def _lines(texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Name, modifiers and operands of each form."""
    for line in "\n".join(texts).splitlines():
        if line:
            head, _, operands = line.partition("=>")
            names, _, modifiers = head.strip().partition(" ")
            for name in names.split("|"):
                yield name, modifiers, operands


def _form(name: str, modifiers: str, operands: str) -> Form:
    parts = [re.escape(name)]
    known: list[str] = []
    for word in _WORD.finditer(modifiers):
        text, optional = (word["plain"], "") if word["inner"] is None else (word["inner"].strip(), "?")
        choices, _, letter = text.rpartition(":") if re.search(r"[^:]:[A-Z]$", text) else (text, "", "")
        known += [one for choice in choices.split("|") for one in choice.strip(".").split(".")]
        either = "|".join(re.escape(choice) for choice in choices.split("|"))
        parts.append(f"(?:{f'(?P<{letter}>' if letter else '(?:'}{either})){optional}")
    slots = tuple(_slot(part.strip()) for part in operands.split(",") if part.strip())
    function = name.replace(".", "_")
    return Form(function, name.count(".") + 1, re.compile("".join(parts)), tuple(known), slots)


def _slot(text: str) -> Slot:
    found = _SLOT.fullmatch(text)
    assert found is not None, text
    return Slot(
        written=bool(found["written"]),
        type=found["type"],
        count=found["count"] or "",
        twice=bool(found["twice"]),
        wider=bool(found["wider"]),
        optional=bool(found["optional"]) and not found["second"],
        second=found["second"] or "",
        second_optional=bool(found["optional"]) and bool(found["second"]),
        placed=bool(found["placed"]),
    )
