// Inverses of residues; 0 is flagged, and its inverse is given as 1.
//
// By Montgomery's trick a thread inverts the product of sixteen elements once, by Fermat's theorem,
// and takes it apart again: with prefix products q(i) = x(1) ... x(i), 1 / x(i) is q(i-1) / q(i), and
// 1 / q(i-1) is x(i) / q(i). All steps are products of nonzero residues (residues.cuh). A thread's
// elements lie as far apart as there are threads, so that neighbours read neighbours.

#define RUN 16

template <int COUNT>
__device__ __forceinline__ void invert(const u64 *a, u64 *out, u32 *zeros, u32 mark, const Layout &layout,
                                       const Primes &primes) {
    const u64 threads = (layout.size + COUNT - 1) / COUNT;
    FOR_LEVELS(level, layout.levels) {
        const Prime m = primes.of[level];
        FOR_EACH(thread, threads) {
            u32 x[COUNT], prefix[COUNT];
            u64 product = 1;
            bool zero = false;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const u64 n = thread + i * threads;
                x[i] = 1;
                if (n < layout.size) {
                    i64 at[1];
                    places<1>(layout, n, at);
                    x[i] = (u32)a[at[0] + (i64)level * layout.level[0]];
                }
                zero = zero || x[i] == 0;
                x[i] = x[i] == 0 ? 1 : x[i];
                prefix[i] = (u32)product;
                product = multiplied(product, x[i], m);
            }
            u64 inverse = inverted(product, m);
#pragma unroll
            for (int i = COUNT - 1; i >= 0; --i) {
                const u64 n = thread + i * threads;
                if (n < layout.size)
                    out[level * layout.size + n] = multiplied(inverse, prefix[i], m);
                inverse = multiplied(inverse, x[i], m);
            }
            if (zero) *zeros = mark;
        }
    }
}

// Operand 0: residues. zeros: set to mark if one of them is 0, else left as it is.
extern "C" __global__ void inverses_in_runs(const u64 *__restrict__ a, u64 *__restrict__ out,
                                            u32 *zeros, u32 mark, const __grid_constant__ Layout layout,
                                            const __grid_constant__ Primes primes) {
    invert<RUN>(a, out, zeros, mark, layout, primes);
}

// The same for few elements: one for each thread.
extern "C" __global__ void inverses(const u64 *__restrict__ a, u64 *__restrict__ out, u32 *zeros, u32 mark,
                                    const __grid_constant__ Layout layout,
                                    const __grid_constant__ Primes primes) {
    invert<1>(a, out, zeros, mark, layout, primes);
}
