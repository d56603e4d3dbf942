// Large products of residues on int8 tensor cores: the digits of operands, and the sum of diagonals.
//
// A residue below a prime p < 2^31 is taken in [-(p-1)/2, (p-1)/2], below 2^30 in size, and written
// in base 256 with four digits in [-128, 127]: x = sum of 256^i d_i. The last digit is at most 65 in
// size. The product of two matrices is the sum over s = 0 .. 6 of 256^s C_s, where C_s sums the
// products of digits i of one and s - i of the other. Digits of a row lie one after the other,
// those of the second operand in reverse: so C_s is one GEMM over min(s, 3) - max(0, s - 3) + 1 runs
// of k terms. Its sums are at most 4 k 2^14 in size, which int32 holds for k < 2^15.
//
// split: in: int64 residues of one matrix of `rows` rows of k terms, where element (row, term)
// stands at row * row_stride + term * term_stride. out: int8 (padded rows, 4, padded terms), where
// padding is 0. join: diagonals: int32 (7, padded rows, padded columns), out: int64 (rows, columns);
// with `add` the sum is added to the residues that stand in out.

typedef signed char i8;
typedef long long i64;

extern "C" __global__ void split_digits(const i64 *in, i8 *out, i64 p, i64 rows, i64 terms,
                                        i64 row_stride, i64 term_stride, i64 padded_rows,
                                        i64 padded_terms, int reversed) {
    const i64 total = padded_rows * padded_terms;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (i64)gridDim.x * blockDim.x) {
        const i64 row = i / padded_terms;
        const i64 term = i % padded_terms;
        i64 x = 0;
        if (row < rows && term < terms) {
            x = in[row * row_stride + term * term_stride];
            x = x > p >> 1 ? x - p : x;
        }
        i8 *digits = out + row * 4 * padded_terms + term;
        for (int digit = 0; digit < 4; ++digit) {
            const i64 low = ((x + 128) & 255) - 128;
            digits[(reversed ? 3 - digit : digit) * padded_terms] = (i8)low;
            x = (x - low) / 256;
        }
    }
}

extern "C" __global__ void join_digits(const int *diagonals, i64 *out, i64 p, i64 rows,
                                       i64 columns, i64 padded_rows, i64 padded_columns, int add) {
    const i64 total = rows * columns;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (i64)gridDim.x * blockDim.x) {
        const i64 place = i / columns * padded_columns + i % columns;
        // Horner's rule: below 2^31 * 2^8 + 2^31 in size before each reduction.
        i64 sum = 0;
        for (int s = 6; s >= 0; --s)
            sum = (sum * 256 + diagonals[s * padded_rows * padded_columns + place]) % p;
        sum = sum < 0 ? sum + p : sum;
        if (add) {
            sum += out[i];
            sum = sum < p ? sum : sum - p;
        }
        out[i] = sum;
    }
}
