// Comparison at all levels together, and the order of residues.
//
// The key of a residue x at the top level is the balanced representative of scale x, an integer in
// [-(p-1)/2, (p-1)/2]. scale is below 2^20, so scale x is below 2^51. Infinities and NaN have keys
// beyond all of those.

#define INFINITE (1ll << 40)

// Operands 0 and 1: residues at every level. out: size bytes, 1 where they are equal at all levels,
// or with differ 1 where they are not.
extern "C" __global__ void equal_at_all_levels(const u64 *__restrict__ a,
                                               const u64 *__restrict__ b, u8 *__restrict__ out,
                                               const __grid_constant__ Layout layout, int differ) {
    FOR_EACH(n, layout.size) {
        i64 at[2];
        places<2>(layout, n, at);
        int different = 0;
        for (u64 level = 0; level < layout.levels; ++level)
            different |= a[at[0] + (i64)level * layout.level[0]] !=
                         b[at[1] + (i64)level * layout.level[1]];
        out[n] = (u8)(different == differ);
    }
}

// Operand 0: residues of one level. Operand 1: codes, 0 for finite ones, 1 NaN, 2 +inf, 3 -inf.
extern "C" __global__ void order_keys(const u64 *__restrict__ top, const u8 *__restrict__ codes,
                                      i64 *__restrict__ out,
                                      const __grid_constant__ Layout layout,
                                      const __grid_constant__ Primes primes, u64 scale, i64 nan) {
    const Prime m = primes.of[0];
    FOR_EACH(n, layout.size) {
        i64 at[2];
        places<2>(layout, n, at);
        const int code = codes[at[1]];
        const i64 key = balanced(reduced(top[at[0]] * scale, m), m);
        out[n] = code == 0 ? key : code == 1 ? nan : code == 2 ? INFINITE : -INFINITE;
    }
}
