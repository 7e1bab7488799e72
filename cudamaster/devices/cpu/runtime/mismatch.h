// What -fsanitize=alignment hands to __ubsan_handle_type_mismatch_v1, in its runtime's layout.
#pragma once

struct CudamasterCpuMismatch {
    const char* file;
    unsigned line, column;
    const struct {
        unsigned short kind, info;
        char name[1];
    }* type;
    unsigned char alignment_bits, access;
};
