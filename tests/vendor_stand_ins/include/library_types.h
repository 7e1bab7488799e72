// Of the CUDA toolkit, as far as the stand-ins need it.
#pragma once
#include <cstddef>
#include <cstdint>

enum cudaDataType { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
