// Sums, weighted sums and products of residues along axes, and sums at places.
//
// A sum of residues below 2^31 is exact for up to 2^33 terms: it is below 2^64, and is reduced once.
// A sum of products is kept below 4 p^2 < 2^64: a term is below p^2, and before it is added the sum
// is below 2 p^2. With t = 2 p^2, min(s, s - t) is s - t if s >= t, and else s, because s - t then
// wraps around to a huge number. A sum at places is made by atomic additions modulo 2^64, in any
// order, and is exact for up to 2^32 residues at one place besides the one that was there.
//
// Terms are dealt out to parts in turn; out has a result for each part, and a second launch folds
// them. With dealt, neighbouring threads have neighbouring terms, and without, neighbouring results:
// what lies side by side in memory is read side by side.

#define SUM 0
#define PRODUCTS 1
#define PRODUCT 2

template <int OPERATION>
__device__ __forceinline__ void fold(const u64 *a, const u64 *b, u64 *out, const Layout &kept,
                                     const Layout &along, u64 parts, int dealt, const Primes &primes) {
    FOR_LEVELS(level, kept.levels) {
        const Prime m = primes.of[level];
        const u64 twice = 2 * m.p * m.p;
        FOR_EACH(i, kept.size * parts) {
            u64 element = i, part = 0;
            if (parts > 1) {
                const u64 inner = dealt ? parts : kept.size, outer = i / inner, rest = i % inner;
                element = dealt ? outer : rest;
                part = dealt ? rest : outer;
            }
            i64 base[2], at[2];
            places<2>(kept, element, base);
            const u64 *x = a + base[0] + (i64)level * kept.level[0];
            const u64 *y = b + base[1] + (i64)level * kept.level[1];
            u64 result = OPERATION == PRODUCT ? 1 : 0;
            for (u64 term = part; term < along.size; term += parts) {
                places<2>(along, term, at);
                if (OPERATION == SUM) {
                    result += x[at[0]];
                } else if (OPERATION == PRODUCTS) {
                    result += (u64)(u32)x[at[0]] * (u32)y[at[1]];
                    result = min(result, result - twice);
                } else {
                    result = multiplied(result, x[at[0]], m);
                }
            }
            out[(level * parts + part) * kept.size + element] = reduced(result, m);
        }
    }
}

// Operand 0: the terms, at the places of kept (the axes that stay) and along (those that go).
// out: (levels, parts, kept.size).
extern "C" __global__ void sum_residues(const u64 *__restrict__ a, u64 *__restrict__ out,
                                        const __grid_constant__ Layout kept,
                                        const __grid_constant__ Layout along, u64 parts, int dealt,
                                        const __grid_constant__ Primes primes) {
    fold<SUM>(a, a, out, kept, along, parts, dealt, primes);
}

// Operands 0 and 1: both factors of the terms.
extern "C" __global__ void sum_products(const u64 *__restrict__ a, const u64 *__restrict__ b,
                                        u64 *__restrict__ out, const __grid_constant__ Layout kept,
                                        const __grid_constant__ Layout along, u64 parts, int dealt,
                                        const __grid_constant__ Primes primes) {
    fold<PRODUCTS>(a, b, out, kept, along, parts, dealt, primes);
}

extern "C" __global__ void product_residues(const u64 *__restrict__ a, u64 *__restrict__ out,
                                            const __grid_constant__ Layout kept,
                                            const __grid_constant__ Layout along, u64 parts, int dealt,
                                            const __grid_constant__ Primes primes) {
    fold<PRODUCT>(a, a, out, kept, along, parts, dealt, primes);
}

// Adds residues to target, without reducing it. Operand 0: the residues. Operand 1: their indices
// along one axis of target, the same for all levels. Operand 2: their places in target at index 0.
// step: from one index to the next.
extern "C" __global__ void add_at_places(const u64 *__restrict__ residues,
                                         const i64 *__restrict__ indices, u64 *target,
                                         const __grid_constant__ Layout layout, i64 step) {
    FOR_LEVELS(level, layout.levels) {
        FOR_EACH(n, layout.size) {
            i64 at[3];
            places<3>(layout, n, at);
            const u64 residue = residues[at[0] + (i64)level * layout.level[0]];
            const i64 index = indices[at[1] + (i64)level * layout.level[1]];
            atomicAdd(target + at[2] + (i64)level * layout.level[2] + index * step, residue);
        }
    }
}
