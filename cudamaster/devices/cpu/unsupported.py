"""What CUDA has and this device has not: constructs, headers and names, each with the words for it.

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
    (r"asm|__asm__|__asm", "inline assembly"),
    (r"tex[123]D\w*|texCubemap\w*|texture|cudaTextureObject_t|cudaCreateTextureObject", "texture memory"),
    (r"surf[123]D\w*|surfCubemap\w*|cudaSurfaceObject_t|cudaCreateSurfaceObject", "surface memory"),
    (r"__cluster_dims__|__block_size__|this_cluster|cluster_group|cudaLaunchAttributeCluster\w*", "block clusters"),
    (r"__nv_fp8\w*|__nv_fp6\w*|__nv_fp4\w*", "narrow floating-point types"),
    (r"__mbarrier_\w+|CUtensorMap|cuTensorMapEncode\w+", "mbarrier and tensor memory access"),
    (r"cudaGraph\w+|cudaStreamBeginCapture\w*|cudaStreamEndCapture", "CUDA graphs"),
)

# Include paths that belong to CUDA. Those that are not in include/ are beyond this device.
_CUDA_HEADER = re.compile(
    r"(cuda|nv|cub|thrust|cooperative_groups|cutlass|cute|crt)/.*"
    r"|(cuda|cublas|cusparse|cufft|curand|cudnn|cusolver|nvrtc|nvtx|nvToolsExt|nvml|driver_types|device_\w+"
    r"|texture_\w+|surface_\w+|sm_\d\d_\w+|builtin_types|host_\w+|library_types|channel_descriptor|mma|math_functions"
    r"|math_constants|vector_\w+|cooperative_groups|common_functions|fatbinary\w*)\w*\.h(pp)?"
)

# Names of the CUDA runtime and of device code that exist there and not here, as a compiler reports them missing.
_CUDA_NAME = re.compile(
    r"cuda(Array|Ipc|External|Graphics|GL|EGL|D3D|MemPool|DeviceGetMemPool|DeviceGetDefaultMemPool"
    r"|DeviceSetMemPool|MallocFromPoolAsync|Malloc3D|MallocArray|MallocMipmapped|FreeArray|FreeMipmapped"
    r"|Memcpy3D|MemcpyPeer|Memcpy2DTo|Memcpy2DFrom|MemcpyTo|MemcpyFrom|MemcpyBatch|Memset3D|UserObject"
    r"|StreamAttachMemAsync|StreamGetCaptureInfo|StreamIsCapturing|StreamUpdateCapture|ThreadExchangeStreamCapture"
    r"|ProfilerStart|ProfilerStop|Library|KernelSetAttribute|GetKernel|GetDriverEntryPoint|GetFuncBySymbol|Pitched"
    r"|Extent|Pos|ChannelFormat|CreateChannelDesc|MakeExtent|MakePitched|MakePos|LaunchAttribute|LaunchMemSync"
    r"|Device(Enable|Disable|CanAccess)\w*Peer|DeviceGetP2P|DeviceGetPCIBusId|DeviceGetByPCIBusId|Logs|GreenCtx"
    r"|TriggerProgrammaticLaunchCompletion|GridDependencySynchronize|MemAdvise|MemPrefetch|MemRangeGetAttribute"
    r"|OccupancyMaxActiveClusters|OccupancyMaxPotentialClusterSize|OccupancyAvailableDynamicSMem)\w*"
    r"|cu(Init|Ctx|Module|Launch|Mem|Func|Device|Stream|Event|Link|Get)[A-Z]\w*|CU[a-z]\w+"
    r"|__cvta_generic_to_\w+|__cvta_\w+_to_generic|__nv_isClusterShared\w*|__cluster\w+|__isShared|__isGlobal"
    r"|__isConstant|__isLocal|__isGridConstant|__v(abs|add|avrg|cmp|max|min|neg|sad|set|sub|hadd)\w*"
    r"|__vi(add|max|min)\w*|__pm\d+|__prof_trigger|__brkpt|__nv_cvt_\w+|__nv_aligned_device_malloc"
    r"|__nv_associate_access_property|__barrier_sync\w*|__syncthreads_\w+|__nv_atomic_\w+|__nv_tex\w+|malloc_device"
    r"|__(ull2|ll2|uint2|int2)\w+_r[dzu]|__(float|double)2\w+_r\w|__(d|f)(add|mul|sub|div|rcp|sqrt)_r[nzdu]|__fma\w*_r[nzdu]"
    r"|cyl_bessel_i[01]f?|__h\w+2?|__bfloat\w+|__half\w*2\w+|h[a-z]+2?\w*"
    r"|(barrier|pipeline|binary_semaphore|counting_semaphore|latch|annotated_ptr|access_property|apply_access_property"
    r"|memcpy_async|aligned_size_t|pipeline_shared_state|make_pipeline)"
    r"|(experimental|fp8|precision|e4m3|e5m2|memcpy_async|wait|wait_prior|invoke_one\w*|labeled_partition|multi_grid_group"
    r"|this_multi_grid|block_tile_memory|cluster_group)"
)

_MISSING = re.compile(
    r"^[^\n]*?:(?P<line>\d+):\d+: (?:fatal )?error: (?:"
    r"‘(?P<a>[^’]*)’ (?:was not declared in this scope|has not been declared|does not name a type|is not a member of [^\n]*)"
    r"|unknown type name '(?P<b>[^']*)'|use of undeclared identifier '(?P<c>[^']*)'"
    r"|no (?:member|template) named '(?P<d>[^']*)' in [^\n]*)",
    re.MULTILINE,
)
_REFUSED = re.compile(r"^[^\n]*?:(?P<line>\d+):\d+:[^\n]*unsupported on the CPU device: (?P<what>[^\n\"’]*)", re.MULTILINE)

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

    Only when every missing name is one of CUDA's: next to an ordinary mistake the mistake is what counts.
    """
    refused = _REFUSED.search(log)
    if refused is not None:
        return f"{refused.group('what').strip()}, line {refused.group('line')}"
    missing = list(_MISSING.finditer(log))
    if not missing:
        return None
    names = [next(name for name in match.group("a", "b", "c", "d") if name is not None) for match in missing]
    if not all(_CUDA_NAME.fullmatch(name.rsplit("::", 1)[-1]) for name in names):
        return None
    return f"{names[0]}, line {missing[0].group('line')}"


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
