// Keyed functions: hashes of arguments, and uniform words as residues.
//
// The mixer is the finaliser of splitmix64. The key of a lane, a level and a trial, is
// mix(mix(key ^ mix(trial)) + level); trials holds mix(trial). A word holds the residues of an
// argument at two levels, each below 2^31, or one 64-bit integer. All steps are exact modulo 2^64,
// and a word becomes a residue by its remainder.
//
// philox: Philox4x64 with ten rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy
// as 1, 2, 3, SC 2011). Word n of a lane is word n % 4 of block 1 + n / 4.

#define ODD 1
#define EVEN 2
#define WORDS 3

struct Keyed {
    u64 key;
    u64 lowest;      // the chain level of the result's first level
    u64 scale;       // the multiplier of the order of residues, for a function with a parity
    int arguments;   // from 1 to 3
    int levels;      // of the arguments
    int first;       // the first level that goes into words
    int lane_first;  // 1: the key of the lane goes in before the arguments, else behind
    int parity;      // 0, ODD or EVEN: of the only argument
    int output;      // ANY, NONZERO, or WORDS as they are
};

// Returns a residue of an argument, negated if that is asked for.
__device__ __forceinline__ u64 argued(const u64 *argument, int level, i64 step, bool negative,
                                      const Primes &primes) {
    const u64 residue = argument[level * step];
    return negative ? negated(residue, primes.of[level]) : residue;
}

__device__ __forceinline__ u64 folded(u64 state, const u64 *argument, i64 step, bool negative,
                                      const Keyed &keyed, const Primes &primes) {
    for (int level = keyed.first; level < keyed.levels; level += 2) {
        u64 word = argued(argument, level, step, negative, primes);
        if (level + 1 < keyed.levels)
            word |= argued(argument, level + 1, step, negative, primes) << 32;
        state = mixed(state ^ word);
    }
    return state;
}

// Operands 0 to 2: the arguments. Operand 3: the number of the trial. out: (levels, size).
extern "C" __global__ void keyed_function(const u64 *a, const u64 *b, const u64 *c,
                                          const u64 *trials, u64 *out,
                                          const __grid_constant__ Layout layout,
                                          const __grid_constant__ Primes primes,
                                          const __grid_constant__ Keyed keyed) {
    FOR_EACH(n, layout.size) {
        i64 at[4];
        places<4>(layout, n, at);
        const u64 *const first = a + at[0], *const second = b + at[1], *const third = c + at[2];
        bool negative = false, zero = true;
        if (keyed.parity) {
            const Prime top = primes.of[keyed.levels - 1];
            const u64 residue = first[(keyed.levels - 1) * layout.level[0]];
            negative = balanced(reduced(residue * keyed.scale, top), top) < 0;
            for (int level = 0; level < keyed.levels; ++level)
                zero = zero && first[level * layout.level[0]] == 0;
        }
        const u64 row = mixed(keyed.key ^ trials[at[3]]);
        u64 hash = 0;
        for (u64 level = 0; level < layout.levels; ++level) {
            const u64 lane = mixed(row + keyed.lowest + level);
            u64 state = keyed.lane_first ? lane : hash;
            if (keyed.lane_first || level == 0) {
                state = folded(state, first, layout.level[0], negative, keyed, primes);
                if (keyed.arguments > 1)
                    state = folded(state, second, layout.level[1], false, keyed, primes);
                if (keyed.arguments > 2)
                    state = folded(state, third, layout.level[2], false, keyed, primes);
                hash = state;
            }
            u64 result = keyed.lane_first ? state : mixed(state ^ lane);
            if (keyed.output != WORDS) result = residue_of(result, keyed.output, primes.of[level]);
            if (keyed.parity == ODD) {
                if (negative) result = negated(result, primes.of[level]);
                if (zero) result = 0;
            }
            out[level * layout.size + n] = result;
        }
    }
}

// Operand 0: words. out: residues of a domain.
extern "C" __global__ void residues_of_words(const u64 *words, u64 *out,
                                             const __grid_constant__ Layout layout,
                                             const __grid_constant__ Primes primes, int domain) {
    FOR_LEVELS(level, layout.levels) {
        const Prime m = primes.of[level];
        FOR_EACH(n, layout.size) {
            i64 at[1];
            places<1>(layout, n, at);
            const u64 word = words[at[0] + (i64)level * layout.level[0]];
            out[level * layout.size + n] = residue_of(word, domain, m);
        }
    }
}

__device__ __forceinline__ void philox_round(u64 *counter, const u64 *key) {
    const u64 first = 0xD2E7470EE14C6C93ull, second = 0xCA5A826395121157ull;
    const u64 high0 = __umul64hi(first, counter[0]), low0 = first * counter[0];
    const u64 high1 = __umul64hi(second, counter[2]), low1 = second * counter[2];
    counter[0] = high1 ^ counter[1] ^ key[0];
    counter[1] = low1;
    counter[2] = high0 ^ counter[3] ^ key[1];
    counter[3] = low0;
}

// keys: (levels, trials, 2). out: (levels, trials, count), residues of a domain, or words, from word
// 4 * begin of each lane on.
extern "C" __global__ void philox(const u64 *keys, u64 *out, u64 levels, u64 trials, u64 count,
                                  u64 begin, const __grid_constant__ Primes primes, int output) {
    const u64 blocks = (count + 3) / 4;
    FOR_LEVELS(level, levels) {
        const Prime m = primes.of[level];
        FOR_EACH(i, trials * blocks) {
            const u64 lane = level * trials + i / blocks, block = i % blocks;
            u64 key[2] = {keys[2 * lane], keys[2 * lane + 1]};
            u64 counter[4] = {begin + block + 1, 0, 0, 0};
            for (int round = 0; round < 10; ++round) {
                philox_round(counter, key);
                key[0] += 0x9E3779B97F4A7C15ull;
                key[1] += 0xBB67AE8584CAA73Bull;
            }
            for (int word = 0; word < 4 && 4 * block + word < count; ++word)
                out[lane * count + 4 * block + word] =
                    output == WORDS ? counter[word] : residue_of(counter[word], output, m);
        }
    }
}
