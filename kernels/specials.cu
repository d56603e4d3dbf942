// NaN and infinity beside residues: stand-ins in float64, their codes, and numbers without a sign.
//
// Codes are 0 for finite numbers, 1 for NaN, 2 for +inf and 3 for -inf. The stand-in of a finite
// number is its sign, -1, 0 or 1: 0 if it is 0 at all levels, else that of the order of residues
// (comparison.cu). All numbers here are exact in float64.

__device__ __forceinline__ double number_of(int code, double finite) {
    const double infinity = __longlong_as_double(0x7FF0000000000000ll);
    if (code == 0) return finite;
    if (code == 1) return __longlong_as_double(0x7FF8000000000000ll);
    return code == 2 ? infinity : -infinity;
}

// Operand 0: residues. Operand 1: codes. out: size numbers.
extern "C" __global__ void stand_ins(const u64 *__restrict__ a, const u8 *__restrict__ codes,
                                     double *__restrict__ out,
                                     const __grid_constant__ Layout layout,
                                     const __grid_constant__ Primes primes, u64 scale) {
    const Prime top = primes.of[layout.levels - 1];
    FOR_EACH(n, layout.size) {
        i64 at[2];
        places<2>(layout, n, at);
        u64 any = 0, last = 0;
        for (u64 level = 0; level < layout.levels; ++level) {
            last = a[at[0] + (i64)level * layout.level[0]];
            any |= last;
        }
        const bool negative = balanced(reduced(last * scale, top), top) < 0;
        out[n] = number_of(codes[at[1]], any == 0 ? 0.0 : negative ? -1.0 : 1.0);
    }
}

// Operand 0: numbers. found: set to mark if one of them is not finite, else left as it is.
extern "C" __global__ void codes_of_numbers(const double *__restrict__ numbers,
                                            u8 *__restrict__ codes, u32 *found, u32 mark,
                                            const __grid_constant__ Layout layout) {
    const double largest = 1.7976931348623157e308;
    FOR_EACH(n, layout.size) {
        i64 at[1];
        places<1>(layout, n, at);
        const double number = numbers[at[0]];
        const u8 code = number > largest ? 2 : number < -largest ? 3 : number == number ? 0 : 1;
        codes[n] = code;
        if (code) *found = mark;
    }
}

// Operand 0: residues. Operand 1: codes. out: 0 where a number is not finite, or is at all levels
// one integer below bound in size, else 1.
extern "C" __global__ void signless_numbers(const u64 *__restrict__ a, const u8 *__restrict__ codes,
                                            u8 *__restrict__ out,
                                            const __grid_constant__ Layout layout,
                                            const __grid_constant__ Primes primes, i64 bound) {
    FOR_EACH(n, layout.size) {
        i64 at[2];
        places<2>(layout, n, at);
        const i64 first = balanced(a[at[0]], primes.of[0]);
        bool known = first < bound && -first < bound;
        for (u64 level = 1; level < layout.levels; ++level)
            known = known &&
                    balanced(a[at[0] + (i64)level * layout.level[0]], primes.of[level]) == first;
        out[n] = !known && codes[at[1]] == 0;
    }
}
