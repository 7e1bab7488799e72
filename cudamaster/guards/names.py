"""Names that a region may not use, and the message for each. For linking, the object guard has a list of its own."""

from __future__ import annotations

import re

from cudamaster.guards.lexer import words

KEYWORDS = words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
    register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq defined
    """
)

# Names that belong to the compiler or to CUDA: no macro may stand in for them.
RESERVED_MACRO = re.compile(
    r"__\w*|_[A-Z]\w*|cuda(?!Check|Assert|Safe|Error|Verify)[A-Z_]\w*|cu[A-Z]\w*|CU_\w*|NV_\w*|nv_\w*"
    r"|CUDA(?:RT)?_(?:VERSION|API\w*|[RC]_\d\w*|ENABLE\w*|NO_\w*|STANDALONE\w*|FORCE\w*|DISABLE\w*)|CUDA(?:RT)?(?:API|_CB)"
    r"|cudaError(?:_t)?"
    r"|threadIdx|blockIdx|blockDim|gridDim|warpSize|dim3|half|half2|main|std|(?:float|double|u?int|u?char)[1-4]"
    r"|mem(?:cpy|set|move|cmp)|(?:sqrt|exp|log|pow|fma|fabs|fmax|fmin|tanh|sin|cos)f?"
)

# Macros on which a region may branch although they are the compiler's: the guard is given the same values. The last row
# is of other compilers: no compiler of ours has them, and no region or command can define them.
CONDITION_MACROS = re.compile(
    r"defined|__CUDA_ARCH__|__CUDACC__|__NVCC__|__cplusplus|__CUDACC_VER_(?:MAJOR|MINOR)__|__CUDA_ARCH_FEAT_\w+"
    r"|__CUDA_ARCH_SPECIFIC__|__CUDA_ARCH_FAMILY_SPECIFIC__"
    r"|__CUDACC_RTC__|__INTELLISENSE__|_MSC_VER|_WIN32|_WIN64|__HIPCC__|__HIP__|__HIP_PLATFORM_AMD__|__HIP_DEVICE_COMPILE__"
)

# Names of the harness and of the CPU device: a kernel that recognised its build could do less in one of them.
# No name in a region contains "mskb": by that, tools recognise the harness's own kernels.
HARNESS = re.compile(r".*mskb.*|_*MSKB\w*|_*cudamaster\w*|_*CUDAMASTER\w*", re.ASCII)

# How the mangled names of the harness's own kernels begin, which lie in its namespace. The object guard sees to it
# that no candidate has such a name, however it may have come by it.
HARNESS_KERNELS = "_ZN4mskb"

_PROCESS = "Remove it: the host side allocates, copies, launches kernels and waits, and leaves the system alone."
_STATE = "A call keeps nothing: set up and tear down inside the call, on streams of its own."
_PRINT = "Remove the print: a call's only results are its outputs, and the harness finds errors."
_TIME = "Timing is the harness's; choose the kernel by the sizes that the wrapper is given."
_CALLBACK = "Put the work into kernels, launched before the wrapper returns."

_FORBIDDEN_GROUPS: tuple[tuple[str, str, str], ...] = (
    (
        r"getenv|secure_getenv|setenv|putenv|environ|dlopen|dlsym|dlvsym|dlmopen|fork|vfork|clone|exec[lv]p?e?"
        r"|execvpe|posix_spawnp?|system|popen|fopen|fopen64|freopen|fdopen|openat|open64|creat|mmap|mprotect|munmap"
        r"|syscall|ptrace|process_vm_\w+|socket|kill|raise|sigaction|signal|setjmp|longjmp|_setjmp|siglongjmp"
        r"|pthread_\w+|thrd_create|prctl|setrlimit|brk|sbrk",
        "reaches the operating system",
        _PROCESS,
    ),
    (
        r"exit|_exit|_Exit|quick_exit|atexit|at_quick_exit|on_exit|__cxa_atexit",
        "ends the process or hooks its end",
        "Return from the wrapper; the harness asks the device for errors.",
    ),
    (
        r"v?f?printf|v?sn?printf|v?dprintf|puts|fputs|fputc|putchar|putc|fwrite|perror|fflush|setvbuf|std(?:out|err|in)",
        "writes into the harness's streams",
        _PRINT,
    ),
    (
        r"clock_gettime|gettimeofday|timespec_get|ftime|rand|srand|random|srandom|drand48|lrand48",
        "asks the host for time or random numbers",
        _TIME,
    ),
    (
        r"cudaLaunchHostFunc(?:_v2)?|cudaStreamAddCallback|cudaGraphAddHostNode|cudaGraphAddNode(?:_v2)?|cudaUserObject\w*"
        r"|cudaGraphRetainUserObject|cudaLogs\w*",
        "runs host code beside the call",
        _CALLBACK,
    ),
    (
        r"cudaSetDevice\w*|cudaDeviceReset|cudaDeviceSet\w+|cudaCtx\w+|cudaMemPoolSet\w+|cudaDeviceEnablePeerAccess"
        r"|cudaStreamSetAttribute|cudaStreamCopyAttributes|cudaInitDevice|cudaThread\w+",
        "changes the device for what comes after the call",
        _STATE,
    ),
    (
        r"cudaIpc\w+|cudaImportExternal\w+|cudaExternal\w+|cudaProfiler\w+|cudaGraphics\w+|cudaEGL\w+"
        r"|cudaGetDriverEntryPoint\w*|cudaGetExportTable|cudaLibrary\w+|cudaKernel[SG]et\w+|cudaGetKernel"
        r"|cudaMemPoolImport\w+|cudaMemPoolExport\w+|cudaHostRegister|cudaHostUnregister|cudaCheckpoint\w+",
        "reaches beyond the kernels of this region",
        "Use kernels of the region; cuTensorMapEncodeTiled may be called directly, without an entry point.",
    ),
    (
        r"cublas\w*|cusparse\w*|cufft\w*|cudnn\w*|cusolver\w*|curand\w*|cutensor\w*|cub|thrust|cutlass|cute",
        "names a library that does the task",
        "Write the kernel yourself; mma, wmma, cooperative groups and inline PTX are allowed.",
    ),
    (
        r"__cuda[A-Z]\w*|__nv_\w*(?:fatbin|managed|init)\w*|__nv_h?dl_\w*|__fatbinwrap\w*|__builtin_(?:return_address|frame_address)"
        r"|__builtin_extract_return_addr|__builtin_apply\w*|__builtin_longjmp|__builtin_setjmp"
        r"|(?:__builtin_)(?:v?f?printf|puts|putchar|exit|_exit)|__builtin_unwind_init|__builtin_eh_return",
        "is the compiler's own and opens what lies below the call",
        "Use the public CUDA runtime API and the <<<...>>> launch.",
    ),
    (
        r"__builtin_(?:ia32|aarch64|arm|neon|cpu|nontemporal)_\w+|__builtin___\w+_chk",
        "is an instruction of the host's processor, whose accesses to memory are not seen",
        "Write it in CUDA C++ or with CUDA's intrinsics.",
    ),
    (
        r"__thread|__declspec|__asm__goto|__managed__|__weak__|__ifunc__",
        "keeps memory or code that the harness cannot see",
        "Use a __device__ buffer, or allocate inside the call.",
    ),
)

# Words that are also good names for a variable: refused as a call or a namespace only.
_WORDS = words(
    """
    signal system random kill raise clone exit socket environ creat puts brk cub cute thrust ftime perror
    """
)

_FORBIDDEN = tuple((re.compile(pattern), what, fix) for pattern, what, fix in _FORBIDDEN_GROUPS)

# The words that a region may give to its own functions. The object guard sees any other call by such a name, except of
# exit.
OWN_WORDS = _WORDS - {"exit"}


def forbidden(name: str, before: str, after: str) -> tuple[str, str] | None:
    """What is wrong with using `name` between two tokens, and the fix; None when it may be used."""
    if name in _WORDS and (after not in ("(", "::") or before in (".", ">")):
        return None
    if HARNESS.fullmatch(name):
        return "belongs to the harness", "Choose a name without mskb or cudamaster in it."
    for pattern, what, fix in _FORBIDDEN:
        if pattern.fullmatch(name):
            return what, fix
    return None
