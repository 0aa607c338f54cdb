// A forward pass of a Llama, Qwen2 or Qwen3 network in float32 over tokens with slots of their own.
//
// Every number is a sum in an order that depends on the network and on the slots of its own row alone: not on the
// other rows, on threads, or on the width of a vector register. A product adds k = 0, 1, 2, ... in blocks of BLOCK;
// a dot product or a mean keeps 16 partial sums, of which sum() adds i and i + 8, then 4, 2 and 1 apart. Every
// multiplication that is followed by an addition is an explicit fused one, and the compiler may fuse no others.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

constexpr int WIDTH = 16;          // floats of a V
constexpr int PANEL = 2 * WIDTH;   // columns that are packed together
constexpr int64_t BLOCK = 512;     // factors that one accumulator adds up
constexpr int64_t AT_ONCE = 126;   // rows that pass through all layers while their numbers are in the cache
constexpr int64_t SPINS = 100000;  // how often a thread looks for the others before it sleeps

// LANES: floats of a register. TILE: rows of a product that are computed together. Neither changes a number.
#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr int LANES = 16, TILE = 14;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int LANES = 8, TILE = 3;
#else
constexpr int LANES = 4, TILE = 3;
#endif
typedef float Register __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Register fma(Register a, Register b, Register c) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON)
    return vfmaq_f32(c, a, b);
#else
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

struct V {  // 16 floats
    Register part[WIDTH / LANES];
};
template <typename F> inline V each(F f) {
    V r;
#pragma GCC unroll 4
    for (int i = 0; i < WIDTH / LANES; i++) r.part[i] = f(i);
    return r;
}
inline V load(const float* p) {
    return each([&](int i) { return Register(*reinterpret_cast<const Unaligned*>(p + i * LANES)); });
}
inline void store(float* p, V a) {
    for (int i = 0; i < WIDTH / LANES; i++) *reinterpret_cast<Unaligned*>(p + i * LANES) = a.part[i];
}
inline V splat(float a) { return each([&](int) { return a - Register{}; }); }
inline V fma(V a, V b, V c) { return each([&](int i) { return fma(a.part[i], b.part[i], c.part[i]); }); }
inline V operator+(V a, V b) { return each([&](int i) { return a.part[i] + b.part[i]; }); }
inline V operator-(V a, V b) { return each([&](int i) { return a.part[i] - b.part[i]; }); }
inline V operator*(V a, V b) { return each([&](int i) { return a.part[i] * b.part[i]; }); }
inline V operator/(V a, V b) { return each([&](int i) { return a.part[i] / b.part[i]; }); }
// A NaN in b stays.
inline V max(V a, V b) { return each([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; }); }
inline V min(V a, V b) { return each([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; }); }
// 2^n, of the number 1.5 * 2^23 + n.
inline V power_of_two(V shifted) {
    return each([&](int i) { return Register((Bits(shifted.part[i]) << 23) + 0x3f800000u); });
}

template <typename F> inline float reduce(V a, F f) {
    float x[WIDTH];
    store(x, a);
    for (int apart = WIDTH / 2; apart; apart /= 2)
        for (int i = 0; i < apart; i++) x[i] = f(x[i], x[i + apart]);
    return x[0];
}
inline float sum(V a) { return reduce(a, [](float x, float y) { return x + y; }); }
inline float largest(V a) { return reduce(a, [](float x, float y) { return x > y ? x : y; }); }

// The sum() of each of 16 vectors.
inline V sums(const V (&a)[WIDTH]) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    __m512 quarter[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        auto halves = [](__m512 x, __m512 y) {
            return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
        };
        __m512 x = halves(a[i].part[0], a[i + 4].part[0]), y = halves(a[i + 8].part[0], a[i + 12].part[0]);
        quarter[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
    }
    auto pairs = [](__m512 x, __m512 y) {
        return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    };
    __m512 x = pairs(quarter[0], quarter[1]), y = pairs(quarter[2], quarter[3]);
    return {{_mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd))}};
#else
    float each[WIDTH];
    for (int i = 0; i < WIDTH; i++) each[i] = sum(a[i]);
    return load(each);
#endif
}

// e^x within 2 units of the last place (the polynomial of Cephes), between e^-87.3 and e^88.3.
inline V exponential(V x) {
    const V shift = splat(12582912.0f);  // 1.5 * 2^23: the sum has the rounded number in its last bits
    x = min(splat(88.3f), max(splat(-87.3f), x));
    V shifted = fma(x, splat(1.44269504088896341f), shift), n = shifted - shift;
    V r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), x));
    V p = splat(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = fma(p, r, splat(c));
    return fma(p, r * r, r + splat(1.0f)) * power_of_two(shifted);
}

// out[row, column] of ROWS rows and a panel of columns; adds to what is there if `add`.
template <int ROWS>
void multiply_tile(const float* x, int64_t x_stride, int64_t factors, const float* panel, const float* next, float* out,
                   int64_t out_stride, int64_t columns, bool add) {
    V total[ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) total[i][0] = total[i][1] = splat(0.0f);
    for (int64_t k = 0; k < factors; k++, panel += PANEL, next += PANEL) {
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + WIDTH, 0, 2);
        V first = load(panel), second = load(panel + WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            V factor = splat(x[i * x_stride + k]);
            total[i][0] = fma(factor, first, total[i][0]);
            total[i][1] = fma(factor, second, total[i][1]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; i++) {
        float* target = out + i * out_stride;
        if (columns == PANEL) {
            store(target, add ? load(target) + total[i][0] : total[i][0]);
            store(target + WIDTH, add ? load(target + WIDTH) + total[i][1] : total[i][1]);
        } else {
            float whole[PANEL];
            store(whole, total[i][0]);
            store(whole + WIDTH, total[i][1]);
            for (int64_t j = 0; j < columns; j++) target[j] = add ? target[j] + whole[j] : whole[j];
        }
    }
}

template <int ROWS>
void multiply_rows(int64_t rows, const float* x, int64_t x_stride, int64_t factors, const float* panel,
                   const float* next, float* out, int64_t out_stride, int64_t columns, bool add) {
    if (rows == ROWS)
        multiply_tile<ROWS>(x, x_stride, factors, panel, next, out, out_stride, columns, add);
    else if constexpr (ROWS > 1)
        multiply_rows<ROWS - 1>(rows, x, x_stride, factors, panel, next, out, out_stride, columns, add);
}

// Threads that compute the same rows together, which meet before one reads what another wrote.
struct Team {
    int64_t size = 1;
    std::atomic<int64_t> arrived{0}, round{0};
    std::mutex mutex;
    std::condition_variable changed;

    void meet() {
        if (size == 1) return;
        const int64_t now = round.load();
        if (arrived.fetch_add(1) + 1 == size) {
            arrived.store(0);
            {
                std::lock_guard<std::mutex> lock(mutex);
                round.store(now + 1);
            }
            changed.notify_all();
            return;
        }
        for (int64_t turn = 0; turn < SPINS; turn++)
            if (round.load() != now) return;
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return round.load() != now; });
    }
};

struct Member {  // one thread of a team
    Team* team;
    int64_t number;

    void meet() const { team->meet(); }
    // Call f with each number below `count` that is this thread's.
    template <typename F> void each(int64_t count, F f) const {
        const int64_t end = count * (number + 1) / team->size;
        for (int64_t i = count * number / team->size; i < end; i++) f(i);
    }
};

// Call f with each member of a team of `size` threads, or of as many as the system grants.
template <typename F> void run_team(int64_t size, F f) {
    Team team;
    std::atomic<bool> is_complete{false};
    std::vector<std::thread> others;
    others.reserve(size);
    try {
        for (int64_t number = 1; number < size; number++)
            others.emplace_back([&, number] {
                while (!is_complete.load()) std::this_thread::yield();
                f(Member{&team, number});
            });
    } catch (const std::system_error&) {
    }
    team.size = int64_t(others.size()) + 1;
    is_complete.store(true);
    f(Member{&team, 0});
    for (std::thread& other : others) other.join();
}

struct Linear {  // a weight [columns, factors] in panels [panel, factor, PANEL], and its bias or null
    const float *panels, *bias;
    int64_t columns, factors;
};

// The member's share of out[row] = x[row] W + bias: panels of columns, of a part of the rows where there are few panels
// for many threads. Adds it to what is there if `add`.
void multiply(const Linear& linear, int64_t rows, const float* x, float* out, bool add, Member member) {
    if (!rows) return;
    const int64_t panels = (linear.columns + PANEL - 1) / PANEL, tiles = (rows + TILE - 1) / TILE;
    const int64_t wanted = member.team->size == 1 ? 1 : std::min(4 * member.team->size / panels + 1, tiles);
    const int64_t height = (tiles + wanted - 1) / wanted * TILE;  // rows of a part
    const int64_t shares = panels * ((rows + height - 1) / height);
    for (int64_t from = 0; from < linear.factors; from += BLOCK) {
        int64_t factors = std::min(linear.factors - from, BLOCK);
        member.each(shares, [&](int64_t share) {
            const int64_t column = share % panels * PANEL, columns = std::min<int64_t>(linear.columns - column, PANEL);
            const int64_t first = share / panels * height, end = std::min(first + height, rows);
            const float* panel = linear.panels + column * linear.factors + from * PANEL;
            for (int64_t row = first; row < end; row += TILE)
                multiply_rows<TILE>(std::min<int64_t>(end - row, TILE), x + row * linear.factors + from,
                                    linear.factors, factors, panel,
                                    row + TILE < end ? panel : panel + linear.factors * PANEL,
                                    out + row * linear.columns + column, linear.columns, columns, add || from);
            for (int64_t row = first; linear.bias && from + factors == linear.factors && row < end; row++)
                for (int64_t i = 0; i < columns; i++)
                    out[row * linear.columns + column + i] += linear.bias[column + i];
        });
    }
}

// RMSNorm of `size` numbers, a multiple of 16 (Zhang and Sennrich, arXiv:1910.07467).
void normalise(const float* x, const float* weight, int64_t size, float epsilon, float* out) {
    V squares = splat(0.0f);
    for (int64_t i = 0; i < size; i += WIDTH) squares = fma(load(x + i), load(x + i), squares);
    V factor = splat(1.0f / std::sqrt(sum(squares) / float(size) + epsilon));
    for (int64_t i = 0; i < size; i += WIDTH) store(out + i, load(weight + i) * (load(x + i) * factor));
}

// RoPE: turn number i of a head with number i + width / 2 (Su et al., arXiv:2104.09864).
void rotate(float* head, const float* cosines, const float* sines, int64_t width) {
    int64_t half = width / 2;
    for (int64_t i = 0; i < half; i += WIDTH) {
        V low = load(head + i), high = load(head + half + i), zero = splat(0.0f);
        store(head + i, fma(low, load(cosines + i), (zero - high) * load(sines + i)));
        store(head + half + i, fma(high, load(cosines + half + i), low * load(sines + half + i)));
    }
}

// Attention of QUERIES heads of one group over the n slots of their KV head. scores: room for QUERIES rows of
// `stride` numbers, which become the weights; raw: the logits, [QUERIES, raw_stride], or null.
template <int PARTS, int QUERIES>
void attend(const float* queries, float scale, const float* keys, const float* values, int64_t n, float* scores,
            int64_t stride, float* raw, int64_t raw_stride, float* out) {
    constexpr int width = PARTS * WIDTH;
    for (int g = 0; g < QUERIES; g++) {
        V query[PARTS], top = splat(-INFINITY), total = splat(0.0f);
        float* row = scores + g * stride;
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; part++) query[part] = load(queries + g * width + part * WIDTH) * splat(scale);
        for (int64_t first = 0; first < n; first += WIDTH) {
            V products[WIDTH];
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) {
                const float* key = keys + (first + i < n ? first + i : n - 1) * width;
                products[i] = query[0] * load(key);
#pragma GCC unroll 8
                for (int part = 1; part < PARTS; part++)
                    products[i] = fma(query[part], load(key + part * WIDTH), products[i]);
            }
            store(row + first, sums(products));
            for (int64_t i = n; i < first + WIDTH; i++) row[i] = -INFINITY;
            top = max(top, load(row + first));
        }
        if (raw) std::memcpy(raw + g * raw_stride, row, n * sizeof(float));
        top = splat(largest(top));
        for (int64_t first = 0; first < n; first += WIDTH) {
            store(row + first, exponential(load(row + first) - top));
            for (int64_t i = n; i < first + WIDTH; i++) row[i] = 0.0f;
            total = total + load(row + first);
        }
        V share = splat(1.0f / sum(total));
        for (int64_t first = 0; first < n; first += WIDTH) store(row + first, load(row + first) * share);
    }
    V mean[QUERIES][PARTS];
#pragma GCC unroll 4
    for (int g = 0; g < QUERIES; g++)
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; part++) mean[g][part] = splat(0.0f);
    for (int64_t slot = 0; slot < n; slot++) {
        V value[PARTS];
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; part++) value[part] = load(values + slot * width + part * WIDTH);
#pragma GCC unroll 4
        for (int g = 0; g < QUERIES; g++) {
            V weight = splat(scores[g * stride + slot]);
#pragma GCC unroll 8
            for (int part = 0; part < PARTS; part++) mean[g][part] = fma(weight, value[part], mean[g][part]);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < QUERIES; g++)
#pragma GCC unroll 8
        for (int part = 0; part < PARTS; part++) store(out + g * width + part * WIDTH, mean[g][part]);
}

using Attend = void (*)(const float*, float, const float*, const float*, int64_t, float*, int64_t, float*, int64_t,
                        float*);
template <int PARTS>
constexpr Attend ATTEND[] = {nullptr, attend<PARTS, 1>, attend<PARTS, 2>, attend<PARTS, 3>, attend<PARTS, 4>};

// Four words of Philox4x64-10 (Salmon et al. 2011; constants of Random123).
inline void philox(uint64_t counter, const uint64_t* key, uint64_t* word) {
    uint64_t a = counter, b = 0, c = 0, d = 0, first = key[0], second = key[1];
    for (int round = 0; round < 10; round++) {
        const auto product = static_cast<unsigned __int128>(0xD2E7470EE14C6C93ull) * a;
        const auto other = static_cast<unsigned __int128>(0xCA5A826395121157ull) * c;
        a = uint64_t(other >> 64) ^ b ^ first, b = uint64_t(other);
        c = uint64_t(product >> 64) ^ d ^ second, d = uint64_t(product);
        first += 0x9E3779B97F4A7C15ull, second += 0xBB67AE8584CAA73Bull;
    }
    word[0] = a, word[1] = b, word[2] = c, word[3] = d;
}

inline double gumbel(double uniform) { return -std::log(-std::log(uniform)); }

// Call f with the first row and the number of rows of each block.
template <typename F> void each_block(int64_t rows, F f) {
    for (int64_t from = 0; from < rows; from += AT_ONCE) f(from, rows - from < AT_ONCE ? rows - from : AT_ONCE);
}

std::unique_ptr<float[]> allocate(int64_t size) { return std::unique_ptr<float[]>(new float[size]); }

}  // namespace

extern "C" {

struct Layer {
    const float *attention_norm, *query_norm, *key_norm, *mlp_norm;  // of heads: null where there is none
    Linear projections, output, gate_up, down;
};

struct Network {
    int64_t layers, hidden, heads, kv_heads, width, intermediate;
    float epsilon, scale;
    const float *embedding, *cosines, *sines, *norm;  // [token, hidden], [position, width] twice, [hidden]
    const Layer* layer;
    Linear head;
};

struct Rows {  // rows of one lane stand together, in the order of their tokens
    int64_t count;
    const int64_t *tokens, *positions;  // [row]
    float *const *keys, *const *values;  // [layer, row, kv_head]: the first slot of the head
    const int64_t* lengths;              // [layer, row, kv_head]: slots before that of this row
    const int64_t* answers;              // [answer]: the rows of which logits are needed
    int64_t n_answers;
    float* logits;       // [answer, token]
    float* projections;  // [layer, row, queries, keys and values after RoPE], or null
    float *const *hidden;   // [layer]: null, or the output of the layer, [row, hidden]
    float *const *weights;  // [layer, row]: null, or attention [q_head, slot], zeros as they come; or null
    float *const *raw;      // [layer, row]: null, or the logits of the attention; or null
    const int64_t* strides;  // [row]: numbers from one query head to the next in weights and logits
};

static void normalise_rows(const Network& net, const float* weight, int64_t count, const float* x, float* out,
                           Member member) {
    member.each(count, [&](int64_t row) {
        normalise(x + row * net.hidden, weight, net.hidden, net.epsilon, out + row * net.hidden);
    });
    member.meet();
}

struct Workspace {  // of a block of `count` rows in a layer, which a team shares
    std::unique_ptr<float[]> normed, gated, activated;
    Workspace(const Network& net, int64_t count)
        : normed(allocate(count * net.hidden)), gated(allocate(count * 2 * net.intermediate)),
          activated(allocate(count * net.intermediate)) {}
};

// A layer before its attention: of x [row, hidden], the queries, keys and values after RoPE.
static void project_block(const Network& net, const Layer& layer, int64_t count, const int64_t* positions,
                          const float* x, float* projected, Workspace& space, Member member) {
    const int64_t width = net.width, turned = net.heads + net.kv_heads, fed = (turned + net.kv_heads) * width;
    normalise_rows(net, layer.attention_norm, count, x, space.normed.get(), member);
    multiply(layer.projections, count, space.normed.get(), projected, false, member);
    member.meet();
    member.each(count * turned, [&](int64_t place) {
        const int64_t row = place / turned, head = place % turned;
        const float* norm = head < net.heads ? layer.query_norm : layer.key_norm;
        float* numbers = projected + row * fed + head * width;
        if (norm) normalise(numbers, norm, width, net.epsilon, numbers);
        rotate(numbers, net.cosines + positions[row] * width, net.sines + positions[row] * width, width);
    });
    member.meet();
}

// A layer after its attention: x becomes its output.
static void finish_block(const Network& net, const Layer& layer, int64_t count, const float* attended, float* x,
                         Workspace& space, Member member) {
    const int64_t vectors = net.intermediate / WIDTH;
    multiply(layer.output, count, attended, x, true, member);
    member.meet();
    normalise_rows(net, layer.mlp_norm, count, x, space.normed.get(), member);
    multiply(layer.gate_up, count, space.normed.get(), space.gated.get(), false, member);
    member.meet();
    member.each(count * vectors, [&](int64_t place) {
        const float* numbers = &space.gated[(place + place / vectors * vectors) * WIDTH];
        V gate = load(numbers), one = splat(1.0f);
        V silu = gate / (one + exponential(splat(0.0f) - gate));
        store(&space.activated[place * WIDTH], silu * load(numbers + net.intermediate));
    });
    member.meet();
    multiply(layer.down, count, space.activated.get(), x, true, member);
    member.meet();
}

// Feed rows from..from + count - 1: x [row, hidden], on entry the embeddings, becomes the output of the last layer.
// own: room for projections [row], if the caller requests none; attended: for the output of the attention.
static void feed(const Network& net, const Rows* rows, int64_t from, int64_t count, float* x, float* own,
                 float* attended, Workspace& space, Member member) {
    const int64_t width = net.width, group = net.heads / net.kv_heads;
    const int64_t of_queries = net.heads * width, of_keys = net.kv_heads * width, fed = of_queries + 2 * of_keys;
    const Attend* attend_group = width == 32 ? ATTEND<2> : width == 64 ? ATTEND<4> : ATTEND<8>;
    const int64_t together = width == 128 ? 2 : 4;
    int64_t most = 0;
    for (int64_t number = 0; number < net.layers; number++) {
        const int64_t* lengths = rows->lengths + (number * rows->count + from) * net.kv_heads;
        for (int64_t i = 0; i < count * net.kv_heads; i++) if (most < lengths[i] + 1) most = lengths[i] + 1;
    }
    const int64_t stride = (most + WIDTH - 1) / WIDTH * WIDTH;
    auto scores = allocate(together * stride);
    for (int64_t number = 0; number < net.layers; number++) {
        const Layer& layer = net.layer[number];
        const int64_t first = number * rows->count + from;
        float* projected = rows->projections ? rows->projections + first * fed : own;
        project_block(net, layer, count, rows->positions + from, x, projected, space, member);
        member.each(count * net.kv_heads, [&](int64_t i) {
            const float* key = projected + i / net.kv_heads * fed + of_queries + i % net.kv_heads * width;
            const int64_t place = first * net.kv_heads + i, slot = rows->lengths[place] * width;
            std::memcpy(rows->keys[place] + slot, key, width * sizeof(float));
            std::memcpy(rows->values[place] + slot, key + of_keys, width * sizeof(float));
        });
        member.meet();
        member.each(count * net.kv_heads, [&](int64_t i) {
            const int64_t row = i / net.kv_heads, head = i % net.kv_heads, place = first * net.kv_heads + i;
            float* weights = rows->weights ? rows->weights[first + row] : nullptr;
            float* raw = rows->raw ? rows->raw[first + row] : nullptr;
            const int64_t apart = rows->strides ? rows->strides[from + row] : 0, n = rows->lengths[place] + 1;
            for (int64_t of_group = 0; of_group < group; of_group += together) {
                const int64_t query = head * group + of_group;
                const int64_t queries = group - of_group < together ? group - of_group : together;
                attend_group[queries](projected + row * fed + query * width, net.scale, rows->keys[place],
                                      rows->values[place], n, scores.get(), stride,
                                      raw ? raw + query * apart : nullptr, apart,
                                      attended + row * of_queries + query * width);
                for (int64_t j = 0; weights && j < queries; j++)
                    std::memcpy(weights + (query + j) * apart, &scores[j * stride], n * sizeof(float));
            }
        });
        member.meet();
        finish_block(net, layer, count, attended, x, space, member);
        if (rows->hidden && rows->hidden[number])
            member.each(count, [&](int64_t row) {
                std::memcpy(rows->hidden[number] + (from + row) * net.hidden, x + row * net.hidden,
                            net.hidden * sizeof(float));
            });
    }
}

// The logits [row, token] of the output x of the last layer. last: room for x.
static void answer_rows(const Network& net, int64_t count, const float* x, float* last, float* logits, Member member) {
    normalise_rows(net, net.norm, count, x, last, member);
    multiply(net.head, count, last, logits, false, member);
}

// What follows is called from outside. threads: how many share its columns, rows and heads.

void answer(const Network* network, int64_t threads, int64_t count, const float* x, float* logits) {
    auto last = allocate(count * network->hidden);
    run_team(threads, [&](Member member) { answer_rows(*network, count, x, last.get(), logits, member); });
}

void forward(const Network* network, int64_t threads, const Rows* rows) {
    const Network& net = *network;
    const int64_t block = std::min(rows->count, AT_ONCE), fed = (net.heads + 2 * net.kv_heads) * net.width;
    auto x = allocate(rows->count * net.hidden), answers = allocate(2 * rows->n_answers * net.hidden);
    auto own = allocate(rows->projections ? 0 : block * fed), attended = allocate(block * net.heads * net.width);
    float* last = answers.get() + rows->n_answers * net.hidden;
    Workspace space(net, block);
    auto copy = [&](float* to, const float* from) { std::memcpy(to, from, net.hidden * sizeof(float)); };
    run_team(threads, [&](Member member) {
        member.each(rows->count, [&](int64_t row) {
            copy(&x[row * net.hidden], net.embedding + rows->tokens[row] * net.hidden);
        });
        member.meet();
        each_block(rows->count, [&](int64_t from, int64_t n) {
            feed(net, rows, from, n, &x[from * net.hidden], own.get(), attended.get(), space, member);
        });
        member.each(rows->n_answers, [&](int64_t i) {
            copy(&answers[i * net.hidden], &x[rows->answers[i] * net.hidden]);
        });
        member.meet();
        answer_rows(net, rows->n_answers, answers.get(), last, rows->logits, member);
    });
}

// The rows of a prefill before and after the attention of a layer, which the caller computes.
void project(const Network* network, int64_t threads, int64_t layer, int64_t count, const int64_t* positions,
             const float* x, float* projected) {
    const Network& net = *network;
    Workspace space(net, AT_ONCE);
    run_team(threads, [&](Member member) {
        each_block(count, [&](int64_t from, int64_t n) {
            project_block(net, net.layer[layer], n, positions + from, x + from * net.hidden,
                          projected + from * (net.heads + 2 * net.kv_heads) * net.width, space, member);
        });
    });
}

void finish(const Network* network, int64_t threads, int64_t layer, int64_t count, const float* attended, float* x) {
    const Network& net = *network;
    Workspace space(net, AT_ONCE);
    run_team(threads, [&](Member member) {
        each_block(count, [&](int64_t from, int64_t n) {
            finish_block(net, net.layer[layer], n, attended + from * net.heads * net.width, x + from * net.hidden,
                         space, member);
        });
    });
}

// Columns first.. of a packed weight, from those of a weight [columns, factors].
void pack(const float* weight, int64_t columns, int64_t factors, int64_t first, float* panels) {
    for (int64_t begin = 0; begin < columns; begin += PANEL)
        for (int64_t from = 0; from < factors; from += WIDTH)
            for (int64_t i = begin; i < columns && i < begin + PANEL; i++) {
                float* target = panels + ((first + i) / PANEL * factors + from) * PANEL + (first + i) % PANEL;
                for (int64_t k = 0; k < WIDTH && from + k < factors; k++)
                    target[k * PANEL] = weight[i * factors + from + k];
            }
}

// The token of each row of logits [row, size] with the largest logit / temperature + Gumbel noise, whose numbers are
// numpy's under the key [row, 2]; UNSURE where another comes so near that the rounding of two logarithms may decide.
void draw(int64_t rows, int64_t size, const float* logits, const uint64_t* keys, double temperature, double rounding,
          int64_t* tokens) {
    constexpr int64_t UNSURE = -2, BINS = 256;  // UNSURE as in sampling.py
    const double largest = gumbel(1.0 - 0x1p-53);
    double most[BINS];  // noise of a number that begins with these 8 bits
    for (int64_t bin = 0; bin < BINS; bin++) most[bin] = bin + 1 < BINS ? gumbel(double(bin + 1) / BINS) : largest;
    for (int64_t row = 0; row < rows; row++) {
        const float* logit = logits + row * size;
        double best = -INFINITY, next = -INFINITY, bar = -INFINITY;
        int64_t token = UNSURE;
        auto add = [&](int64_t first) {  // four tokens of one block of Philox
            const int64_t n = size - first < 4 ? size - first : 4;
            double value[4];
            bool matters = false;
            for (int64_t i = 0; i < n; i++) {
                value[i] = logit[first + i] / temperature;
                matters |= value[i] + largest >= bar;
            }
            if (!matters) return;
            uint64_t word[4];
            philox(first / 4 + 1, keys + 2 * row, word);
            for (int64_t i = 0; i < n; i++) {
                if (value[i] + most[word[i] >> 56] < bar) continue;
                const double sum = value[i] + gumbel((double(word[i] >> 12) + 0.5) * 0x1p-52);
                if (sum > best) next = best, best = sum, token = first + i;
                else if (sum > next) next = sum;
                bar = best - 2 * (rounding + 1e-12 * std::fabs(best));
            }
        };
        const int64_t begin = (std::max_element(logit, logit + size) - logit) / 4 * 4;  // the bar is high from here
        add(begin);
        for (int64_t first = 0; first < size; first += 4)
            if (first != begin) add(first);
        tokens[row] = best - next > rounding + 1e-12 * std::fabs(best) ? token : UNSURE;
    }
}

// What rows read that are equal to a computed one, sources[row]: its new slot, and attention from where it was written.
void share(const Network* network, const Rows* rows, const int64_t* sources, float *const *weights, float *const *raw) {
    const int64_t count = rows->count, heads = network->kv_heads, width = network->width;
    auto copy_attention = [&](float* to, const float* from, int64_t stride, int64_t n) {
        if (to && to != from)
            for (int64_t head = 0; head < network->heads; head++)
                std::memcpy(to + head * stride, from + head * stride, n * sizeof(float));
    };
    for (int64_t layer = 0; layer < network->layers; layer++)
        for (int64_t row = 0; row < count; row++) {
            const int64_t to = layer * count + row, from = layer * count + sources[row];
            for (int64_t head = 0; head < heads && to != from; head++) {
                const int64_t slot = rows->lengths[to * heads + head] * width;  // as of the computed row
                std::memcpy(rows->keys[to * heads + head] + slot, rows->keys[from * heads + head] + slot,
                            width * sizeof(float));
                std::memcpy(rows->values[to * heads + head] + slot, rows->values[from * heads + head] + slot,
                            width * sizeof(float));
            }
            const int64_t n = rows->lengths[to * heads] + 1;
            copy_attention(rows->weights[to], weights[from], rows->strides[row], n);
            copy_attention(rows->raw[to], raw[from], rows->strides[row], n);
        }
}

}  // extern "C"
