// cuTensorMapEncodeTiled, called directly: a map of 64 x 64 x 8 floats, with what the arguments say in place of that. They are
// `name=number,number`; the exit code is the driver's.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>

int main(int, char** words) {
    cuuint64_t numbers[11][5] = {{7},       {3}, {0}, {64, 64, 8}, {256, 16384}, {32, 8, 4},
                                 {1, 1, 1}, {0}, {0}, {2},         {0}};
    const char* names[] = {"type",  "rank",       "base",    "sizes",     "strides", "box",
                           "steps", "interleave", "swizzle", "promotion", "fill"};
    size_t displaced = 0;
    for (char** word = words + 1; *word; ++word) {
        char* at = std::strchr(*word, '=');
        size_t length = static_cast<size_t>(at - *word);
        if (!std::strncmp(*word, "map", length))
            displaced = std::strtoull(at + 1, nullptr, 10);
        for (int i = 0; i < 11; ++i)
            if (std::strlen(names[i]) == length && !std::strncmp(*word, names[i], length))
                for (int number = 0; *at; ++number)
                    numbers[i][number] = std::strtoull(at + 1, &at, 10);
    }
    cuuint32_t box[5], steps[5];
    for (int i = 0; i < 5; ++i) {
        box[i] = static_cast<cuuint32_t>(numbers[5][i]);
        steps[i] = static_cast<cuuint32_t>(numbers[6][i]);
    }
    static CUtensorMap maps[2];
    auto* map = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(maps) + displaced);
    CUresult made = cuTensorMapEncodeTiled(
        map, static_cast<CUtensorMapDataType>(numbers[0][0]), static_cast<cuuint32_t>(numbers[1][0]),
        reinterpret_cast<void*>((1ull << 32) + numbers[2][0]), numbers[3], numbers[4], box, steps,
        static_cast<CUtensorMapInterleave>(numbers[7][0]), static_cast<CUtensorMapSwizzle>(numbers[8][0]),
        static_cast<CUtensorMapL2promotion>(numbers[9][0]),
        static_cast<CUtensorMapFloatOOBfill>(numbers[10][0]));
    return static_cast<int>(made);
}
