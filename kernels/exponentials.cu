// The exponential of a chain: w^x modulo the prime one level up, by three tables.
//
// A lane is a level and a trial: each has its w, and tables of 2^11, 2^10 and 2^10 powers
// for the digits of a 31-bit exponent, lowest first, 4,096 entries of 32 bits in all. The digits of
// any residue below 2^31 lie inside their tables. Two products of residues are exact (residues.cuh).

#define FIRST_BITS 11
#define OTHER_BITS 10
#define LANE 4096

// Operand 0: x, residues. Operand 1: the number of the lane in tables. primes: those of the result.
extern "C" __global__ void exponential(const u64 *__restrict__ x, const u32 *__restrict__ tables,
                                       u64 *__restrict__ out,
                                       const __grid_constant__ Layout layout,
                                       const __grid_constant__ Primes primes) {
    const u32 other = (1u << OTHER_BITS) - 1;
    FOR_LEVELS(level, layout.levels) {
        const Prime m = primes.of[level];
        FOR_EACH(n, layout.size) {
            i64 at[2];
            places<2>(layout, n, at);
            const u32 exponent = (u32)x[at[0] + (i64)level * layout.level[0]];
            const u32 *lane = tables + (at[1] + (i64)level * layout.level[1]) * LANE;
            const u32 first = exponent & ((1u << FIRST_BITS) - 1);
            const u32 second = exponent >> FIRST_BITS & other;
            const u32 third = exponent >> (FIRST_BITS + OTHER_BITS) & other;
            const u64 power = multiplied(__ldg(lane + first),
                                         __ldg(lane + (1 << FIRST_BITS) + second), m);
            out[level * layout.size + n] = multiplied(
                power, __ldg(lane + (1 << FIRST_BITS) + (1 << OTHER_BITS) + third), m);
        }
    }
}
