"""cuTensorMapEncodeTiled: which maps it makes, and what a kernel has to write for them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cpu.rewrite import Unsupported, rewrite
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

KERNELS = Path(__file__).parent / "kernels"

# What differs from a map of 64 x 64 x 8 floats with boxes of 32 x 8 x 4.
GOOD = [
    "",
    "map=64",
    "base=16",
    "sizes=1,1,1",
    "sizes=4294967296,64,8",
    "sizes=63,64,8",
    "strides=272,16",
    "strides=256,1099511627760",
    "box=256,256,256",
    "box=4,1,1",
    "steps=1,8,8",
    "rank=1",
    "rank=5 sizes=4,4,4,4,4 strides=16,64,256,1024 box=4,4,4,4,4 steps=1,1,1,1,1",
    "swizzle=1 box=8,8,4",
    "swizzle=2 box=16,8,4",
    "swizzle=3 box=32,8,4",
    "swizzle=3 box=8,8,4",
    "fill=1",
    "type=6 fill=1 box=64,8,4",
    "type=0 box=128,8,4 swizzle=3",
    "interleave=2 swizzle=1",
    "interleave=1 box=1,8,4",
    "type=13 box=32,8,4",
    "type=14 sizes=128,64,8 box=128,8,4",
]
BAD = [
    "map=32",
    "base=8",
    "type=16",
    "rank=0",
    "rank=6",
    "sizes=64,0,8",
    "sizes=4294967297,64,8",
    "strides=260,16384",
    "strides=256,1099511627776",
    "box=0,8,4",
    "box=32,257,4",
    "box=3,8,4",
    "type=6 box=4,8,4",
    "steps=1,0,1",
    "steps=1,9,1",
    "interleave=3",
    "interleave=1 rank=2",
    "interleave=2",
    "interleave=2 swizzle=1 base=16",
    "interleave=2 swizzle=1 strides=272,16384",
    "swizzle=7",
    "swizzle=1 box=12,8,4",
    "swizzle=2 box=32,8,4",
    "swizzle=3 box=36,8,4",
    "promotion=4",
    "fill=2",
    "fill=1 type=3",
    "fill=1 type=14 sizes=128,64,8 box=128,8,4",
    "type=13 sizes=63,64,8",
    "type=14 sizes=64,64,8 box=128,8,4",
    "type=14 sizes=128,64,8 box=64,8,4",
    "type=15 sizes=128,64,8 box=128,8,4 swizzle=2",
]


@pytest.mark.parametrize("words", GOOD)
def test_maps_that_keep_the_rules_are_made(build, words):
    """CUDA_SUCCESS."""
    assert build("tensor_maps").run(*words.split()).exit_code == 0


@pytest.mark.parametrize("words", BAD)
def test_each_rule_is_checked(build, words):
    """CUDA_ERROR_INVALID_VALUE."""
    assert build("tensor_maps").run(*words.split()).exit_code == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_cuda(tmp_path):
    """nvcc takes it with the driver's own header."""
    command = ["nvcc", "-std=c++17", "-c", "-o", str(tmp_path / "x"), str(KERNELS / "tensor_maps.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("const __grid_constant__ CUtensorMap map, int n", "const __grid_constant__ CUtensorMap &map, int n"),
        ("int n, __grid_constant__ const CUtensorMap map", "int n, __grid_constant__ const CUtensorMap &map"),
        ("const __grid_constant__ CUtensorMap", "const __grid_constant__ CUtensorMap&"),
        ("const __grid_constant__ Maps<CUtensorMap, 2> maps", "const __grid_constant__ Maps<CUtensorMap, 2> &maps"),
        ("const __grid_constant__ ns::CUtensorMap", "const __grid_constant__ ns::CUtensorMap&"),
        ("const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b",
         "const __grid_constant__ CUtensorMap &a, const __grid_constant__ CUtensorMap &b"),
    ],
)  # fmt: skip
def test_grid_constants_have_one_place(given, made):
    """Where there are tensor maps, such a parameter is a reference to the launch's argument."""
    assert rewrite(f"__global__ void k({given});\n") == f"__global__ void k({made});\n"


def test_other_grid_constants_stay_as_they_are():
    """And what stands in comments."""
    text = "// CUtensorMap\n__global__ void k(const __grid_constant__ float4 scale);\n"
    assert rewrite(text) == text


@pytest.mark.parametrize(
    ("name", "construct"),
    [
        ("CU_TENSOR_MAP_INTERLEAVE_16B", "interleaved tensor maps"),
        ("CU_TENSOR_MAP_DATA_TYPE_TFLOAT32", "tensor maps that change values on their way"),
        ("CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B", "swizzles of more than 16 bytes at a time"),
        ("cuTensorMapEncodeIm2col", "tensor maps in im2col mode"),
    ],
)
def test_what_is_not_executed_is_named(name, construct):
    """Before anything runs."""
    with pytest.raises(Unsupported, match=f"{construct}.*line 2"):
        rewrite(f"\nint x = {name};\n")


CANDIDATE = r"""
#include <cuda.h>
#include <cuda_runtime.h>
constexpr int kTile = 256;
__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__global__ void relu_kernel(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                            float* output, int n) {
    __shared__ __align__(128) float tile[kTile];
    __shared__ unsigned long long full;
    int at = blockIdx.x * kTile;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"((unsigned)sizeof tile) : "memory");
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2}], [%3];"
                     ::"r"(shared_address(tile)), "l"(&from), "r"(at), "r"(shared_address(&full)) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }"
                 ::"r"(shared_address(&full)) : "memory");
    tile[threadIdx.x] = fmaxf(tile[threadIdx.x], 0.0f);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    // A box writes whole chunks of 16 bytes, so the last elements are stored one by one.
    if (at + kTile > n) {
        if (at + threadIdx.x < n)
            output[at + threadIdx.x] = tile[threadIdx.x];
    } else if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];"
                     ::"l"(&to), "r"(at), "r"(shared_address(tile)) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}
static CUtensorMap map_of(const float* base, int n) {
    CUtensorMap map{};
    cuuint64_t size[1] = {(cuuint64_t)n}, stride[1] = {4};
    cuuint32_t box[1] = {kTile}, step[1] = {1};
    cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, (void*)base, size, stride, box, step,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
extern "C" void relu_optimized(float* output, const float* input, int N) {
    relu_kernel<<<(N + kTile - 1) / kTile, kTile>>>(map_of(input, N), map_of(output, N), output, N);
}
"""


@pytest.mark.slow
def test_a_candidate_with_tensor_maps_is_judged():
    """The guards take a direct call of the driver, on this device as on a GPU; the kernel is right in all builds."""
    where = Workbench(cards.load("relu"), Precision.FP32, CpuDevice(), modelled=False)
    candidate = Candidate("relu", Precision.FP32, CANDIDATE, where.baseline.command)
    result = where.evaluate(candidate, check_only=True)
    assert result.status is Status.CORRECT, result.log


def test_a_box_that_reaches_beyond_the_output_is_found():
    """It overwrites what lies behind the last element, up to 16 bytes, here as on an H200."""
    where = Workbench(cards.load("relu"), Precision.FP32, CpuDevice(), modelled=False)
    code = CANDIDATE.replace("at + kTile > n", "false")
    result = where.evaluate(Candidate("relu", Precision.FP32, code, where.baseline.command), check_only=True)
    assert result.status is Status.FAULT, result.log


@pytest.mark.slow
def test_a_map_by_value_is_found():
    """Without __grid_constant__ the map is in each thread's own memory, where the copy engine cannot read it."""
    where = Workbench(cards.load("relu"), Precision.FP32, CpuDevice(), modelled=False)
    code = CANDIDATE.replace("const __grid_constant__ ", "")
    result = where.evaluate(Candidate("relu", Precision.FP32, code, where.baseline.command), check_only=True)
    assert result.status is not Status.CORRECT
    assert "__grid_constant__" in result.log
