"""Functions that a traced build calls: what they are given, what they answer, and whether that hangs on memory (for
steering.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cudamaster.devices.cpu.bits import INTEGERS, PASSED, bits_of
from cudamaster.devices.cpu.x86 import ARGUMENTS, matching

BLOCK = "__sanitizer_cov_trace_pc"
# Call-outs. What the others do hangs on memory.
OUT = matching(r"^__tsan_(?!atomic)|^__sanitizer_|^cudamaster_cpu_observe_(?!mem|_Z|malloc|calloc|realloc|sleep|clock)")
PLACES = matching(r"^__sanitizer_cov_trace_pc$|^__tsan_func_")  # these say where the program is
# Functions of their arguments alone.
PURE = matching(
    r"^(?:acos|asin|atan|atan2|cbrt|ceil|copysign|cosh?|erfc?|exp|exp2|exp10|expm1|fabs|floor|fma|fmax|fmin|fmod|log|log10"
    r"|log1p|log2|nearbyint|pow|rint|round|rsqrt|sinh?|sqrt|tanh?|trunc)f?$"
    r"|^_ZN14cudamaster_cpu(?:9bf16_bits|10bf16_value|9half_bits|10half_value|12to_float_odd)E"
    r"|^_Z\d+(?:__expf|__exp10f|__logf|__log2f|__log10f|__sinf|__cosf|__tanf|__tanhf|__powf|__fdividef|rsqrtf?|__saturatef)"
    r"|^_Z\d+__[fd](?:add|sub|mul|div|rcp|sqrt|ma)_r[nzud]|^_Z\d+__floats?22?b?(?:float|half)\w*_r"
    r"|^_ZN14cudamaster_cpu3ptx(?:3cvt|8cvt_pack|3add|3sub|3mul|3fma|3mad|3div|3rem|3rcp|4sqrt|5rsqrt|3ex2|3lg2|3sin|3cos"
    r"|4tanh|3min|3max|3abs|3neg|3and|2or|3xor|3not|3shl|3shr|4prmt|4lop3|3bfe|3bfi|4selp|4setp)I"
    r"|^_Z\d+__(?:byte_perm|brev|clz|popc|ffs|mulhi|umulhi|funnelshift|float_as|int_as|uint_as|double_as|\w+2(?:float|int)_r)"
    r"|^_Z\d+__b?(?:float|half|low|high)\w*2float"
)
# One of these, which is given two registers' bits and a predicate; what lies elsewhere is not its own.
_COMPARES = matching(r"^_ZN14cudamaster_cpu3ptx4setpI\w+EEEb")
# They are told places on the stack, and change four bytes at each: registers of the thread. Those of a warpgroup do so
# when somebody waits for them.
MULTIPLIES = matching(r"^_ZN14cudamaster_cpu3ptx8mma_syncI")
OF_WARPGROUP = matching(r"^_ZN14cudamaster_cpu3ptx(?:15wgmma_mma_async|18wgmma_mma_async_sp)I")
_GIVEN = re.compile(r"J((?:RK?[jif]|Pv|[jybix]|S[0-9A-Z]*_)+)EEEv\w+$")  # all that such a function is given
_EACH = re.compile(r"RK?[jif]|Pv|[jybix]|S[0-9A-Z]*_")
WORD = "j"  # an element of a factor, or where those of a sparse one are: no work hangs on it
WAITS = matching(r"^cudamaster_cpu_wgmma_wait$")
# Boxes of tensors, which lie behind the arguments in registers.
BOXES = matching(r"^cudamaster_cpu_tensor_(?:load|multicast|store)$")
BOX = 32
# Fragments and their products, which are told as places on the stack; functions with two results, likewise.
FRAGMENTS = matching(
    r"^_ZN6nvcuda4wmma\d+(?:mma_sync|load_matrix_sync|store_matrix_sync|fill_fragment)I|^_Z\d+sincos(?:pi)?f?[fd]P"
)
ATOMICS = matching(r"^_Z\d+atomic[A-Z]|^_ZN14cudamaster_cpu3ptx8atom_(?:one|cas)I")
# They hand values from thread to thread, as many whatever these are.
EXCHANGES = matching(
    r"^cudamaster_cpu_(?:numbered_)?barrier$|^_Z\d+__shfl_|^_Z\d+__(?:any|all|ballot|reduce_\w+?)_sync|3ptx9shfl_sync"
)
ANY = "any"
_TYPES_GIVEN = re.compile(r"_Z\d+__\w+_sync([ijlmfd]+)")
# What these do and answer hangs on their arguments and on who came by, and on nothing in memory.
ANSWERS = matching(
    r"^cudamaster_cpu_observe_mem(?:cpy|move|set)$|^cudamaster_cpu_(?:lane|activemask|dynamic_shared|yield|shared_address|shared_place|space|mbarrier_wait"
    r"|cluster_\w+|in_block|rank_of|in_clusters|cooperative|proxy_fence|registers|copy_\w+|bulk_\w+|tensor_\w+|wgmma_\w+"
    r"|mbarrier_\w+)$"
)
# Those of no, one, two and three arguments in registers; what lies in other registers then is not theirs.
_FEW_ARGUMENTS = matching(
    r"^cudamaster_cpu_(?:wgmma_fence|wgmma_commit|(wgmma_wait|shared_place|shared_address|cluster_place|space|rank_of|cluster_arrive|copy_wait|proxy_fence"
    r"|registers|mbarrier_inval)|(tensor_load|tensor_store|mbarrier_init|mbarrier_bytes|copy_arrive|in_block|bulk_wait)"
    r"|(tensor_multicast|mbarrier_wait|bulk_store))$"
)
TOKENS = matching(r"^cudamaster_cpu_mbarrier_(?!wait$)")  # their answer is a word of memory
ORDERS = matching(r"^_Z\d+__(?:syncwarp|threadfence)")  # given a mask of lanes at most
# Functions of libraries by which the host may look at memory; others of these call out, or it is closed to the host.
READS = matching(
    r"^(?:mem(?:cmp|chr|rchr|mem)|bcmp|bcopy|str\w+|w?mem\w+|wcs\w+|\w*printf|\w*scanf|f?put\w+|fwrite|write|qsort|bsearch"
    r"|ato[fil]l?|mktime|nan[fl]?)$|^_ZSt11_Hash_bytes|^_ZNK?St7__cxx1112basic_string\w+(?:compare|find|rfind|copy)"
)
THROWS = matching(r"^(?:__cxa_|_ZSt\d+__throw|_ZSt\d+rethrow)")
ENDS = matching(r"^(?:_Unwind_Resume|abort|__cxa_|_ZSt\d+__throw)")


@lru_cache
def exchange(name: str) -> str:
    """Which exchange it is, whatever its types: lanes may call it by any of them. Instructions of PTX may be any."""
    if "barrier" in name:
        return "barrier"
    length = re.match(r"_Z(\d+)", name)
    return name[length.end() :][: int(length[1])] if length else ANY


@lru_cache
def hangs_on(name: str) -> int:
    """The bits of what a pure function is given, at most."""
    return bits_of(*ARGUMENTS[:3]) if _COMPARES(name) else PASSED


@lru_cache
def given(name: str) -> int:
    """The bits of what an exchange is given."""
    types = _TYPES_GIVEN.fullmatch(name)
    if types is None:
        return PASSED
    integers, numbers = iter(ARGUMENTS), iter(range(8))
    return bits_of(*(f"xmm{next(numbers)}" if each in "fd" else next(integers) for each in types[1]))


@lru_cache
def operands(name: str) -> Sequence[str] | None:
    """The types of all that an instruction of tensor cores is given, mangled; None if its name is none of these."""
    types = _GIVEN.search(name)
    return None if types is None else _EACH.findall(types[1])


@lru_cache
def asked(function: str) -> int:
    """The bits of the registers in which one of the executor's functions is given integers and addresses."""
    few = _FEW_ARGUMENTS(function)
    return bits_of(*ARGUMENTS[: few.lastindex or 0]) if few else INTEGERS
