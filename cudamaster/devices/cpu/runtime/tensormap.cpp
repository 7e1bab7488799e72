// Tensor maps as the driver makes them: each rule of cuTensorMapEncodeTiled that its documentation has is checked, and
// whatever breaks one is CUDA_ERROR_INVALID_VALUE, as there. What this device does not execute it can still describe.
#include "tensor.h"

#include <cstring>

namespace executor {

namespace {

constexpr cuuint64_t kMostSize = 1ull << 32, kStrideEnd = 1ull << 40;
constexpr unsigned kMostBox = 256, kMostStep = 8;

bool is_packed(int type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
}
// Packed values that take 16 bytes have stricter rules than those that take 8.
bool is_sparse(int type) {
    return type > CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
}
bool is_float(int type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && !is_packed(type);
}

unsigned span_of(int swizzle) {
    return swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 128;
}

bool known(int value, int last) {
    return value >= 0 && value <= last;
}

bool whole(const void* place, size_t step) {
    return reinterpret_cast<uintptr_t>(place) % step == 0;
}

// Of the box's bytes that lie side by side.
bool inner_fits(int type, unsigned box, int interleave, int swizzle) {
    if (is_sparse(type))
        return box == 128;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return true;
    unsigned bytes = is_packed(type) ? box / 2 : box * bytes_of_element(static_cast<unsigned>(type));
    return bytes % 16 == 0 && (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || bytes <= span_of(swizzle));
}

bool swizzle_fits(int type, int interleave, int swizzle) {
    if (interleave == CU_TENSOR_MAP_INTERLEAVE_32B && swizzle != CU_TENSOR_MAP_SWIZZLE_32B)
        return false;
    if (!is_sparse(type))
        return true;
    if (type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B && interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return false;
    return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
           swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
           (swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B && type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
}

bool sizes_fit(int type, unsigned rank, const cuuint64_t* sizes, const cuuint64_t* strides, size_t step) {
    for (unsigned i = 0; i < rank; ++i)
        if (!sizes[i] || sizes[i] > kMostSize)
            return false;
    if (is_packed(type) && sizes[0] % (is_sparse(type) ? 128 : 2))
        return false;
    for (unsigned i = 0; i + 1 < rank; ++i)
        if (strides[i] % step || strides[i] >= kStrideEnd)
            return false;
    return true;
}

bool boxes_fit(unsigned rank, const cuuint32_t* box, const cuuint32_t* steps) {
    for (unsigned i = 0; i < rank; ++i)
        if (!box[i] || box[i] > kMostBox || !steps[i] || steps[i] > kMostStep)
            return false;
    return true;
}

// Of addresses and strides.
size_t alignment(int type, int interleave) {
    return interleave == CU_TENSOR_MAP_INTERLEAVE_32B || is_sparse(type) ? 32 : 16;
}

} // namespace
} // namespace executor

using namespace executor;

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    if (!map || !whole(map, 64) || !sizes || !box || !steps || (rank > 1 && !strides))
        return CUDA_ERROR_INVALID_VALUE;
    if (!known(type, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) ||
        !known(interleave, CU_TENSOR_MAP_INTERLEAVE_32B) ||
        !known(swizzle, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) ||
        !known(promotion, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) ||
        !known(fill, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA))
        return CUDA_ERROR_INVALID_VALUE;
    unsigned least_rank = interleave == CU_TENSOR_MAP_INTERLEAVE_NONE ? 1 : 3;
    size_t step = alignment(type, interleave);
    if (rank < least_rank || rank > kMostDimensions || !whole(base, step) ||
        !sizes_fit(type, rank, sizes, strides, step) || !boxes_fit(rank, box, steps) ||
        !inner_fits(type, box[0], interleave, swizzle) || !swizzle_fits(type, interleave, swizzle) ||
        (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE && !is_float(type)))
        return CUDA_ERROR_INVALID_VALUE;
    TensorMap made{};
    made.mark = kMapMark;
    made.base = static_cast<char*>(base);
    for (unsigned i = 0; i < rank; ++i) {
        made.last[i] = static_cast<unsigned>(sizes[i] - 1);
        made.box[i] = static_cast<unsigned short>(box[i]);
        made.steps[i] = static_cast<unsigned char>(steps[i]);
        if (i > 0)
            made.strides[i - 1] = strides[i - 1];
    }
    made.rank = static_cast<unsigned char>(rank);
    made.type = static_cast<unsigned char>(type);
    made.interleave = static_cast<unsigned char>(interleave);
    made.swizzle = static_cast<unsigned char>(swizzle);
    made.fill = static_cast<unsigned char>(fill);
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* base) {
    TensorMap made;
    if (!map || !whole(map, 64))
        return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(&made, map, sizeof made);
    if (made.mark != kMapMark || !whole(base, alignment(made.type, made.interleave)))
        return CUDA_ERROR_INVALID_VALUE;
    made.base = static_cast<char*>(base);
    std::memcpy(map, &made, sizeof made);
    return CUDA_SUCCESS;
}

// The version is that of the function's first appearance or a later one: 12.0 for both.
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                             unsigned long long, cudaDriverEntryPointQueryResult* status) {
    if (!symbol || !function)
        return cudaErrorInvalidValue;
    *function = !std::strcmp(symbol, "cuTensorMapEncodeTiled")
                    ? reinterpret_cast<void*>(cuTensorMapEncodeTiled)
                : !std::strcmp(symbol, "cuTensorMapReplaceAddress")
                    ? reinterpret_cast<void*>(cuTensorMapReplaceAddress)
                    : nullptr;
    cudaDriverEntryPointQueryResult found = !*function        ? cudaDriverEntryPointSymbolNotFound
                                            : version < 12000 ? cudaDriverEntryPointVersionNotSufficent
                                                              : cudaDriverEntryPointSuccess;
    if (found != cudaDriverEntryPointSuccess)
        *function = nullptr;
    if (status)
        *status = found;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 13000, flags, status);
}
