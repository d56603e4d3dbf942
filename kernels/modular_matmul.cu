// Products of matrices of residues.
//
// Small ones, many at a time: a thread computes two by two elements of a result. Its sums are kept
// below 4 p^2 < 2^64. A term is below p^2, so before two are added a sum must be below 2 p^2. With
// t = 2 p^2, min(s, s - t) is s - t if s >= t. It is s if s < t, because s - t then wraps around to
// a huge number. This needs no branch, and one division at the end.
//
// Large ones, as float64 GEMMs of exact integers. Balanced residues are at most H = (p - 1) / 2 <
// 2^30 in size. The left one is split, x = high 46340 + low, with high the nearest integer to
// x / 46340: |low| <= 23170, and |high| <= floor(H / 46340 + 1/2) <= 23171. A dot product of 352
// terms is at most 352 * 23171 * 2^30 < 2^52.98, whatever the order in which it is added up, and
// float64 holds every such integer. So K is cut into chunks of at most 352 terms, filled up with
// zeros; chunks are entries of one batched GEMM, whose left matrix has the rows of the high part
// above those of the low part. Over 511 chunks and one residue the sum of a part stays below 2^62 in
// int64; then it is reduced.

#define BASE 46340
#define MOST_CHUNKS 512

// The two axes of a matrix behind those of a Layout: extents, and strides in elements.
struct Matrix {
    u64 rows, columns;
    i64 row, column;
};

// Operands 0 and 1: the matrices of a (m, k) and b (k, n), residues in int64, for each entry of the
// batch. out: (levels, batch, m, n).
extern "C" __global__ void modular_matmul(const u64 *__restrict__ a, const u64 *__restrict__ b,
                                          u64 *__restrict__ out,
                                          const __grid_constant__ Layout layout,
                                          const __grid_constant__ Matrix left,
                                          const __grid_constant__ Matrix right,
                                          const __grid_constant__ Primes primes) {
    const u32 m = (u32)left.rows, k = (u32)left.columns, n = (u32)right.columns;
    const u32 rows = (m + 1) / 2, columns = (n + 1) / 2, tiles = rows * columns;
    FOR_LEVELS(level, layout.levels) {
        const Prime prime = primes.of[level];
        const u64 twice = 2 * prime.p * prime.p;
        FOR_EACH(i, layout.size * tiles) {
            const u64 entry = i / tiles;
            const u32 tile = (u32)(i - entry * tiles);
            const u32 row = 2 * (tile / columns), column = 2 * (tile % columns);
            i64 at[2];
            places<2>(layout, entry, at);
            const u64 *x = a + at[0] + (i64)level * layout.level[0] + row * left.row;
            const u64 *y = b + at[1] + (i64)level * layout.level[1] + column * right.column;
            // A row or column beyond the last is the last once more.
            const bool two_rows = row + 1 < m, two_columns = column + 1 < n;
            const i64 below = two_rows ? left.row : 0, beside = two_columns ? right.column : 0;
            u64 s00 = 0, s01 = 0, s10 = 0, s11 = 0;
            u32 j = 0;
            for (; j + 1 < k; j += 2) {
                const u32 x0 = (u32)x[0], x1 = (u32)x[below];
                const u32 y0 = (u32)y[0], y1 = (u32)y[beside];
                const u64 *const u = x + left.column, *const v = y + right.row;
                const u32 u0 = (u32)u[0], u1 = (u32)u[below];
                const u32 v0 = (u32)v[0], v1 = (u32)v[beside];
                s00 += (u64)x0 * y0 + (u64)u0 * v0;
                s01 += (u64)x0 * y1 + (u64)u0 * v1;
                s10 += (u64)x1 * y0 + (u64)u1 * v0;
                s11 += (u64)x1 * y1 + (u64)u1 * v1;
                s00 = min(s00, s00 - twice);
                s01 = min(s01, s01 - twice);
                s10 = min(s10, s10 - twice);
                s11 = min(s11, s11 - twice);
                x += 2 * left.column;
                y += 2 * right.row;
            }
            if (j < k) {
                const u32 x0 = (u32)x[0], x1 = (u32)x[below];
                const u32 y0 = (u32)y[0], y1 = (u32)y[beside];
                s00 += (u64)x0 * y0;
                s01 += (u64)x0 * y1;
                s10 += (u64)x1 * y0;
                s11 += (u64)x1 * y1;
            }
            u64 *z = out + ((level * layout.size + entry) * m + row) * n + column;
            z[0] = reduced(s00, prime);
            if (two_columns) z[1] = reduced(s01, prime);
            if (two_rows) z[n] = reduced(s10, prime);
            if (two_rows && two_columns) z[n + 1] = reduced(s11, prime);
        }
    }
}

// The parts of a batch of left matrices. Operand 0: the matrices, for each entry of the batch.
// out: (entries, chunks, 2, m, terms), entries of all levels from first on.
extern "C" __global__ void split_left(const u64 *__restrict__ a, double *__restrict__ out,
                                      const __grid_constant__ Layout layout,
                                      const __grid_constant__ Matrix matrix,
                                      const __grid_constant__ Primes primes, u64 first, u64 entries,
                                      u64 chunks, u64 terms) {
    const u64 half = matrix.rows * terms, chunk_size = 2 * half;
    FOR_LEVELS(batch, entries * chunks) {
        const u64 entry = first + batch / chunks, chunk = batch % chunks;
        const u64 level = entry / layout.size;
        const Prime m = primes.of[level];
        i64 at[1];
        places<1>(layout, entry % layout.size, at);
        const u64 *x = a + at[0] + (i64)level * layout.level[0];
        FOR_EACH(n, half) {
            const u64 row = n / terms, column = chunk * terms + n % terms;
            i64 value = 0;
            if (column < matrix.columns)
                value = balanced(x[(i64)row * matrix.row + (i64)column * matrix.column], m);
            const i64 high = (value + (value < 0 ? -BASE / 2 : BASE / 2)) / BASE;
            out[batch * chunk_size + n] = (double)high;
            out[batch * chunk_size + half + n] = (double)(value - high * BASE);
        }
    }
}

// The balanced residues of a batch of right matrices. out: (entries, chunks, terms, n).
extern "C" __global__ void split_right(const u64 *__restrict__ b, double *__restrict__ out,
                                       const __grid_constant__ Layout layout,
                                       const __grid_constant__ Matrix matrix,
                                       const __grid_constant__ Primes primes, u64 first,
                                       u64 entries, u64 chunks, u64 terms) {
    const u64 size = terms * matrix.columns;
    FOR_LEVELS(batch, entries * chunks) {
        const u64 entry = first + batch / chunks, chunk = batch % chunks;
        const u64 level = entry / layout.size;
        const Prime m = primes.of[level];
        i64 at[1];
        places<1>(layout, entry % layout.size, at);
        const u64 *x = b + at[0] + (i64)level * layout.level[0];
        FOR_EACH(n, size) {
            const u64 row = chunk * terms + n / matrix.columns, column = n % matrix.columns;
            i64 value = 0;
            if (row < matrix.rows)
                value = balanced(x[(i64)row * matrix.row + (i64)column * matrix.column], m);
            out[batch * size + n] = (double)value;
        }
    }
}

// Joins the parts of products. products: (entries, chunks, 2, rows, columns), float64, entries of
// all levels from first on; batch: entries of one level. out: (entries, rows, columns), entries
// apart elements apart, rows step elements apart.
extern "C" __global__ void join_products(const double *__restrict__ products, u64 *__restrict__ out,
                                         const __grid_constant__ Primes primes, u64 first,
                                         u64 entries, u64 batch, u64 chunks, u64 size, u64 columns,
                                         u64 step, u64 apart) {
    FOR_LEVELS(entry, entries) {
        const Prime m = primes.of[(first + entry) / batch];
        const double *const from = products + entry * chunks * 2 * size;
        FOR_EACH(n, size) {
            i64 high = 0, low = 0;
            for (u64 chunk = 0; chunk < chunks; ++chunk) {
                high += (i64)from[2 * chunk * size + n];
                low += (i64)from[(2 * chunk + 1) * size + n];
                if (chunk % MOST_CHUNKS == MOST_CHUNKS - 1) {
                    high = (i64)reduced_signed(high, m);
                    low = (i64)reduced_signed(low, m);
                }
            }
            const u64 upper = reduced_signed(high, m) * BASE;
            const u64 place = columns == step ? n : n / columns * step + n % columns;
            out[entry * apart + place] = reduced(upper + reduced_signed(low, m), m);
        }
    }
}
