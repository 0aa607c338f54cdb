// What a thread can do at most: fused multiplications and additions of registers, and reading memory.
#include <cstdint>

#if defined(__AVX512F__)
constexpr int WIDTH = 16;
#elif defined(__AVX__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif
constexpr int CHAINS = 12;  // that wait for nothing of each other
typedef float Register __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

extern "C" {

// Returns a sum that hangs on 2 * CHAINS * WIDTH * steps operations.
float multiply(int64_t steps, float factor, float addend) {
    Register chain[CHAINS];
    for (int i = 0; i < CHAINS; i++) chain[i] = Register{} + addend * i;  // equal ones would be computed once
    for (int64_t step = 0; step < steps; step++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) chain[i] = chain[i] * factor + addend;
    float total = 0;
    for (const Register& each : chain)
        for (int i = 0; i < WIDTH; i++) total += each[i];
    return total;
}

int64_t operations(int64_t steps) { return 2 * CHAINS * WIDTH * steps; }

// Returns the sum of n numbers, a multiple of CHAINS * WIDTH.
float read(const float* numbers, int64_t n) {
    Register chain[CHAINS] = {};
    for (int64_t first = 0; first < n; first += CHAINS * WIDTH)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            chain[i] += *reinterpret_cast<const Register*>(numbers + first + i * WIDTH);
    float total = 0;
    for (const Register& each : chain)
        for (int i = 0; i < WIDTH; i++) total += each[i];
    return total;
}
}
