// Stands where the CUDA toolkit's header of this name stands; see cudamaster_cpu/ for what it brings.
#pragma once

#include "cudamaster_cpu/qualifiers.h"

#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <new>
#include <utility>

// Device code's printf goes to stderr; the executor tells it from the host's.
extern "C" int printf(const char* __restrict format, ...) __asm__("cudamaster_cpu_printf");

#include "cudamaster_cpu/api.h"
#include "cudamaster_cpu/launch.h"
#include "cudamaster_cpu/library.h"
#include "cudamaster_cpu/builtins.h"
#include "cudamaster_cpu/math.h"
#include "cudamaster_cpu/intrinsics.h"
#include "cudamaster_cpu/atomics.h"
