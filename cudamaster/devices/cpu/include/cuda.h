// The driver's API, as far as this device has it. What else of the toolkit it declares comes with cuda_runtime.h here.
#pragma once

#include "cuda_runtime.h"

#include "cudamaster_cpu/driver.h"
