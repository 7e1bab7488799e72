#ifndef GELU_H
#define GELU_H

// The tanh form of GELU.
__device__ inline float gelu(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
}

#endif
