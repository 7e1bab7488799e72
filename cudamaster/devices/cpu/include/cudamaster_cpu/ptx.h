// What inline PTX becomes (devices/cpu/ptx): one function per instruction. Included where a source has any.
#pragma once

#include "cudamaster_cpu/ptx/arithmetic.h"
#include "cudamaster_cpu/ptx/bits.h"
#include "cudamaster_cpu/ptx/choice.h"
#include "cudamaster_cpu/ptx/convert.h"
#include "cudamaster_cpu/ptx/copies.h"
#include "cudamaster_cpu/ptx/matrices.h"
#include "cudamaster_cpu/ptx/memory.h"
#include "cudamaster_cpu/ptx/threads.h"
#include "cudamaster_cpu/ptx/wgmma.h"
