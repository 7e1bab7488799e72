// The CPU device refuses a text that names a library's header; this one brings all of them.
#pragma once
#include "cublasLt.h"
#include "cublas_v2.h"
#include "cufft.h"
#include "cusparse.h"
