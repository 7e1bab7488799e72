"""Which undefined symbols, constructors and variables a real nvcc object of a candidate may carry.

Allow-lists, one line per group with its reason. Everything else is refused: getenv, open, dlopen, fork, printf, time,
pthread_create, cublas and whatever nobody thought of.
"""

from __future__ import annotations

import re

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim
    floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint
    lround modf nan nearbyint nextafter pow remainder remquo rint round rsqrt scalbln scalbn sin sincos sinh sqrt
    tan tanh tgamma trunc y0 y1 yn
"""

# The C++ minimum of host code that launches kernels: memory, exceptions that a container may throw, the math
# library, and qsort and bsearch, whose callbacks run inside the call.
HOST_SYMBOLS = frozenset(
    {
        *(rf"{name}[fl]?" for name in _MATH.split()),
        r"_GLOBAL_OFFSET_TABLE_|__stack_chk_fail|__dso_handle|__assert_fail|__tls_get_addr",
        r"mem(?:cpy|set|move|cmp|chr)|__mem(?:cpy|set|move)_chk|str(?:len|cmp|ncmp|chr)|bcmp",
        r"malloc|calloc|realloc|free|aligned_alloc|posix_memalign|qsort|bsearch|l?l?abs|abort",
        r"_Zn[wa]m(?:RKSt9nothrow_t|St11align_val_t)*|_Zd[la]Pv(?:m|St11align_val_t|RKSt9nothrow_t)*|_ZSt7nothrow",
        r"__cxa_(?:begin_catch|end_catch|throw|rethrow|allocate_exception|free_exception|pure_virtual"
        r"|throw_bad_array_new_length|call_unexpected|guard_acquire|guard_release|guard_abort|call_terminate)",
        r"__gxx_personality_v0|_Unwind_Resume|_ZSt9terminatev|_ZSt\d+__throw_\w+",
        r"_ZT[ISV]N?(?:10__cxxabiv1\w+|St\w+|9exception)",
        r"_ZNK?St\d+(?:exception|bad_alloc|logic_error|runtime_error|length_error|invalid_argument|out_of_range)\w*",
    }
)

# Functions that call the driver, which all GPUs of a machine share: such a call takes a hundred times as long while
# processes on another GPU start, end or are profiled.
CUDA_OF_THE_DRIVER = frozenset(
    {
        r"cuda(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool|MemGetInfo|Stream(?:Create|Destroy)"
        r"|Event(?:Create|Destroy)|GraphInstantiate|GraphExecDestroy)\w*",
    }
)

# The runtime API by name: what allocates, copies, launches, waits and asks. Left out on purpose: host callbacks,
# graphs' host nodes, IPC and external memory, the device's limits, cache and pool settings, the profiler, entry
# points to the driver, library loading.
_RUNTIME = """
    cudaMalloc cudaMallocAsync cudaMallocFromPoolAsync cudaMallocPitch cudaMalloc3D cudaMallocHost cudaHostAlloc
    cudaHostGetDevicePointer cudaMallocManaged cudaFree cudaFreeAsync cudaFreeHost cudaMemcpy cudaMemcpyAsync
    cudaMemcpy2D cudaMemcpy2DAsync cudaMemcpy3D cudaMemcpy3DAsync cudaMemcpyToSymbol cudaMemcpyToSymbolAsync
    cudaMemcpyFromSymbol cudaMemcpyFromSymbolAsync cudaMemset cudaMemsetAsync cudaMemset2D cudaMemset2DAsync
    cudaMemGetInfo cudaMemPrefetchAsync cudaMemPrefetchAsync_v2 cudaGetSymbolAddress cudaGetSymbolSize
    cudaMemPoolCreate cudaMemPoolDestroy cudaMemPoolTrimTo cudaMemPoolGetAttribute cudaDeviceGetDefaultMemPool
    cudaDeviceGetMemPool cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel
    cudaFuncSetAttribute cudaFuncGetAttributes cudaFuncSetCacheConfig
    cudaOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cudaOccupancyAvailableDynamicSMemPerBlock cudaOccupancyMaxActiveClusters cudaOccupancyMaxPotentialClusterSize
    cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cudaStreamDestroy
    cudaStreamSynchronize cudaStreamWaitEvent cudaStreamQuery cudaDeviceGetStreamPriorityRange
    cudaStreamBeginCapture cudaStreamEndCapture cudaStreamIsCapturing cudaStreamBeginCaptureToGraph
    cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v2 cudaStreamGetCaptureInfo_v3
    cudaEventCreate cudaEventCreateWithFlags cudaEventRecord cudaEventRecordWithFlags cudaEventSynchronize
    cudaEventQuery cudaEventDestroy cudaEventElapsedTime cudaEventElapsedTime_v2
    cudaGraphCreate cudaGraphDestroy cudaGraphAddKernelNode cudaGraphAddMemcpyNode cudaGraphAddMemcpyNode1D
    cudaGraphAddMemsetNode cudaGraphAddEmptyNode cudaGraphAddDependencies cudaGraphAddDependencies_v2
    cudaGraphAddChildGraphNode cudaGraphAddMemAllocNode cudaGraphAddMemFreeNode cudaGraphInstantiate
    cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams cudaGraphLaunch cudaGraphUpload
    cudaGraphExecDestroy cudaGraphGetNodes cudaGraphExecUpdate cudaGraphExecKernelNodeSetParams
    cudaGraphKernelNodeSetAttribute
    cudaDeviceSynchronize cudaGetDevice cudaGetDeviceCount cudaGetDeviceProperties cudaGetDeviceProperties_v2
    cudaDeviceGetAttribute cudaDeviceGetLimit cudaGetLastError cudaPeekAtLastError cudaGetErrorString
    cudaGetErrorName cudaPointerGetAttributes cudaRuntimeGetVersion cudaDriverGetVersion
"""

# What nvcc writes into every object that has kernels. Source code cannot name these: names with __cuda are refused.
_NVCC = (
    r"__cudaRegister(?:FatBinary|FatBinaryEnd|Function|Var)|__cudaUnregisterFatBinary|__cudaInitModule"
    r"|__cudaPushCallConfiguration|__cudaPopCallConfiguration|__cudaLaunchKernel|__cudaGetKernel|atexit"
)

# Tensor maps are made on the host by the driver; the symbol is open so that no entry point need be.
_TENSOR_MAP = r"cuTensorMap(?:EncodeTiled|EncodeIm2col|EncodeIm2colWide|ReplaceAddress)"

# nvcc gives every __device__ function of external linkage a body on the host that calls exit and is never called, and
# such names come in too many forms to tell from the author's own: unnamed namespaces, operators, templates.
_OF_DUMMIES = "exit"

CUDA_ALLOWED_SYMBOLS = HOST_SYMBOLS | {"|".join(_RUNTIME.split()), _NVCC, _TENSOR_MAP, _OF_DUMMIES}

# So it may be referred to, but cannot be reached: the source guard refuses its calls, and here is what `localise` puts
# in its place. A call behind the guard's back, through a pointer, ends the candidate's process as abort does, which is
# open to it anyway: the judge sees a process killed, and nothing that runs at a process's end has run.
INSTEAD = {"exit": "abort"}

# nvcc's one constructor per object, which registers the kernels.
CUDA_CONSTRUCTORS = frozenset({r"_ZL24__sti____cudaRegisterAllv"})

# Symbols that nothing but those constructors may refer to: atexit would run the candidate's code after the verdict.
CONSTRUCTOR_ONLY = frozenset({"atexit", "__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd"})

# Writable variables that nvcc itself makes: the launch stubs' handles, the registration's bookkeeping, and how a lambda
# for host and device is called. Source code cannot name these either.
CUDA_STATE = frozenset(
    {
        r"_Z(?:GV)?Z[A-Z0-9]*__device_stub__.*",
        r"_Z(?:GV)?ZN.*__device_stub__.*",
        r"_Z(?:GV)?Z.*__wrapper__device_stub_.*",
        r"_ZL\d+__(?:fatDeviceText|cudaFatCubinHandle|nv_inited_managed_rt|nv_fatbinhandle_for_managed_rt)\w*",
        r"_ZZL\d+_+nv_(?:dummy_param_ref|cudaEntityRegisterCallback)PP?vE5__ref",
        r"_ZN12_GLOBAL__N_115__nv_hdl_helperI.*E\d+fp_(?:noobject_caller|caller|copier|deleter)E",
        r"DW\.ref\.__gxx_personality_v0",
    }
)


# What CUTLASS's headers call where they report an error: streams and assertions. The region itself may name no stream.
OPENED_SYMBOLS = frozenset(
    {
        r"_ZSt4(?:cerr|cout)",
        r"_ZNSo\w+",
        r"_ZSt16__ostream_insert\w+",
        r"_ZStls\w+",
        r"_ZNKSt5ctypeIcE\w+",
        r"_ZSt16__throw_bad_castv",
        r"__assert_fail",
    }
)


def may_ask_driver(source: str) -> bool:
    """Whether a text names a function that asks the driver for something, be it in a comment."""
    return any(re.search(rf"\b{function}\s*\(", source) is not None for function in CUDA_OF_THE_DRIVER)
