// Copies of boxes of tensors, held against their definition element by element: for an H100 or H200, and for the CPU device.
//
//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o ptx_tensor ptx_tensor.cu && ./ptx_tensor
//
// Boxes of 1 to 5 dimensions at random places, with all swizzles, steps and fillings, into shared memory and out of it; each
// operation of each type; the driver's answer to maps that break a rule. What is wrong is printed, and the exit code is 1.
// On a GPU it also prints what no definition says and the CPU device does not execute.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using Bytes = std::vector<unsigned char>;

struct Case {
    int rank = 2, type = 7, swizzle = 0, fill = 0;
    long long sizes[5] = {}, strides[5] = {}; // bytes, of each dimension its own
    int box[5] = {}, steps[5] = {1, 1, 1, 1, 1}, at[5] = {};
};
struct Place {
    int at[5];
};

constexpr int kElements[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr const char* kTypes[] = {"u8",  "u16", "u32",  "s32",     "u64",  "s64",     "f16",
                                  "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"};
constexpr const char* kOperations[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
constexpr unsigned kTileBytes = 64 << 10;

int wrong = 0;

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

#define LOAD(dimensions, coordinates, ...)                                                                   \
    asm volatile("cp.async.bulk.tensor." dimensions "d.shared::cluster.global.tile"                          \
                 ".mbarrier::complete_tx::bytes [%0], [%1, {" coordinates "}], [%2];" ::"r"(to),             \
                 "l"(map), "r"(barrier), __VA_ARGS__                                                         \
                 : "memory")
#define STORE(dimensions, coordinates, ...)                                                                  \
    asm volatile("cp.async.bulk.tensor." dimensions "d.global.shared::cta.tile.bulk_group"                   \
                 " [%0, {" coordinates "}], [%1];" ::"l"(map),                                               \
                 "r"(to), __VA_ARGS__                                                                        \
                 : "memory")
#define REDUCE(name)                                                                                         \
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." name ".tile.bulk_group"                \
                 " [%0, {%2, %3}], [%1];" ::"l"(map),                                                        \
                 "r"(to), "r"(c[0]), "r"(c[1])                                                               \
                 : "memory")

__device__ void load(int rank, unsigned to, const CUtensorMap* map, unsigned barrier, const int (&c)[5]) {
    if (rank == 1)
        LOAD("1", "%3", "r"(c[0]));
    else if (rank == 2)
        LOAD("2", "%3, %4", "r"(c[0]), "r"(c[1]));
    else if (rank == 3)
        LOAD("3", "%3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]));
    else if (rank == 4)
        LOAD("4", "%3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    else
        LOAD("5", "%3, %4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}
__device__ void store(int rank, unsigned to, const CUtensorMap* map, const int (&c)[5]) {
    if (rank == 1)
        STORE("1", "%2", "r"(c[0]));
    else if (rank == 2)
        STORE("2", "%2, %3", "r"(c[0]), "r"(c[1]));
    else if (rank == 3)
        STORE("3", "%2, %3, %4", "r"(c[0]), "r"(c[1]), "r"(c[2]));
    else if (rank == 4)
        STORE("4", "%2, %3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    else
        STORE("5", "%2, %3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}
__device__ void reduce(int operation, unsigned to, const CUtensorMap* map, const int (&c)[5]) {
    switch (operation) {
    case 0:
        REDUCE("add");
        break;
    case 1:
        REDUCE("min");
        break;
    case 2:
        REDUCE("max");
        break;
    case 3:
        REDUCE("inc");
        break;
    case 4:
        REDUCE("dec");
        break;
    case 5:
        REDUCE("and");
        break;
    case 6:
        REDUCE("or");
        break;
    default:
        REDUCE("xor");
        break;
    }
}

// `expected` bytes come. `waits` is for how long: what never comes must not hang.
__global__ void load_kernel(const __grid_constant__ CUtensorMap map, int rank, Place place, unsigned expected,
                            unsigned char* out, int waits) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    for (unsigned i = threadIdx.x; i < kTileBytes; i += blockDim.x)
        tile[i] = 0xab;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                     "r"(expected)
                     : "memory");
        load(rank, shared_address(tile), &map, shared_address(&full), place.at);
    }
    int done = 0;
    for (int i = 0; i < waits && !done; ++i)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.s32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(&full))
                     : "memory");
    for (unsigned i = threadIdx.x; i < kTileBytes; i += blockDim.x)
        out[i] = tile[i];
}

// An operation below 0 is none.
__global__ void store_kernel(const __grid_constant__ CUtensorMap map, int rank, Place place,
                             const unsigned char* in, int operation) {
    extern __shared__ __align__(1024) unsigned char tile[];
    for (unsigned i = threadIdx.x; i < kTileBytes; i += blockDim.x)
        tile[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        if (operation < 0)
            store(rank, shared_address(tile), &map, place.at);
        else
            reduce(operation, shared_address(tile), &map, place.at);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

CUresult encode(CUtensorMap* map, const Case& one, void* data) {
    using Encode = decltype(&cuTensorMapEncodeTiled);
    static Encode function = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult status;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
        return reinterpret_cast<Encode>(found);
    }();
    cuuint64_t sizes[5], strides[5];
    cuuint32_t box[5], steps[5];
    for (int i = 0; i < 5; ++i) {
        sizes[i] = static_cast<cuuint64_t>(one.sizes[i]);
        strides[i] = static_cast<cuuint64_t>(i < 4 ? one.strides[i + 1] : 0);
        box[i] = static_cast<cuuint32_t>(one.box[i]);
        steps[i] = static_cast<cuuint32_t>(one.steps[i]);
    }
    return function(map, static_cast<CUtensorMapDataType>(one.type), static_cast<cuuint32_t>(one.rank), data,
                    sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    static_cast<CUtensorMapSwizzle>(one.swizzle), CU_TENSOR_MAP_L2_PROMOTION_NONE,
                    static_cast<CUtensorMapFloatOOBfill>(one.fill));
}

unsigned random_below(unsigned end) {
    static unsigned long long state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<unsigned>(state >> 32) % end;
}

void set_strides(Case& one) {
    one.strides[0] = kElements[one.type];
    for (int i = 0; i < one.rank; ++i)
        if (i + 1 < 5)
            one.strides[i + 1] = (one.strides[i] * one.sizes[i] + 15) / 16 * 16 + (i ? 0 : 16);
}
size_t tensor_bytes(const Case& one) {
    return static_cast<size_t>(one.strides[one.rank - 1] * one.sizes[one.rank - 1] + 64);
}

// For each byte of the tile the byte of the tensor that belongs there; -1 outside of it.
std::vector<long long> places_of(const Case& one) {
    std::vector<long long> found;
    int element = kElements[one.type], index[5] = {}, counts[5];
    for (int i = 0; i < one.rank; ++i)
        counts[i] = i ? (one.box[i] + one.steps[i] - 1) / one.steps[i] : one.box[0];
    for (bool more = true; more;) {
        long long offset = 0;
        bool inside = true;
        for (int i = 0; i < one.rank; ++i) {
            long long at = one.at[i] + index[i] * static_cast<long long>(i ? one.steps[i] : 1);
            inside = inside && at >= 0 && at < one.sizes[i];
            offset += at * one.strides[i];
        }
        for (int byte = 0; byte < element; ++byte)
            found.push_back(inside ? offset + byte : -1);
        more = false;
        for (int i = 0; i < one.rank && !more; ++i)
            if (++index[i] < counts[i])
                more = true;
            else
                index[i] = 0;
    }
    // In rows of 128 bytes, 16 at a time change places within 32, 64 or 128.
    std::vector<long long> result(found.size());
    size_t chunks = one.swizzle ? (1u << one.swizzle) : 1;
    for (size_t i = 0; i < found.size(); ++i)
        result[(i / 16 ^ i / 128 % chunks) * 16 + i % 16] = found[i];
    return result;
}

Bytes random_bytes(size_t count) {
    Bytes bytes(count);
    for (auto& byte : bytes)
        byte = static_cast<unsigned char>(random_below(256));
    return bytes;
}

void describe(const char* what, const Case& one) {
    std::printf("%s %s rank %d swizzle %d fill %d:", what, kTypes[one.type], one.rank, one.swizzle, one.fill);
    for (int i = 0; i < one.rank; ++i)
        std::printf(" [size %lld box %d step %d at %d]", one.sizes[i], one.box[i], one.steps[i], one.at[i]);
}
void tell(const char* what, const Case& one, size_t byte, unsigned expected, unsigned got) {
    if (++wrong > 40)
        return;
    describe(what, one);
    std::printf(": byte %zu is %02x and not %02x\n", byte, got, expected);
}

struct Memory {
    unsigned char* data;
    explicit Memory(const Bytes& bytes) {
        cudaMalloc(&data, bytes.size());
        cudaMemcpy(data, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    }
    ~Memory() { cudaFree(data); }
    Bytes read(size_t count) const {
        Bytes bytes(count);
        cudaMemcpy(bytes.data(), data, count, cudaMemcpyDeviceToHost);
        return bytes;
    }
};

bool came(const char* what, const Case& one) {
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        return true;
    describe(what, one);
    std::printf(": %s\n", cudaGetErrorString(error));
    std::exit(1);
}

// An H200 stops at such a store.
bool before_the_first(const Case& one) {
    return *std::min_element(one.at, one.at + one.rank) < 0;
}

Place place_of(const Case& one) {
    Place place;
    std::memcpy(place.at, one.at, sizeof place.at);
    return place;
}

Bytes loaded(const Case& one, const CUtensorMap& map, unsigned expected) {
    Memory out(Bytes(kTileBytes, 0));
    load_kernel<<<1, 64, kTileBytes>>>(map, one.rank, place_of(one), expected, out.data, 1000);
    came("load", one);
    return out.read(kTileBytes);
}

void try_case(const Case& one) {
    Bytes tensor = random_bytes(tensor_bytes(one)), tile = random_bytes(kTileBytes);
    Memory data(tensor), tile_data(tile);
    CUtensorMap map;
    CUresult made = encode(&map, one, data.data);
    if (made != CUDA_SUCCESS) {
        describe("map", one);
        std::printf(": the driver says %d\n", made);
        ++wrong;
        return;
    }
    std::vector<long long> places = places_of(one);
    Bytes got = loaded(one, map, static_cast<unsigned>(places.size()));
    for (size_t i = 0; i < kTileBytes; ++i) {
        bool in_tile = i < places.size(), inside = in_tile && places[i] >= 0;
        if (in_tile && !inside && one.fill)
            continue; // some NaN
        unsigned expected = !in_tile ? 0xab : inside ? tensor[static_cast<size_t>(places[i])] : 0;
        if (got[i] != expected) {
            tell("load", one, i, expected, got[i]);
            break;
        }
    }
    if (one.fill || before_the_first(one))
        return;
    store_kernel<<<1, 64, kTileBytes>>>(map, one.rank, place_of(one), tile_data.data, -1);
    came("store", one);
    Bytes after = data.read(tensor.size());
    // An H200 writes whole chunks of 16 bytes: where a row of the tensor ends within one, what lies behind it too.
    for (size_t i = 0; i < places.size(); ++i)
        if (long long chunk = places[i / 16 * 16]; chunk >= 0)
            tensor[static_cast<size_t>(chunk) + i % 16] = tile[i];
    for (size_t i = 0; i < tensor.size(); ++i)
        if (after[i] != tensor[i]) {
            tell("store", one, i, tensor[i], after[i]);
            break;
        }
}

Case random_case(int rank, int type, int swizzle) {
    Case one;
    one.rank = rank;
    one.type = type;
    one.swizzle = swizzle;
    int element = kElements[type];
    one.box[0] = swizzle ? (16 << swizzle) / element : 16 / element * static_cast<int>(1 + random_below(4));
    long long bytes = one.box[0] * element;
    one.sizes[0] = 1 + random_below(2u * static_cast<unsigned>(one.box[0]) + 20);
    int aligned = 16 / element; // an H200 stops at others with "an illegal instruction"
    one.at[0] =
        (static_cast<int>(random_below(static_cast<unsigned>(one.sizes[0] / aligned + 3))) - 1) * aligned;
    for (int i = 1; i < rank; ++i) {
        one.steps[i] = random_below(3) ? 1 : static_cast<int>(1 + random_below(8));
        one.box[i] = static_cast<int>(1 + random_below(rank < 4 ? 20 : 6));
        one.sizes[i] = 1 + random_below(rank < 4 ? 40 : 9);
        one.at[i] = static_cast<int>(random_below(static_cast<unsigned>(one.sizes[i]) + 6)) - 3;
        bytes *= (one.box[i] + one.steps[i] - 1) / one.steps[i];
    }
    while (bytes > kTileBytes) {
        bytes = bytes / ((one.box[1] + one.steps[1] - 1) / one.steps[1]);
        one.box[1] = one.steps[1] = 1;
    }
    set_strides(one);
    return one;
}

// An operation on elements of a type, as numbers.
template <class Type> Type result_of(int operation, Type old, Type with) {
    if constexpr (std::is_integral<Type>::value) {
        using Whole = std::make_unsigned_t<Type>;
        switch (operation) {
        case 0:
            return static_cast<Type>(static_cast<Whole>(old) + static_cast<Whole>(with));
        case 3:
            return old >= with ? Type(0) : static_cast<Type>(old + 1);
        case 4:
            return old == 0 || old > with ? with : static_cast<Type>(old - 1);
        case 5:
            return old & with;
        case 6:
            return old | with;
        case 7:
            return old ^ with;
        default:
            break;
        }
    }
    return operation == 0 ? old + with : operation == 1 ? std::min(old, with) : std::max(old, with);
}
template <class Type>
void reduce_all(int operation, const std::vector<long long>& places, Bytes& tensor, const Bytes& tile) {
    for (size_t i = 0; i < places.size(); i += sizeof(Type)) {
        long long chunk = places[i / 16 * 16]; // as of stores
        if (chunk < 0)
            continue;
        Type old, with;
        unsigned char* target = &tensor[static_cast<size_t>(chunk) + i % 16];
        std::memcpy(&old, target, sizeof old);
        std::memcpy(&with, &tile[i], sizeof with);
        old = result_of(operation, old, with);
        std::memcpy(target, &old, sizeof old);
    }
}

// Of floating point small whole numbers, whose sums are exact.
template <class Type> Bytes numbers(size_t bytes) {
    Bytes made = random_bytes(bytes);
    if (std::is_floating_point<Type>::value)
        for (size_t i = 0; i + sizeof(Type) <= bytes; i += sizeof(Type)) {
            Type value = static_cast<Type>(static_cast<int>(random_below(41)) - 20);
            std::memcpy(&made[i], &value, sizeof value);
        }
    return made;
}

template <class Type> void try_reduction(int operation, int type) {
    for (int turn = 0; turn < 8; ++turn) {
        Case one = random_case(2, type, turn % 4);
        for (int& at : one.at)
            at = std::max(at, 0);
        Bytes tensor = numbers<Type>(tensor_bytes(one)), tile = numbers<Type>(kTileBytes);
        Memory data(tensor), tile_data(tile);
        CUtensorMap map;
        if (encode(&map, one, data.data) != CUDA_SUCCESS)
            continue;
        store_kernel<<<1, 64, kTileBytes>>>(map, 2, place_of(one), tile_data.data, operation);
        came(kOperations[operation], one);
        Bytes after = data.read(tensor.size());
        reduce_all<Type>(operation, places_of(one), tensor, tile);
        for (size_t i = 0; i < tensor.size(); ++i)
            if (after[i] != tensor[i]) {
                tell(kOperations[operation], one, i, tensor[i], after[i]);
                break;
            }
    }
}

// The driver's answer, 0 or 1 (CUDA_ERROR_INVALID_VALUE), to a map with one thing changed.
void try_rule(const char* what, unsigned expected, const Case& one, size_t displaced = 0) {
    CUtensorMap map;
    CUresult made = encode(&map, one, reinterpret_cast<void*>((1ull << 32) + displaced));
    if (made == static_cast<CUresult>(expected))
        return;
    ++wrong;
    std::printf("map with %s: the driver says %d and not %u\n", what, made, expected);
}

void try_rules() {
    Case good;
    good.rank = 3;
    for (int i = 0; i < 3; ++i) {
        good.sizes[i] = 64;
        good.box[i] = 8;
    }
    good.strides[0] = 4;
    good.strides[1] = 256;
    good.strides[2] = 256 * 64;
    try_rule("nothing wrong", 0, good);
    try_rule("a base at 16", 0, good, 16);
    try_rule("a base at 8", 1, good, 8);
    auto with = [&](const char* what, unsigned expected, auto change) {
        Case one = good;
        change(one);
        try_rule(what, expected, one);
    };
    with("rank 0", 1, [](Case& one) { one.rank = 0; });
    with("rank 6", 1, [](Case& one) { one.rank = 6; });
    with("a size of 0", 1, [](Case& one) { one.sizes[1] = 0; });
    with("a size of 2^32", 0, [](Case& one) { one.sizes[1] = 1ll << 32; });
    with("a size of 2^32 + 1", 1, [](Case& one) { one.sizes[1] = (1ll << 32) + 1; });
    with("a stride of 264", 1, [](Case& one) { one.strides[1] = 264; });
    with("a stride of 2^40", 1, [](Case& one) { one.strides[2] = 1ll << 40; });
    with("a stride of 2^40 - 16", 0, [](Case& one) { one.strides[2] = (1ll << 40) - 16; });
    with("a stride shorter than a row", 0, [](Case& one) { one.strides[1] = 16; });
    with("a stride of 0", 0, [](Case& one) { one.strides[2] = 0; });
    with("a box of 0", 1, [](Case& one) { one.box[2] = 0; });
    with("a box of 256", 0, [](Case& one) { one.box[2] = 256; });
    with("a box of 257", 1, [](Case& one) { one.box[2] = 257; });
    with("a box larger than the tensor", 0, [](Case& one) { one.box[0] = 128; });
    with("a box of 20 bytes", 1, [](Case& one) { one.box[0] = 5; });
    with("a step of 0", 1, [](Case& one) { one.steps[1] = 0; });
    with("a step of 8", 0, [](Case& one) { one.steps[1] = 8; });
    with("a step of 9", 1, [](Case& one) { one.steps[1] = 9; });
    with("a box narrower than its swizzle", 0, [](Case& one) { one.swizzle = 3; });
    with("a box wider than its swizzle", 1, [](Case& one) {
        one.swizzle = 1;
        one.box[0] = 12;
    });
    with("a NaN", 0, [](Case& one) { one.fill = 1; });
    with("a NaN of integers", 1, [](Case& one) {
        one.fill = 1;
        one.type = 3;
    });
    with("a swizzle of 7", 1, [](Case& one) { one.swizzle = 7; });
    with("a filling of 2", 1, [](Case& one) { one.fill = 2; });
}

#if !defined(MSKB_CPU_DEVICE)
void print_bytes(const char* what, const Bytes& bytes, size_t first, size_t count) {
    std::printf("%s:", what);
    for (size_t i = first; i < first + count; ++i)
        std::printf("%s%02x", i % 16 ? "" : " ", bytes[i]);
    std::printf("\n");
}

// What is nowhere defined: printed, for whoever extends the CPU device.
void print_open_questions() {
    for (int type : {6, 7, 8, 9}) {
        Case one = random_case(2, type, 0);
        one.fill = 1;
        one.at[1] = -100;
        Memory data(random_bytes(tensor_bytes(one)));
        CUtensorMap map;
        encode(&map, one, data.data);
        print_bytes((std::string("NaN of ") + kTypes[type]).c_str(),
                    loaded(one, map, static_cast<unsigned>(places_of(one).size())), 0, 16);
    }
    for (int swizzle = 1; swizzle < 4; ++swizzle) {
        Case one;
        one.type = 0;
        one.swizzle = swizzle;
        one.sizes[0] = one.sizes[1] = 16;
        one.box[0] = 16;
        one.box[1] = 8;
        set_strides(one);
        Bytes tensor(tensor_bytes(one));
        for (size_t i = 0; i < tensor.size(); ++i)
            tensor[i] = static_cast<unsigned char>(i / 32);
        Memory data(tensor);
        CUtensorMap map;
        encode(&map, one, data.data);
        for (unsigned expected : {128u, 8u * (16u << swizzle)})
            print_bytes(("8 rows of 16 bytes, swizzle " + std::to_string(swizzle) + ", bytes expected " +
                         std::to_string(expected))
                            .c_str(),
                        loaded(one, map, expected), 0, 8u * (16u << swizzle));
    }
    for (int type : {10, 11, 12}) {
        Case one;
        one.type = type;
        one.sizes[0] = one.box[0] = 16;
        one.sizes[1] = one.box[1] = 1;
        set_strides(one);
        const unsigned words[16] = {0x00000001, 0x80400000, 0x3f800fff, 0x3f801000, 0x3f801001, 0x3f803000,
                                    0x3f802fff, 0xbf801000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fffffff,
                                    0x00800000, 0x007fffff, 0x80000000, 0x3f801fff};
        Bytes tensor(tensor_bytes(one));
        std::memcpy(tensor.data(), words, sizeof words);
        Memory data(tensor);
        CUtensorMap map;
        encode(&map, one, data.data);
        Bytes got = loaded(one, map, 64);
        std::printf("%s:", kTypes[type]);
        for (int i = 0; i < 16; ++i) {
            unsigned word;
            std::memcpy(&word, &got[4 * static_cast<size_t>(i)], 4);
            std::printf(" %08x>%08x", words[i], word);
        }
        std::printf("\n");
    }
}
#endif

int main() {
    cudaFuncSetAttribute(load_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes);
    cudaFuncSetAttribute(store_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kTileBytes);
    int cases = 0;
    for (int rank = 1; rank <= 5; ++rank)
        for (int type = 0; type < 10; ++type)
            for (int swizzle = 0; swizzle < 4; ++swizzle)
                for (int turn = 0; turn < 4; ++turn, ++cases) {
                    Case one = random_case(rank, type, swizzle);
                    one.fill = type >= 6 && turn == 3;
                    try_case(one);
                }
    for (int operation = 0; operation < 8; ++operation) {
        bool bits = operation >= 5, counts = operation == 3 || operation == 4;
        try_reduction<std::uint32_t>(operation, 2);
        if (counts)
            continue;
        try_reduction<std::int32_t>(operation, 3);
        try_reduction<std::uint64_t>(operation, 4);
        if (operation == 1 || operation == 2) // an H200 stops at the others
            try_reduction<std::int64_t>(operation, 5);
        if (operation == 0 && !bits) {
            try_reduction<float>(operation, 7);
            try_reduction<double>(operation, 8);
        }
    }
    try_rules();
    std::printf("%d boxes, %d wrong\n", cases, wrong);
#if !defined(MSKB_CPU_DEVICE)
    print_open_questions();
#endif
    return wrong ? 1 : 0;
}
