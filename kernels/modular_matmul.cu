// Batched products of small matrices of residues below 2^31, one thread per element of the result.
//
// a: (levels, batch_a, m, k), b: (levels, batch_b, k, n), out: (levels, batch, m, n), all uint32,
// row-major. For every entry of the batch pair_a and pair_b name the matrices of a and of b that it
// multiplies (broadcasting). primes: one for each level.
//
// The sum is kept below 4 p^2 < 2^64. A term is below p^2, so before it is added the sum must be
// below 2 p^2. With s = sum and t = 2 p^2, min(s, s - t) is s - t if s >= t. It is s if s < t,
// because s - t then wraps around to a huge number. This needs no branch, and one division at the
// end.

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void modular_matmul(const u32 *a, const u32 *b, u32 *out,
                                          const long long *pair_a, const long long *pair_b,
                                          const u64 *primes, long long batch_a, long long batch_b,
                                          long long batch, long long levels, int m, int k, int n) {
    const long long size = (long long)m * n;
    const long long total = levels * batch * size;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        const long long element = i % size;
        const long long matrix = i / size;
        const long long level = matrix / batch;
        const long long entry = matrix % batch;
        const u64 p = primes[level];
        const u64 twice = 2 * p * p;
        const u32 *x = a + ((level * batch_a + pair_a[entry]) * m + element / n) * k;
        const u32 *y = b + (level * batch_b + pair_b[entry]) * k * n + element % n;
        u64 sum = 0;
        for (int j = 0; j < k; ++j) {
            sum += (u64)x[j] * y[(long long)j * n];
            sum = min(sum, sum - twice);
        }
        out[i] = (u32)(sum % p);
    }
}
