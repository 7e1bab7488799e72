"""Undefined symbols that an object compiled for the CPU device may carry: the executor, the CUDA runtime it has,
mathematics, memory, and what g++ itself calls.

None of them opens a file, reads the environment, loads code, starts a process or ends this one quietly.
"""

from __future__ import annotations

import re
from functools import cache

from cudamaster.devices.cpu.toolchain import INCLUDE

_BUILT_INS = r"threadIdx|blockIdx|blockDim|gridDim"
_REAL_FUNCTIONS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs fdim floor "
    "fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround "
    "modf nan nearbyint nextafter pow remainder remquo rint round scalbln scalbn sin sincos sinh sqrt tan tanh tgamma "
    "trunc y0 y1 yn roundeven"
)
_LIBM = "(?:" + "|".join(_REAL_FUNCTIONS.split()) + ")f?"
_LIBM_MORE = r"fegetround|fesetround|__(?:exp|log|pow|log2|exp2|log10|atan2|fmod|sqrt|acos|asin)f?_finite|__signgam"
_MEMORY = (
    r"mem(?:cpy|set|move|cmp|chr)|str(?:len|cmp|ncmp)|malloc|calloc|realloc|free|_Zn[wa]m\w*|_Zd[la]Pv\w*|l{0,2}abs"
)
_STDIO = r"f?printf|fput[cs]|fwrite|puts|putchar|fflush|v?snprintf|stderr|stdout|clock|qsort"
_COMPILER = (
    r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__assert_fail|abort|_Unwind_Resume|__gxx_personality_v0"
    r"|_ZSt\d+__throw_\w+|_ZSt9terminatev|__cxa_(?:begin_catch|end_catch|rethrow|call_terminate|pure_virtual)"
    r"|__cxa_(?:guard_(?:acquire|release|abort)|throw_bad_array_new_length)|_ZTVN10__cxxabiv1\w+"
    r"|__(?:trunc|extend)\w{2}[fh]f\w{1,3}2|__(?:div|mod|udiv|umod)ti[34]|__(?:float|fix)\w*ti\w*"
)
_SANITIZER = r"__asan_(?!default|on_error)\w+|__sanitizer_\w+|__ubsan_handle_\w+"


@cache
def allowed(*, debug: bool) -> frozenset[str]:
    """Regular expressions, full match. With `debug`, AddressSanitizer's entry points too."""
    entries = re.findall(
        r"\b(cudamaster_cpu_\w+)(?=\(|;)", (INCLUDE / "cudamaster_cpu" / "abi.h").read_text(encoding="utf-8")
    )
    api = re.findall(r"\b(cuda[A-Z]\w+)\(", (INCLUDE / "cudamaster_cpu" / "api.h").read_text(encoding="utf-8"))
    driver = re.findall(r"\b(cuTensorMap\w+)\(", (INCLUDE / "cudamaster_cpu" / "driver.h").read_text(encoding="utf-8"))
    listed = {"|".join(sorted(set(names))) for names in (entries, api, driver)}
    listed |= {_BUILT_INS, _LIBM, _LIBM_MORE, _MEMORY, _STDIO, _COMPILER}
    if debug:
        listed.add(_SANITIZER)
    return frozenset(listed)
