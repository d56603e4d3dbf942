// The arithmetic that all kernels share: residues below 2^31, places in arrays, mixed words.
//
// Residues are integers in [0, p) in 64 bits. Primes are odd and below 2^31. Arrays have the shape
// (levels, ...), with a prime for each level, and results are contiguous.
//
// A number t below 2^64 is reduced by Barrett's rule. With v = floor(2^64 / p) the quotient
// q = floor(t v / 2^64) satisfies t / p - 1 < q + 1 and q <= t / p, because t / p - t v / 2^64 is
// below t / 2^64 < 1. So t - q p lies in [0, 2 p), and one subtraction is left. p does not divide
// 2^64, so 2^64 - v p is 2^64 modulo p: that is what a negative number in two's complement has too
// much.

typedef unsigned char u8;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define MOST_LEVELS 16
#define MOST_AXES 8
#define MOST_OPERANDS 4

struct Prime {
    u64 p;
    u64 inverse;  // floor(2^64 / p)
};

struct Primes {
    Prime of[MOST_LEVELS];
};

// The places of up to four operands for each element of a result of (levels, size) elements. The
// axes below the levels are few: neighbours are one where no operand steps otherwise. narrow: size
// is below 2^32. Strides count elements, and are 0 along axes that are broadcast.
struct Layout {
    u64 size;
    u64 levels;
    int axes;
    int narrow;
    u64 extent[MOST_AXES];
    u64 magic[MOST_AXES];  // ceil(2^64 / extent), for extents above 1
    i64 level[MOST_OPERANDS];
    i64 stride[MOST_OPERANDS][MOST_AXES];
};

// Every kernel runs right with any number of blocks and threads. Levels are the grid's second axis.
#define FOR_EACH(n, count)                                                                         \
    for (u64 n = (u64)blockIdx.x * blockDim.x + threadIdx.x; n < (count);                          \
         n += (u64)gridDim.x * blockDim.x)
#define FOR_LEVELS(level, count) for (u64 level = blockIdx.y; level < (count); level += gridDim.y)

// Returns t modulo p for any t.
__device__ __forceinline__ u64 reduced(u64 t, Prime m) {
    const u64 rest = t - __umul64hi(t, m.inverse) * m.p;
    return min(rest, rest - m.p);
}

// Returns t modulo p in [0, p) for any signed t.
__device__ __forceinline__ u64 reduced_signed(i64 t, Prime m) {
    const u64 rest = reduced((u64)t, m);
    const u64 excess = t < 0 ? 0 - m.inverse * m.p : 0;
    return min(rest - excess, rest - excess + m.p);
}

// The operands of the next four are residues. A number below 0 is huge as an unsigned one.
__device__ __forceinline__ u64 added(u64 a, u64 b, Prime m) {
    const u64 sum = a + b;
    return min(sum, sum - m.p);
}

__device__ __forceinline__ u64 subtracted(u64 a, u64 b, Prime m) {
    const u64 difference = a - b;
    return min(difference, difference + m.p);
}

__device__ __forceinline__ u64 negated(u64 a, Prime m) { return a == 0 ? 0 : m.p - a; }

__device__ __forceinline__ u64 multiplied(u64 a, u64 b, Prime m) {
    return reduced((u64)(u32)a * (u32)b, m);
}

// Returns a^exponent by squaring; a^0 is 1.
__device__ __forceinline__ u64 raised(u64 a, u64 exponent, Prime m) {
    u64 result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = multiplied(result, a, m);
        a = multiplied(a, a, m);
    }
    return result;
}

// Returns 1 / a, and 0 for 0, by Fermat's theorem.
__device__ __forceinline__ u64 inverted(u64 a, Prime m) { return raised(a, m.p - 2, m); }

// Returns n / extent. If both are below 2^32, the magic number is (2^64 + e) / extent with
// e < extent, so n magic / 2^64 exceeds n / extent by e n / (extent 2^64) < 1 / extent.
__device__ __forceinline__ u64 divided(u64 n, u64 extent, u64 magic, int narrow) {
    return narrow ? __umul64hi(n, magic) : n / extent;
}

// Writes the places of the first K operands for element n of a level, levels left aside.
template <int K>
__device__ __forceinline__ void places(const Layout &layout, u64 n, i64 *at) {
    for (int k = 0; k < K; ++k) at[k] = 0;
    for (int axis = layout.axes - 1; axis > 0; --axis) {
        const u64 rest = divided(n, layout.extent[axis], layout.magic[axis], layout.narrow);
        const i64 here = (i64)(n - rest * layout.extent[axis]);
        for (int k = 0; k < K; ++k) at[k] += here * layout.stride[k][axis];
        n = rest;
    }
    for (int k = 0; k < K; ++k) at[k] += (i64)n * layout.stride[k][0];
}

// Returns x modulo p as the integer in [-(p-1)/2, (p-1)/2].
__device__ __forceinline__ i64 balanced(u64 residue, Prime m) {
    return residue > m.p >> 1 ? (i64)residue - (i64)m.p : (i64)residue;
}

// The finaliser of splitmix64.
__device__ __forceinline__ u64 mixed(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

#define ANY 0
#define NONZERO 1
#define SQUARE 2

// Returns a uniform word as a residue, as a nonzero one, or as the square of a nonzero one.
__device__ __forceinline__ u64 residue_of(u64 word, int domain, Prime m) {
    if (domain == ANY) return reduced(word, m);
    // p - 1 has another reciprocal. A quotient too small by one leaves a rest below 2 (p - 1).
    const u64 rest = word % (m.p - 1) + 1;
    return domain == SQUARE ? multiplied(rest, rest, m) : rest;
}
