// Concatenation of up to four arrays of one dtype, at any strides, along one axis.
//
// The result is contiguous. An element of a part is row r and place c in rows of as many elements as
// the part has along the axis and behind it; in the result rows are longer, and those of the part
// begin at start. Nothing is computed, so all numbers are moved as they are.

#define MOST_PARTS 4

struct Part {
    Layout layout;
    u64 row;    // elements of a row of the part
    u64 start;  // of the part's rows within those of the result
};

struct Parts {
    u64 size;  // elements of all parts
    u64 row;   // elements of a row of the result
    Part of[MOST_PARTS];
};

template <class T>
__device__ __forceinline__ void join(const T *a, const T *b, const T *c, const T *d, T *out,
                                     const Parts &parts) {
    FOR_EACH(i, parts.size) {
        u64 n = i;
        int part = 0;
        while (n >= parts.of[part].layout.size) n -= parts.of[part++].layout.size;
        i64 at[1];
        places<1>(parts.of[part].layout, n, at);
        const T *const from = part == 0 ? a : part == 1 ? b : part == 2 ? c : d;
        const u64 length = parts.of[part].row, row = n / length;
        out[row * parts.row + parts.of[part].start + n - row * length] = from[at[0]];
    }
}

extern "C" __global__ void join_words(const u64 *a, const u64 *b, const u64 *c, const u64 *d,
                                      u64 *out, const __grid_constant__ Parts parts) {
    join(a, b, c, d, out, parts);
}

extern "C" __global__ void join_bytes(const u8 *a, const u8 *b, const u8 *c, const u8 *d, u8 *out,
                                      const __grid_constant__ Parts parts) {
    join(a, b, c, d, out, parts);
}
