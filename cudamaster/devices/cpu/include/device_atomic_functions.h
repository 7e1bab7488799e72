// Everything it declares in the toolkit comes with cuda_runtime.h here.
#pragma once

#include "cuda_runtime.h"
