// Kernel launches. The rewriter turns k<<<grid, block, shared, stream>>>(arguments) into
// launch("k", Config(...), body, function)(arguments).
#pragma once

#include "cudamaster_cpu/abi.h"

#include <tuple>
#include <type_traits>
#include <utility>

namespace cudamaster_cpu {

struct Config {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
    bool cooperative = false, early = false;
    dim3 cluster{0, 0, 0};
    Config(dim3 grid_, dim3 block_, size_t shared = 0, cudaStream_t stream_ = nullptr)
        : grid(grid_), block(block_), shared_bytes(shared), stream(stream_) {}
};

struct Tag {};

// Well-formed only where `function` names one function: a template whose arguments the call deduces does not.
template <class Result, class... Parameters> auto one_function(Tag, Result (*function)(Parameters...)) {
    return function;
}

template <class Body, class Values> struct Closure {
    Body* body;
    Values* values;
    // Spelled out, for std::apply puts half a page before the compiler's word on a wrong argument.
    template <size_t... Index> void call(std::index_sequence<Index...>) const {
        (*body)(std::get<Index>(*values)...);
    }
    static void invoke(const void* closure) {
        static_cast<const Closure*>(closure)->call(std::make_index_sequence<std::tuple_size_v<Values>>());
    }
    struct Kept {
        Closure closure;
        std::remove_const_t<Body> body;
        Values values;
    };
    static void* keep(const void* closure) {
        const auto* given = static_cast<const Closure*>(closure);
        Kept* kept = new Kept{{}, *given->body, *given->values};
        kept->closure = {&kept->body, &kept->values};
        return kept; // which begins with the closure
    }
    static void drop(void* kept) { delete static_cast<Kept*>(kept); }

    using Take = void (*)(void* to, const void* value, size_t bytes);
    template <class... Each>
    static bool hand_out([[maybe_unused]] Take take, [[maybe_unused]] void* to, const Each&... each) {
        if constexpr ((std::is_trivially_copyable_v<Each> && ...)) {
            ((std::is_empty_v<Each> ? void() : take(to, &each, sizeof each)), ...);
            return true;
        }
        return false;
    }
    static bool arguments(const void* closure, Take take, void* to) {
        const auto* given = static_cast<const Closure*>(closure);
        return std::apply([&](const auto&... each) { return hand_out(take, to, *given->body, each...); },
                          *given->values);
    }
};

template <class Value>
void collect_pointer([[maybe_unused]] const Value& value, [[maybe_unused]] const void** pointers,
                     [[maybe_unused]] size_t& count) {
    if constexpr (std::is_pointer_v<Value> && !std::is_function_v<std::remove_pointer_t<Value>>)
        pointers[count++] = const_cast<const void*>(static_cast<const volatile void*>(value));
}

template <class Body, class Values>
cudaError_t submit(const char* kernel, const void* function, const Config& config, Body& body,
                   Values& values) {
    Closure<Body, Values> closure{&body, &values};
    const void* pointers[std::tuple_size_v<Values> + 1] = {};
    size_t count = 0;
    std::apply([&](const auto&... value) { (collect_pointer(value, pointers, count), ...); }, values);
    CudamasterCpuLaunch launch{kernel,
                               function,
                               config.grid,
                               config.block,
                               config.shared_bytes,
                               config.stream,
                               config.cooperative,
                               config.early,
                               config.cluster,
                               &Closure<Body, Values>::invoke,
                               &closure,
                               pointers,
                               count,
                               &Closure<Body, Values>::keep,
                               &Closure<Body, Values>::drop,
                               &Closure<Body, Values>::arguments};
    return cudamaster_cpu_launch(&launch);
}

// Arguments are evaluated and stored once; each thread's parameters are copies, as a kernel's are. This one is
// for kernels whose parameters are known from the call alone: they are of the arguments' own types.
template <class Body> struct DeducedLaunch {
    const char* kernel;
    const void* function;
    const Config& config;
    Body& body;

    template <class... Arguments> void operator()(Arguments&&... arguments) const {
        std::tuple<std::decay_t<Arguments>...> values(std::forward<Arguments>(arguments)...);
        submit(kernel, function, config, body, values);
    }
};

// Called as the kernel itself would be, so that 0 becomes a pointer and a braced list a struct.
template <class Body, class... Parameters> struct TypedLaunch {
    DeducedLaunch<Body> launch;

    void operator()(Parameters... arguments) const { launch(std::forward<Parameters>(arguments)...); }
    // Parameters may have default arguments, which only the kernel's name knows.
    template <class... Arguments, class = std::enable_if_t<sizeof...(Arguments) != sizeof...(Parameters)>>
    void operator()(Arguments&&... arguments) const {
        launch(std::forward<Arguments>(arguments)...);
    }
};

template <class Body, class... Parameters>
TypedLaunch<Body, Parameters...> typed(void (*function)(Parameters...), DeducedLaunch<Body> launch) {
    launch.function = reinterpret_cast<const void*>(function);
    return {launch};
}

// What it returns refers to `config` and `body`, which live as long as the expression.
template <class Body, class Function>
auto launch(const char* kernel, const Config& config, Body&& body, Function function) {
    DeducedLaunch<Body> deduced{kernel, nullptr, config, body};
    if constexpr (std::is_invocable_v<Function, Tag>)
        return typed(function(Tag{}), deduced);
    else
        return deduced;
}

template <class... Parameters>
cudaError_t launch_pointer(void (*function)(Parameters...), const Config& config,
                           std::tuple<std::decay_t<Parameters>...> values) {
    auto body = [function](auto&... parameters) { function(parameters...); };
    return submit("kernel", reinterpret_cast<const void*>(function), config, body, values);
}

template <class... Parameters, size_t... Index>
cudaError_t launch_array(void (*function)(Parameters...), const Config& config, void** arguments,
                         std::index_sequence<Index...>) {
    return launch_pointer(function, config,
                          std::tuple<std::decay_t<Parameters>...>(
                              *static_cast<std::decay_t<Parameters>*>(arguments[Index])...));
}

inline Config with_attributes(const cudaLaunchConfig_t& given) {
    Config config(given.gridDim, given.blockDim, given.dynamicSmemBytes, given.stream);
    for (unsigned int i = 0; i < given.numAttrs; ++i) {
        const cudaLaunchAttribute& attribute = given.attrs[i];
        const auto& shape = attribute.val.clusterDim;
        if (attribute.id == cudaLaunchAttributeCooperative)
            config.cooperative = attribute.val.cooperative != 0;
        else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
            config.early = attribute.val.programmaticStreamSerializationAllowed != 0;
        else if (attribute.id == cudaLaunchAttributeClusterDimension)
            config.cluster = {shape.x, shape.y, shape.z};
    }
    return config;
}

// What __cluster_dims__ becomes, at the beginning of the kernel.
inline void cluster_dims(unsigned int x, unsigned int y = 1, unsigned int z = 1) {
    cudamaster_cpu_cluster_dims(x, y, z);
}

inline unsigned char* dynamic_shared() {
    return cudamaster_cpu_dynamic_shared;
}

template <class Type> Type& exact_shared(const void* key, size_t alignment) {
    return *static_cast<Type*>(cudamaster_cpu_exact_shared(
        key, sizeof(Type), alignment > alignof(Type) ? alignment : alignof(Type)));
}

} // namespace cudamaster_cpu

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*function)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
    return cudamaster_cpu::launch_array(function, {grid, block, shared_bytes, stream}, arguments,
                                        std::index_sequence_for<Parameters...>());
}

template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*function)(Parameters...), dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes = 0,
                                        cudaStream_t stream = nullptr) {
    cudamaster_cpu::Config config(grid, block, shared_bytes, stream);
    config.cooperative = true;
    return cudamaster_cpu::launch_array(function, config, arguments,
                                        std::index_sequence_for<Parameters...>());
}

template <class... Parameters>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*function)(Parameters...),
                                void** arguments) {
    return cudamaster_cpu::launch_array(function, cudamaster_cpu::with_attributes(*config), arguments,
                                        std::index_sequence_for<Parameters...>());
}

// A kernel known by address alone has lost its parameters' types.
#define CUDAMASTER_CPU_TYPELESS                                                                              \
    __attribute__((error("unsupported on the CPU device: kernel handed over as void* in a variable")))
CUDAMASTER_CPU_TYPELESS cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t = 0,
                                                     cudaStream_t = nullptr);
CUDAMASTER_CPU_TYPELESS cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t = 0,
                                                                cudaStream_t = nullptr);
CUDAMASTER_CPU_TYPELESS cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
#undef CUDAMASTER_CPU_TYPELESS

// What a node of a graph is given as its kernel, with all that is known of its parameters.
template <class... Parameters> CudamasterCpuKernel::CudamasterCpuKernel(void (*kernel)(Parameters...)) {
    function = reinterpret_cast<const void*>(kernel);
    submit = [](const void* known, const CudamasterCpuNodeShape& shape, void** arguments) {
        cudamaster_cpu::Config config(shape.grid, shape.block, shape.shared_bytes, shape.stream);
        return cudamaster_cpu::launch_array(
            reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(known)), config, arguments,
            std::index_sequence_for<Parameters...>());
    };
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*function)(Parameters...),
                               Arguments&&... arguments) {
    return cudamaster_cpu::launch_pointer(
        function, cudamaster_cpu::with_attributes(*config),
        std::tuple<std::decay_t<Parameters>...>(std::forward<Arguments>(arguments)...));
}

template <class Function>
cudaError_t cudaFuncSetAttribute(Function* function, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
template <class Function>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Function* function) {
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(function));
}
template <class Function> cudaError_t cudaFuncSetCacheConfig(Function* function, cudaFuncCache config) {
    return cudaFuncSetCacheConfig(reinterpret_cast<const void*>(function), config);
}
template <class Function>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function function, int block_size,
                                                          size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(function),
                                                         block_size, shared_bytes);
}
template <class Function>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Function function,
                                                                   int block_size, size_t shared_bytes,
                                                                   unsigned int) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(function),
                                                         block_size, shared_bytes);
}
template <class Function>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Function function,
                                           const cudaLaunchConfig_t* config) {
    return cudamaster_cpu_active_clusters(clusters, reinterpret_cast<const void*>(function), config);
}
template <class Function>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* blocks, Function function,
                                                 const cudaLaunchConfig_t* config) {
    return cudamaster_cpu_cluster_size(blocks, reinterpret_cast<const void*>(function), config);
}
template <class Function>
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, Function function, int blocks,
                                                      int block_size) {
    return cudaOccupancyAvailableDynamicSMemPerBlock(bytes, reinterpret_cast<const void*>(function), blocks,
                                                     block_size);
}
template <class Function>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* min_grid, int* block_size, Function, size_t = 0,
                                               int limit = 0) {
    // Whole SMs of 2048 threads: two blocks of 1024 unless the caller asks for less.
    *block_size = limit > 0 && limit < 1024 ? limit / 32 * 32 : 1024;
    *min_grid = 132 * (2048 / (*block_size > 0 ? *block_size : 1024));
    return cudaSuccess;
}

template <class Type> cudaError_t cudaMalloc(Type** pointer, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class Type> cudaError_t cudaMallocAsync(Type** pointer, size_t bytes, cudaStream_t stream) {
    return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}
template <class Type>
cudaError_t cudaMallocPitch(Type** pointer, size_t* pitch, size_t width, size_t height) {
    return cudaMallocPitch(reinterpret_cast<void**>(pointer), pitch, width, height);
}
template <class Type>
cudaError_t cudaMallocManaged(Type** pointer, size_t bytes, unsigned int flags = cudaMemAttachGlobal) {
    return cudaMallocManaged(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class Type> cudaError_t cudaMallocHost(Type** pointer, size_t bytes, unsigned int flags = 0) {
    return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class Type> cudaError_t cudaHostAlloc(Type** pointer, size_t bytes, unsigned int flags) {
    return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class Type> cudaError_t cudaGetSymbolAddress(void** pointer, const Type& symbol) {
    *pointer = const_cast<void*>(static_cast<const volatile void*>(&symbol));
    return cudaSuccess;
}
template <class Type> cudaError_t cudaGetSymbolSize(size_t* bytes, const Type& symbol) {
    *bytes = sizeof symbol;
    return cudaSuccess;
}
template <class Type>
cudaError_t cudaMemcpyToSymbol(const Type& symbol, const void* source, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return cudaErrorInvalidValue;
    void* address = nullptr;
    cudaGetSymbolAddress(&address, symbol);
    return cudaMemcpy(static_cast<char*>(address) + offset, source, bytes, kind);
}
template <class Type>
cudaError_t cudaMemcpyToSymbolAsync(const Type& symbol, const void* source, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, source, bytes, offset, kind);
}
template <class Type>
cudaError_t cudaMemcpyFromSymbol(void* target, const Type& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    if (offset > sizeof symbol || bytes > sizeof symbol - offset)
        return cudaErrorInvalidValue;
    void* address = nullptr;
    cudaGetSymbolAddress(&address, symbol);
    return cudaMemcpy(target, static_cast<const char*>(address) + offset, bytes, kind);
}
template <class Type>
cudaError_t cudaMemcpyFromSymbolAsync(void* target, const Type& symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t = nullptr) {
    return cudaMemcpyFromSymbol(target, symbol, bytes, offset, kind);
}
