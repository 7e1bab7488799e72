// 16-bit arithmetic over patterns from a file: `narrow KIND OPERATION INPUT OUTPUT`, uint16 triples in,
// uint16 out. Runs on the device's threads; the test compares with arithmetic of its own.
#include <cstdio>
#include <cstring>
#include <vector>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class Type> __device__ Type from_bits(unsigned short bits) {
    Type value;
    memcpy(&value, &bits, 2);
    return value;
}

template <class Type>
__global__ void arithmetic_kernel(const unsigned short* in, unsigned short* out, int n, int operation) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Type a = from_bits<Type>(in[3 * i]), b = from_bits<Type>(in[3 * i + 1]),
         c = from_bits<Type>(in[3 * i + 2]);
    Type result = a;
    switch (operation) {
    case 0:
        result = __hadd(a, b);
        break;
    case 1:
        result = a - b;
        break;
    case 2:
        result = a * b;
        break;
    case 3:
        result = a / b;
        break;
    case 4:
        result = __hfma(a, b, c);
        break;
    }
    memcpy(out + i, &result, 2);
}

// From float bit patterns: two halves of the triple make a float. Rounding: 0 nearest, 1 zero, 2 up, 3 down.
template <class Type> __device__ Type convert(float value, int rounding);
template <> __device__ __nv_bfloat16 convert(float value, int rounding) {
    return rounding == 0   ? __float2bfloat16(value)
           : rounding == 1 ? __float2bfloat16_rz(value)
           : rounding == 2 ? __float2bfloat16_ru(value)
                           : __float2bfloat16_rd(value);
}
template <> __device__ __half convert(float value, int rounding) {
    return rounding == 0   ? __float2half(value)
           : rounding == 1 ? __float2half_rz(value)
           : rounding == 2 ? __float2half_ru(value)
                           : __float2half_rd(value);
}
template <class Type>
__global__ void conversion_kernel(const unsigned short* in, unsigned short* out, int n, int rounding) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Type result =
        convert<Type>(__uint_as_float(in[3 * i] | static_cast<unsigned int>(in[3 * i + 1]) << 16), rounding);
    memcpy(out + i, &result, 2);
}

template <class Type> __global__ void double_kernel(const double* in, unsigned short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        Type result(in[i]);
        memcpy(out + i, &result, 2);
    }
}

template <class Type> static int run(int operation, const char* input, const char* output) {
    FILE* file = fopen(input, "rb");
    fseek(file, 0, SEEK_END);
    size_t bytes = static_cast<size_t>(ftell(file));
    rewind(file);
    std::vector<char> host(bytes);
    size_t got = fread(host.data(), 1, bytes, file);
    fclose(file);
    int n = static_cast<int>(bytes / (operation == 20 ? 8 : 6));
    void *in = nullptr, *out = nullptr;
    cudaMalloc(&in, bytes);
    cudaMalloc(&out, n * size_t{2});
    cudaMemcpy(in, host.data(), got, cudaMemcpyHostToDevice);
    int blocks = (n + 255) / 256;
    auto* words = static_cast<unsigned short*>(in);
    auto* result = static_cast<unsigned short*>(out);
    if (operation == 20)
        double_kernel<Type><<<blocks, 256>>>(static_cast<double*>(in), result, n);
    else if (operation >= 10)
        conversion_kernel<Type><<<blocks, 256>>>(words, result, n, operation - 10);
    else
        arithmetic_kernel<Type><<<blocks, 256>>>(words, result, n, operation);
    std::vector<unsigned short> back(n);
    if (cudaMemcpy(back.data(), out, n * size_t{2}, cudaMemcpyDeviceToHost) != cudaSuccess)
        return 1;
    file = fopen(output, "wb");
    fwrite(back.data(), 2, back.size(), file);
    return fclose(file);
}

int main(int, char** arguments) {
    int operation = atoi(arguments[2]);
    return strcmp(arguments[1], "bf16") ? run<__half>(operation, arguments[3], arguments[4])
                                        : run<__nv_bfloat16>(operation, arguments[3], arguments[4]);
}
