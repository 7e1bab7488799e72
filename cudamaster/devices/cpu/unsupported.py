"""What CUDA has and this device lacks: constructs, headers and names, each with a description.

Two checks use the lists. The source is searched before it is compiled, and a failed compilation is looked at
again: an error about a name of CUDA's that our headers lack says nothing about the kernel. The lists name what
really exists in CUDA; anything else stays an ordinary compile error.
"""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = Path(__file__).parent / "include"


class Unsupported(Exception):
    """A construct that this device cannot execute, and its line in the source, counted from 1."""

    def __init__(self, construct: str, line: int) -> None:
        super().__init__(f"{construct}, line {line}")
        self.construct = construct
        self.line = line


# Words of device code, full match, and what to call them.
_CONSTRUCTS: tuple[tuple[str, str], ...] = (
    (r"tex[123]D\w*|texCubemap\w*|texture|cudaTextureObject_t|cudaCreateTextureObject", "texture memory"),
    (r"surf[123]D\w*|surfCubemap\w*|cudaSurfaceObject_t|cudaCreateSurfaceObject", "surface memory"),
    (r"__block_size__|cudaLaunchAttributePreferredClusterDimension", "clusters of a choice of sizes"),
    (r"__nv_fp8\w*|__nv_fp6\w*|__nv_fp4\w*", "narrow floating-point types"),
    (r"__mbarrier_\w+", "mbarrier"),
    (r"cuTensorMapEncodeIm2col\w*", "tensor maps in im2col mode"),
    (r"CU_TENSOR_MAP_INTERLEAVE_(16|32)B", "interleaved tensor maps"),
    (r"CU_TENSOR_MAP_SWIZZLE_128B_ATOM\w+", "swizzles of more than 16 bytes at a time"),
    (r"CU_TENSOR_MAP_DATA_TYPE_(T?FLOAT32_FTZ|TFLOAT32|16U\w+)", "tensor maps that change values on their way"),
)

# Include paths that belong to CUDA. Those that are not in include/ are beyond this device.
_CUDA_HEADER = re.compile(
    r"(cuda|nv|cub|thrust|cooperative_groups|cutlass|cute|crt)/.*"
    r"|(cuda|cublas|cusparse|cufft|curand|cudnn|cusolver|nvrtc|nvtx|nvToolsExt|nvml|driver_types|device_\w+"
    r"|texture_\w+|surface_\w+|sm_\d\d_\w+|builtin_types|host_\w+|library_types|channel_descriptor|mma|math_functions"
    r"|math_constants|vector_\w+|cooperative_groups|common_functions|fatbinary\w*)\w*\.h(pp)?"
)

# Names of the CUDA runtime and of device code that this device lacks, as a compiler reports them missing.
_CUDA_NAME = re.compile(
    r"cuda(Array|Ipc|External|Graphics|MemPool|DeviceGetMemPool|DeviceGetDefaultMemPool|DeviceSetMemPool"
    r"|MallocFromPoolAsync|Malloc3D|MallocArray|MallocMipmapped|FreeArray|FreeMipmapped|Memcpy3D|MemcpyPeer|Memcpy2DTo"
    r"|Memcpy2DFrom|MemcpyBatch|Memset3D|UserObject|StreamAttachMemAsync|StreamGetCaptureInfo|Graph"
    r"|StreamGetPriority|StreamGetFlags|StreamCaptureMode|ProfilerStart|ProfilerStop|Library|GetKernel"
    r"|GetDriverEntryPoint|GetFuncBySymbol|Pitched|Extent|ChannelFormat|CreateChannelDesc|LaunchAttribute"
    r"|DeviceEnablePeer|DeviceDisablePeer|DeviceCanAccessPeer|DeviceGetP2P|DeviceGetPCIBusId|DeviceGetByPCIBusId"
    r"|MemAdvise|MemPrefetch|MemRangeGetAttribute"
    r"|OccupancyMaxPotentialBlockSizeVariableSMem|FuncAttribute|DevAttr|Error)\w*"
    r"|cu(Init|Ctx|Module|Launch|Mem|Func|Device|Stream|Event)[A-Z]\w*|CU(device|context|module|function|stream)"
    r"|__cvta_\w+|__cluster\w+|__is(Shared|Global|Constant|Local|GridConstant)|__brkpt|__pm[0-3]|__prof_trigger"
    r"|__v(abs|absdiff|add|avg|cmp|hadd|max|min|neg|sad|set|sub)\w*[24]|__vi(add)?(max|min)\w*|__nv_cvt_\w+"
    r"|__nv_atomic_\w+|__(float|double|int|uint|ll|ull)2\w+_r[nzud]|__[fd](add|sub|mul|div|rcp|sqrt)_r[nzud]"
    r"|__fmaf?_r[zud]|__fmaf_ieee_r[nzud]|cyl_bessel_i[01]f?|norm[f]?|rnorm[f]?|rnorm4df?|normcdfinvf?|erfcinvf?"
    r"|__h(cmadd|mul|add|sub|fma|eq|ne|lt|le|gt|ge|equ|neu)2?_\w+|h2?(tanh_approx|cos|sin|exp)\w*"
)
# Members of CUDA's namespaces, as they are written.
_CUDA_MEMBER = re.compile(
    r"(cg|cooperative_groups)::(experimental|memcpy_async|wait|wait_prior|invoke_one\w*|multi_grid_group|this_multi_grid"
    r"|block_tile_memory|reduce_\w+_async|\w+_update(_async)?)"
    r"|(nvcuda::)?(wmma::)?experimental|(nvcuda::wmma::|wmma::)bmma\w*|cuda::\w+"
)

_MISSING = re.compile(
    r"^[^\n]*?:(?P<line>\d+):\d+: (?:fatal )?error: (?:"
    r"‘(?P<a>[^’]*)’ (?:was not declared in this scope|has not been declared|does not name a type"
    r"|is not a member of ‘(?P<in>[^’]*)’)[^\n]*"
    r"|unknown type name '(?P<b>[^']*)'|use of undeclared identifier '(?P<c>[^']*)'"
    r"|no (?:member|template) named '(?P<d>[^']*)' in [^\n]*)",
    re.MULTILINE,
)
_REFUSED = re.compile(
    r"^[^\n]*?:(?P<line>\d+):\d+:[^\n]*unsupported on the CPU device: (?P<what>[^\n\"’]*)", re.MULTILINE
)

_NOT_CODE = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|R\"(?P<raw>[^(\s]{0,16})\(.*?\)(?P=raw)\""
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)


def code_only(source: str) -> str:
    """The source with comments and literals blanked; offsets and lines stay."""
    return _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), source)


def refuse_foreign_constructs(source: str, *, launches: bool = False) -> None:
    """Raises Unsupported for the first construct or header that this device lacks.

    With `launches`, for a kernel launch that is still there: the rewriter did not understand it.
    """
    code = code_only(source)
    if launches:
        left = code.find("<<<")
        if left >= 0:
            raise Unsupported("kernel launch of a form that is not understood", _line(code, left))
        return
    found: list[tuple[int, str]] = []
    for words, construct in _CONSTRUCTS:
        match = re.search(rf"\b(?:{words})\b", code)
        if match is not None:
            found.append((match.start(), f"{construct} ({match.group()})"))
    # Literals are blanked in `code`, and "file.h" is one; a commented-out include is none.
    for match in _INCLUDE.finditer(source):
        header = match.group(1)
        if code[match.start() : match.end()].lstrip().startswith("#") and is_foreign_header(header):
            found.append((match.start(), f"header <{header}>"))
    if found:
        offset, construct = min(found)
        raise Unsupported(construct, _line(source, offset))


def is_foreign_header(header: str) -> bool:
    """Whether an include path is one of CUDA's that this device does not provide."""
    return _CUDA_HEADER.fullmatch(header) is not None and not (INCLUDE / header).is_file()


def unsupported_in(log: str) -> str | None:
    """What a compiler's log says is missing from this device, None where the error is the source's own.

    It says so only if every missing name is CUDA's: beside an ordinary mistake, the mistake counts.
    """
    refused = _REFUSED.search(log)
    if refused is not None:
        return f"{refused.group('what').strip()}, line {refused.group('line')}"
    missing = list(_MISSING.finditer(log))
    if not missing:
        return None
    if len(missing) < len(re.findall(r": (?:fatal )?error: ", log)):
        return None
    names = [_missing_name(match) for match in missing]
    if not all(_CUDA_NAME.fullmatch(name) or _CUDA_MEMBER.fullmatch(name) for name in names):
        return None
    return f"{names[0]}, line {missing[0].group('line')}"


def _missing_name(match: re.Match[str]) -> str:
    name = next(name for name in match.group("a", "b", "c", "d") if name is not None)
    inside = match.group("in")
    return f"{inside}::{name.rsplit('::', 1)[-1]}" if inside else name


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
