// Element by element: sums, differences and products of equal arrays, and short programs.
//
// Operands of the first three are residues in int64, contiguous and of one shape. 16 bytes are read
// at a time where both halves of every level start at a multiple of 16.
//
// A program is a postfix expression with at most six values in waiting, which are registers: a
// whole chain of array operations is one pass over memory. Its operands are arrays of int64 or of
// booleans, at any strides. Each instruction has one argument: the number of an operand or of a
// constant. A constant has a number for each level: a residue, or an exponent of any size.
//
// Exact for all residues below p < 2^31; REDUCE takes any signed 64-bit integer.

#define LOAD 0
#define LOAD_BOOL 1
#define CONSTANT 2
#define ADD 3
#define SUBTRACT 4
#define NEGATE 5
#define MULTIPLY 6
#define REDUCE 7
#define POWER 8
#define INVERSE 9
#define SELECT 10
#define IS_ZERO 11

#define MOST_STEPS 24
#define MOST_CONSTANTS 8

struct Program {
    int length;
    int code[MOST_STEPS];
    int argument[MOST_STEPS + 1];  // one more keeps the constants at a multiple of eight bytes
    u64 constant[MOST_CONSTANTS][MOST_LEVELS];
};

template <int OPERATION>
__device__ __forceinline__ u64 combined(u64 a, u64 b, Prime m) {
    if (OPERATION == ADD) return added(a, b, m);
    if (OPERATION == SUBTRACT) return subtracted(a, b, m);
    return multiplied(a, b, m);
}

template <int OPERATION>
__device__ __forceinline__ void combine(const u64 *a, const u64 *b, u64 *out, u64 size, u64 levels,
                                        const Primes &primes) {
    const bool pairs = size % 2 == 0 && ((u64)a | (u64)b | (u64)out) % 16 == 0;
    FOR_LEVELS(level, levels) {
        const Prime m = primes.of[level];
        const u64 *x = a + level * size, *y = b + level * size;
        u64 *z = out + level * size;
        if (pairs) {
            FOR_EACH(n, size / 2) {
                const ulonglong2 left = ((const ulonglong2 *)x)[n];
                const ulonglong2 right = ((const ulonglong2 *)y)[n];
                ulonglong2 result;
                result.x = combined<OPERATION>(left.x, right.x, m);
                result.y = combined<OPERATION>(left.y, right.y, m);
                ((ulonglong2 *)z)[n] = result;
            }
        } else {
            FOR_EACH(n, size) z[n] = combined<OPERATION>(x[n], y[n], m);
        }
    }
}

// a, b, out: (levels, size).
extern "C" __global__ void add_residues(const u64 *__restrict__ a, const u64 *__restrict__ b,
                                        u64 *__restrict__ out, u64 size, u64 levels,
                                        const __grid_constant__ Primes primes) {
    combine<ADD>(a, b, out, size, levels, primes);
}

extern "C" __global__ void subtract_residues(const u64 *__restrict__ a, const u64 *__restrict__ b,
                                             u64 *__restrict__ out, u64 size, u64 levels,
                                             const __grid_constant__ Primes primes) {
    combine<SUBTRACT>(a, b, out, size, levels, primes);
}

extern "C" __global__ void multiply_residues(const u64 *__restrict__ a, const u64 *__restrict__ b,
                                             u64 *__restrict__ out, u64 size, u64 levels,
                                             const __grid_constant__ Primes primes) {
    combine<MULTIPLY>(a, b, out, size, levels, primes);
}

// out: (levels, size), may be an operand that has its places. Operands that a program does not
// load may be any pointers.
extern "C" __global__ void elementwise(const void *a, const void *b, const void *c, const void *d,
                                       u64 *out, const __grid_constant__ Layout layout,
                                       const __grid_constant__ Primes primes,
                                       const __grid_constant__ Program program) {
    FOR_LEVELS(level, layout.levels) {
        const Prime m = primes.of[level];
        FOR_EACH(n, layout.size) {
            i64 at[MOST_OPERANDS];
            places<MOST_OPERANDS>(layout, n, at);
            u64 s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0;
            for (int step = 0; step < program.length; ++step) {
                const int code = program.code[step], argument = program.argument[step];
                if (code <= CONSTANT) {
                    s5 = s4, s4 = s3, s3 = s2, s2 = s1, s1 = s0;
                    if (code == CONSTANT) {
                        s0 = program.constant[argument][level];
                    } else {
                        const void *from = argument == 0   ? a
                                           : argument == 1 ? b
                                           : argument == 2 ? c
                                                           : d;
                        const i64 place = (argument == 0   ? at[0]
                                           : argument == 1 ? at[1]
                                           : argument == 2 ? at[2]
                                                           : at[3]) +
                                          (i64)level * layout.level[argument];
                        s0 = code == LOAD ? ((const u64 *)from)[place] : ((const u8 *)from)[place];
                    }
                } else if (code == ADD || code == SUBTRACT || code == MULTIPLY) {
                    s0 = code == ADD        ? added(s1, s0, m)
                         : code == SUBTRACT ? subtracted(s1, s0, m)
                                            : multiplied(s1, s0, m);
                    s1 = s2, s2 = s3, s3 = s4, s4 = s5;
                } else if (code == NEGATE) {
                    s0 = negated(s0, m);
                } else if (code == REDUCE) {
                    s0 = reduced_signed((i64)s0, m);
                } else if (code == POWER) {
                    s0 = raised(s0, program.constant[argument][level], m);
                } else if (code == INVERSE) {
                    s0 = inverted(s0, m);
                } else if (code == IS_ZERO) {
                    s0 = s0 == 0;
                } else {  // SELECT: condition, value if it holds, value if not
                    s0 = s2 ? s1 : s0;
                    s1 = s3, s2 = s4, s3 = s5;
                }
            }
            out[level * layout.size + n] = s0;
        }
    }
}
