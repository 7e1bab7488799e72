// Stands where the CUDA toolkit has a header of this name.
#pragma once

#include "cuda_pipeline_primitives.h"
