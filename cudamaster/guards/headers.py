"""Headers that a region may include. All others are refused, such as libraries that do the task, and the system's.

A task's card can open libraries of headers to its candidates; what they open stands in `OPENED`.
"""

import re
from collections.abc import Sequence

_CUDA = """
    builtin_types.h channel_descriptor.h cooperative_groups.h cooperative_groups/memcpy_async.h
    cooperative_groups/reduce.h cooperative_groups/scan.h cuComplex.h cuda.h cuda_awbarrier.h
    cuda_awbarrier_primitives.h cuda_bf16.h cuda_device_runtime_api.h cuda_fp16.h cuda_fp4.h cuda_fp6.h
    cuda_fp8.h cuda_occupancy.h cuda_pipeline.h cuda_pipeline_primitives.h cuda_runtime.h cuda_runtime_api.h
    cudaTypedefs.h device_atomic_functions.h device_functions.h device_launch_parameters.h device_types.h
    driver_types.h host_defines.h library_types.h math_constants.h math_functions.h mma.h crt/mma.h
    sm_20_intrinsics.h sm_30_intrinsics.h sm_32_intrinsics.h sm_35_intrinsics.h sm_61_intrinsics.h
    vector_functions.h vector_types.h
    cuda/access_property cuda/annotated_ptr cuda/atomic cuda/barrier cuda/bit cuda/cmath cuda/functional
    cuda/latch cuda/pipeline cuda/ptx cuda/semaphore cuda/type_traits cuda/utility cuda/version
"""

_CUDA_STD = """
    array atomic barrier bit cassert cfloat climits cmath complex concepts cstddef cstdint cstdlib cstring
    expected functional initializer_list inplace_vector iterator latch limits mdspan numbers numeric optional
    ratio semaphore span string_view tuple type_traits utility variant version algorithm
"""

# <cstdio> and <cstdlib> come with much honest code that uses little of them; their dangerous functions are refused
# by name and cannot link.
_STANDARD = """
    algorithm array assert.h bit bitset cassert cfloat climits cmath compare complex concepts cstddef cstdint
    cstdio cstdlib cstring float.h functional initializer_list inttypes.h cinttypes iterator limits limits.h
    math.h memory new numbers numeric optional ratio span stdbool.h stddef.h stdexcept stdint.h stdio.h stdlib.h
    string.h tuple type_traits utility vector version
"""

ALLOWED = frozenset([*_CUDA.split(), *(f"cuda/std/{name}" for name in _CUDA_STD.split()), *_STANDARD.split()])

_LIBRARIES = (
    "cublas",
    "cusparse",
    "cufft",
    "cudnn",
    "cusolver",
    "curand",
    "cutensor",
    "cub/",
    "thrust/",
    "cutlass/",
    "cute/",
    "nvjitlink",
    "npp",
    "cccl/",
)


# Libraries of headers that a card can open, with the headers of each.
OPENED = {name: re.compile(rf"{name}/(?:\w+/)*\w+\.(?:h|hpp|cuh)") for name in ("cutlass", "cute")}


def is_allowed(name: str, libraries: Sequence[str] = ()) -> bool:
    """Whether a region may include a header; `libraries` are those that its task opens."""
    return name in ALLOWED or library_of(name) in libraries


def library_of(name: str) -> str | None:
    """The library of headers that a card can open and that has this header, if one has."""
    return next((library for library, form in OPENED.items() if form.fullmatch(name)), None)


def does_the_task(name: str) -> bool:
    """Whether a header belongs to a library that would do the task for the candidate."""
    return name.lower().startswith(_LIBRARIES)
