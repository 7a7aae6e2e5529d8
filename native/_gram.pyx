# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Programs on tiles: the Gram matrix, its product with vectors, and their derivatives.

`mercer._native` is the only importer. Arrays are described to C here, the parallel loops are gram.c and
adjoint.c, and this module gives them the processor without the GIL, looking for signals in between.
"""

from cpython.buffer cimport (
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import numpy as np

cdef extern from "mercer.h" nogil:
    int MERCER_OK, MERCER_NO_MEMORY, MERCER_PAUSED
    int LEAF_DOT, LEAF_SQDIST, LEAF_L1, LEAF_CHI2, LEAF_DIRICHLET, LEAF_BLOCK

    ctypedef struct MercerFeatures:
        const void *values
        ptrdiff_t row_stride
        ptrdiff_t col_stride
        const int32_t *indices
        const int64_t *indptr
        ptrdiff_t n

    ctypedef struct MercerLeaf:
        int kind, degree, unit, expand
        double cancels
        ptrdiff_t d
        MercerFeatures left, right
        const void *weight
        const void *shift
        const void *block
        ptrdiff_t block_row_stride, block_col_stride

    ctypedef struct MercerRun:
        ptrdiff_t n, m
        int symmetric, densify, n_ops, n_leaves, n_vecs
        const int32_t *ops
        const void *slots
        const void *left_vecs
        const void *right_vecs
        ptrdiff_t left_ld, right_ld
        MercerLeaf *leaves

    ctypedef struct MercerTable:
        size_t element
        ptrdiff_t tile
        int (*simd)(int function, const void *x, void *y, ptrdiff_t n) noexcept

    ctypedef struct MercerState:
        pass

    ptrdiff_t MERCER_CHUNK, MERCER_ROWS

    ctypedef struct MercerAdjointLeaf:
        const double *left
        const double *left_t
        const double *right
        const double *right_t
        const double *weight
        const double *log_weight_t
        const double *block_t
        double *gradient
        double *gradient_t
        double *log_weights
        double *log_weights_t

    ctypedef struct MercerAdjoint:
        const MercerRun *run
        MercerAdjointLeaf *leaves
        int dual
        const double *slots_t
        const double *left_vecs_t
        const double *right_vecs_t
        const double *G
        ptrdiff_t G_row_stride, G_col_stride
        const double *left_factor
        const double *right_factor
        ptrdiff_t rank
        double *pushed
        double *vecs
        double *vecs_t
        double *slots
        double *slots_grad_t
        ptrdiff_t n_slots

    const MercerTable *mercer_table(int is_float32) noexcept
    const char *mercer_isa() noexcept
    int mercer_isa_available(const char *name) noexcept
    int mercer_prepare(MercerRun *run, const MercerTable *table, int n_threads) noexcept
    void mercer_release(MercerRun *run) noexcept
    int mercer_gram(const MercerRun *run, const MercerTable *table, const MercerTable *stored, void *out,
                    ptrdiff_t ldo, MercerState *state, double pause_after, int n_threads) noexcept
    int mercer_matmul_begin(const MercerRun *run, const MercerTable *table, const void *V, ptrdiff_t p,
                            double *out, MercerState *state) noexcept
    int mercer_matmul(const MercerRun *run, const MercerTable *table, MercerState *state,
                      double pause_after, int n_threads) noexcept
    void mercer_matmul_end(const MercerRun *run, MercerState *state, double *out) noexcept
    ctypedef struct MercerPairs:
        ptrdiff_t k
        const ptrdiff_t *starts
        const void *coefficients
        const void *intercept
        const void *errors
        const void *row_errors
        int tie_to_first
        double *votes
        double *more
        double *decisions

    int mercer_pairs(const MercerRun *run, const MercerTable *table, const MercerPairs *job, ptrdiff_t *next,
                     double pause_after, int n_threads) noexcept
    int mercer_pairs_given(const MercerTable *table, const MercerPairs *job, ptrdiff_t n) noexcept
    int mercer_adjoint(const MercerAdjoint *job, const MercerTable *table, ptrdiff_t *next,
                       double pause_after, int n_threads) noexcept
    void mercer_chunks(const double *rows, ptrdiff_t m, ptrdiff_t d, double *chunks, int n_threads) noexcept
    void *mercer_take(size_t bytes, int n_threads) noexcept
    void mercer_give(void *memory, size_t bytes) noexcept
    int mercer_openmp() noexcept

# Seconds after which a loop comes back to look for signals.
cdef double PAUSE_AFTER = 0.05

# Up to this many features squared distances are sums of squared differences: exact, and as fast as the
# expansion once its packing, norms and checks are counted.
cdef ptrdiff_t DIRECT_FEATURES = 8


# Relative size below which |x|² + |z|² − 2xᵀz has lost too many digits and is recomputed from x − z: the
# expansion's error is about ε(|x|² + |z|²), so that the distance keeps a relative error of about ε over this.
_CANCELS = {np.dtype(np.float64): 1.0 / 1024.0, np.dtype(np.float32): 1.0 / 32.0}


cdef const void *_address(array, ptrdiff_t *row_stride, ptrdiff_t *col_stride, bint writable) except? NULL:
    """Where an array's values are, and its strides in elements. The caller keeps the array alive."""
    cdef Py_buffer buffer
    cdef const void *pointer
    PyObject_GetBuffer(array, &buffer, PyBUF_STRIDED_RO | (PyBUF_WRITABLE if writable else 0))
    pointer = buffer.buf
    if row_stride != NULL:
        row_stride[0] = buffer.strides[0] // buffer.itemsize if buffer.ndim > 0 else 0
    if col_stride != NULL:
        col_stride[0] = buffer.strides[1] // buffer.itemsize if buffer.ndim > 1 else 1
    PyBuffer_Release(&buffer)
    return pointer


cdef class Run:
    """A program bound to its two sides: what the loops read, and the arrays that it points into."""

    cdef MercerRun run
    cdef const MercerTable *table
    cdef int n_threads
    cdef list kept
    cdef double cancels
    cdef readonly object dtype

    def __cinit__(self, program, left, right, bint symmetric, blocks, dtype, int n_threads, bint pack=True,
                  bint densify=False, cancels=None):
        self.kept, self.cancels = [], _CANCELS[dtype] if cancels is None else cancels
        self.dtype = dtype
        self.table = mercer_table(dtype == np.float32)
        self.run.n, self.run.m, self.run.symmetric, self.run.densify = left.n, right.n, symmetric, densify
        self.run.ops = <const int32_t *>self._keep(program.ops, np.int32)
        self.run.n_ops = len(program.ops)
        self.run.slots = self._keep(_in_range(program.slot_values, dtype), dtype)
        self.run.n_vecs = len(program.vecs)
        self._set_vecs(left.vecs, right.vecs)
        self.run.n_leaves = len(program.leaves)
        self.run.leaves = <MercerLeaf *>calloc(max(1, self.run.n_leaves), sizeof(MercerLeaf))
        if self.run.leaves == NULL:
            raise MemoryError
        for index in range(self.run.n_leaves):
            self._set_leaf(&self.run.leaves[index], index, program, left, right, blocks)
        self.n_threads = self._worthwhile(n_threads)
        if pack:
            self._prepare()

    def __dealloc__(self):
        if self.run.leaves != NULL:
            mercer_release(&self.run)
            free(self.run.leaves)

    def capsule(self):
        """The run for another compiled module, which keeps this object as long as it uses it."""
        return PyCapsule_New(&self.run, b"MercerRun", NULL)

    cdef int _prepare(self) except -1:
        """Pack the sides for the tiles."""
        cdef int status
        with nogil:
            status = mercer_prepare(&self.run, self.table, self.n_threads)
        if status:
            raise MemoryError("no memory for the packed copies of X and Z")
        return 0

    cdef int _worthwhile(self, int n_threads):
        """Threads that have enough to do: waking one costs as much as some ten thousand pairs."""
        cdef double work = 0
        for index in range(self.run.n_leaves):
            work += 5 + self.run.leaves[index].d
        work = (work + 5 * self.run.n_ops) * self.run.n * self.run.m
        return <int>max(1, min(n_threads, work / 1e6))

    cdef const void *_keep(self, array, dtype) except? NULL:
        array = np.ascontiguousarray(array, dtype=dtype)
        self.kept.append(array)
        return _address(array, NULL, NULL, False)

    cdef int _set_vecs(self, left, right) except -1:
        if self.run.n_vecs == 0:
            return 0
        self.run.left_vecs = self._keep(left, self.dtype)
        self.run.right_vecs = self._keep(self._padded(right), self.dtype)
        self.run.left_ld, self.run.right_ld = self.run.n, self.run.m + self.table.tile
        return 0

    cdef _padded(self, vecs):
        padded = np.zeros((self.run.n_vecs, self.run.m + self.table.tile), dtype=self.dtype)
        padded[:, : self.run.m] = vecs
        return padded

    cdef int _set_features(self, MercerFeatures *side, features) except -1:
        side.n = features.shape[0]
        if isinstance(features, np.ndarray):
            self.kept.append(features)
            side.values = _address(features, &side.row_stride, &side.col_stride, False)
            return 0
        side.values = self._keep(features.data, self.dtype)
        side.indices = <const int32_t *>self._keep(features.indices, np.int32)
        side.indptr = <const int64_t *>self._keep(features.indptr, np.int64)
        return 0

    cdef int _set_leaf(self, MercerLeaf *leaf, index, program, left, right, blocks) except -1:
        spec = program.leaves[index]
        leaf.kind, leaf.degree, leaf.unit = spec.kind, spec.degree, spec.unit
        if leaf.kind == LEAF_BLOCK:
            block = np.asarray(blocks[index], dtype=self.dtype)
            self.kept.append(block)
            leaf.block = _address(block, &leaf.block_row_stride, &leaf.block_col_stride, False)
            return 0
        rows, columns, kept = left.features[index], right.features[index], None
        weight = None if spec.weight is None else spec.weight.value(program.params, rows.shape[1])
        if not isinstance(rows, np.ndarray) and not isinstance(columns, np.ndarray):
            rows, columns, kept = _occurring(rows, columns)
        self._set_features(&leaf.left, rows)
        self._set_features(&leaf.right, columns)
        leaf.d = rows.shape[1]
        if weight is not None:
            if kept is not None:
                weight = np.resize(weight[kept], leaf.d)
            leaf.weight = self._keep(_in_range(weight, self.dtype), self.dtype)
        if leaf.kind == LEAF_SQDIST:
            dense = leaf.left.indices == NULL and leaf.right.indices == NULL
            leaf.expand, leaf.cancels = not dense or leaf.d > DIRECT_FEATURES, self.cancels
            if dense and leaf.expand:
                leaf.shift = self._keep(_centre(right.features[index]), self.dtype)
        return 0

    def gram(self, out, on_step=None):
        """Fill out (n, m), whose columns are adjacent, with the kernel's values; out may be float32.

        `on_step()` is called now and then.
        """
        cdef MercerState state
        cdef const MercerTable *stored = mercer_table(out.dtype == np.float32)
        cdef ptrdiff_t ldo
        cdef void *pointer = <void *>_address(out, &ldo, NULL, True)
        cdef int status = MERCER_PAUSED
        memset(&state, 0, sizeof(state))
        while status == MERCER_PAUSED:
            with nogil:
                status = mercer_gram(
                    &self.run, self.table, stored, pointer, ldo, &state, PAUSE_AFTER, self.n_threads
                )
            PyErr_CheckSignals()
            if on_step is not None:
                on_step()
        if status:
            raise MemoryError("no memory for the tiles")

    def matmul(self, V, out):
        """Fill out (n, p), C-ordered float64, with K @ V for V (m, p), C-ordered, of the run's dtype."""
        cdef MercerState state
        cdef const void *v = _address(V, NULL, NULL, False)
        cdef void *pointer = <void *>_address(out, NULL, NULL, True)
        cdef ptrdiff_t p = V.shape[1]
        cdef int status = MERCER_PAUSED
        memset(&state, 0, sizeof(state))
        try:
            if mercer_matmul_begin(&self.run, self.table, v, p, <double *>pointer, &state):
                raise MemoryError("no memory for the partial sums of K @ V")
            while status == MERCER_PAUSED:
                with nogil:
                    status = mercer_matmul(&self.run, self.table, &state, PAUSE_AFTER, self.n_threads)
                PyErr_CheckSignals()
            if status:
                raise MemoryError("no memory for the tiles")
        except BaseException:
            pointer = NULL
            raise
        finally:
            with nogil:
                mercer_matmul_end(&self.run, &state, <double *>pointer)

    def pairs(self, const ptrdiff_t[::1] starts, coefficients, intercept, errors, row_errors,
              bint tie_to_first, double[:, ::1] votes, double[:, ::1] more, double[:, ::1] decisions):
        """Fill votes and more (n, k), or decisions (n, p) if that is not None: `_native.pair_votes`.

        Everything but those has the run's dtype and C order; errors may be None.
        """
        cdef MercerPairs job
        cdef ptrdiff_t next = 0
        cdef int status = MERCER_PAUSED
        memset(&job, 0, sizeof(job))
        job.k, job.starts, job.tie_to_first = starts.shape[0] - 1, &starts[0], tie_to_first
        job.coefficients = _address(coefficients, NULL, NULL, False)
        job.intercept = _address(intercept, NULL, NULL, False)
        if errors is not None:
            job.errors = _address(errors, NULL, NULL, False)
            job.row_errors = _address(row_errors, NULL, NULL, False)
        if decisions is not None:
            job.decisions = &decisions[0, 0]
        else:
            job.votes, job.more = &votes[0, 0], &more[0, 0]
        while status == MERCER_PAUSED:
            with nogil:
                status = mercer_pairs(&self.run, self.table, &job, &next, PAUSE_AFTER, self.n_threads)
            PyErr_CheckSignals()
        if status:
            raise MemoryError("no memory for the kernel values of some rows")


def pairs_given(const double[:, ::1] decisions, bint tie_to_first, double[:, ::1] votes, double[:, ::1] more):
    """Fill votes and more (n, k) by given decisions (n, p)."""
    cdef MercerPairs job
    cdef ptrdiff_t n = votes.shape[0]
    cdef int status
    memset(&job, 0, sizeof(job))
    job.k, job.tie_to_first = votes.shape[1], tie_to_first
    job.decisions = <double *>&decisions[0, 0]  # which are only read
    job.votes, job.more = &votes[0, 0], &more[0, 0]
    with nogil:
        status = mercer_pairs_given(mercer_table(False), &job, n)
    if status:
        raise MemoryError("no memory for the votes of some rows")


cdef class Adjoint:
    """The derivatives of a program: one run of adjoint.c, in float64.

    The sides' features are dense C-ordered float64 arrays. `tangent` is a `Tangent` or None.
    """

    cdef MercerAdjoint job
    cdef Run run
    cdef list kept
    cdef object left, right, tangent, program

    def __cinit__(self, program, left, right, tangent, blocks, int n_threads):
        self.kept = []
        self.program, self.left, self.right, self.tangent = program, left, right, tangent
        self.run = Run(program, left, right, False, blocks, np.dtype(np.float64), n_threads, pack=False)
        self.job.run = &self.run.run
        self.job.n_slots = len(program.slots)
        self.job.dual = tangent is not None
        self.job.leaves = <MercerAdjointLeaf *>calloc(max(1, len(program.leaves)), sizeof(MercerAdjointLeaf))
        if self.job.leaves == NULL:
            raise MemoryError
        for index in range(len(program.leaves)):
            self._set_leaf(&self.job.leaves[index], index)
        if tangent is not None:
            self.job.slots_t = self._optional(tangent.slots)
            self.job.left_vecs_t = self._optional(tangent.left_vecs)
            if tangent.right_vecs is not None and self.run.run.n_vecs:
                self.job.right_vecs_t = self._doubles(self.run._padded(tangent.right_vecs))

    def __dealloc__(self):
        free(self.job.leaves)

    cdef double *_doubles(self, array) except? NULL:
        array = np.ascontiguousarray(array, dtype=np.float64)
        self.kept.append(array)
        return <double *>_address(array, NULL, NULL, False)

    cdef const double *_optional(self, array) except? NULL:
        return NULL if array is None or array.size == 0 else self._doubles(array)

    cdef const double *_chunks(self, rows) except? NULL:
        """The rows of the columns' side in chunks."""
        if rows is None:
            return NULL
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        n_chunks = -(-rows.shape[0] // MERCER_CHUNK)
        chunks = np.empty((n_chunks, rows.shape[1], MERCER_CHUNK))
        cdef const double *source = <const double *>_address(rows, NULL, NULL, False)
        cdef double *target = self._doubles(chunks)
        cdef ptrdiff_t m = rows.shape[0], d = rows.shape[1]
        with nogil:
            mercer_chunks(source, m, d, target, self.run.n_threads)
        return target

    cdef int _set_leaf(self, MercerAdjointLeaf *leaf, index) except -1:
        cdef MercerLeaf *of_run = &self.run.run.leaves[index]
        t = self.tangent
        if of_run.kind == LEAF_BLOCK:
            if t is not None:
                leaf.block_t = self._optional((t.blocks or {}).get(index))
            return 0
        leaf.left = self._doubles(self.left.features[index])
        leaf.right = self._chunks(self.right.features[index])
        leaf.weight = <const double *>of_run.weight
        if t is not None:
            leaf.left_t = self._optional(t.left[index])
            leaf.right_t = self._chunks(t.right[index])
            leaf.log_weight_t = self._optional(None if t.log_weights is None else t.log_weights[index])
        return 0

    cdef int _loop(self) except -1:
        cdef ptrdiff_t next = 0
        cdef int status = MERCER_PAUSED
        while status == MERCER_PAUSED:
            with nogil:
                status = mercer_adjoint(&self.job, self.run.table, &next, PAUSE_AFTER, self.run.n_threads)
            PyErr_CheckSignals()
        if status:
            raise MemoryError("no memory for the derivatives' registers")
        return 0

    def push(self, out):
        """Fill out (n, m), C-ordered float64, with the directional derivative of K."""
        self.job.pushed = <double *>_address(out, NULL, NULL, True)
        self._loop()

    def pull(self, G):
        """The sums that make the gradient of <G, K>, G an (n, m) array or a pair of factors.

        Returns two tuples (features, vecs, slots, log_weights, blocks), the second None without tangents.
        """
        if isinstance(G, tuple):
            self.job.left_factor = self._doubles(G[0])
            self.job.right_factor = self._chunks(G[1])
            self.job.rank = G[0].shape[1]
        else:
            G = np.asarray(G, dtype=np.float64)
            self.kept.append(G)
            self.job.G = <const double *>_address(G, &self.job.G_row_stride, &self.job.G_col_stride, False)
        first, second = self._outputs(False), self._outputs(True) if self.job.dual else None
        self._loop()
        return _totals(first), _totals(second)

    cdef _outputs(self, bint dot):
        """Arrays of zeros that the loop adds to, with their addresses set in the job."""
        cdef MercerAdjointLeaf *leaf
        n, n_vecs, n_slots = self.left.n, self.run.run.n_vecs, len(self.program.slots)
        n_blocks = -(-n // MERCER_ROWS)
        vecs, slots = np.zeros((n_vecs, n)), np.zeros((n_blocks, n_slots))
        features, log_weights, blocks = [], [], {}
        for index, spec in enumerate(self.program.leaves):
            leaf = &self.job.leaves[index]
            is_block = self.run.run.leaves[index].kind == LEAF_BLOCK
            gradient = np.zeros((n, self.right.n) if is_block else self.left.features[index].shape)
            if dot:
                leaf.gradient_t = self._doubles(gradient)
            else:
                leaf.gradient = self._doubles(gradient)
            if is_block:
                blocks[index] = gradient
            features.append(None if is_block else gradient)
            log_weights.append(None)
            if spec.weight is not None:
                log_weights[index] = np.zeros((n_blocks, gradient.shape[1]))
                if dot:
                    leaf.log_weights_t = self._doubles(log_weights[index])
                else:
                    leaf.log_weights = self._doubles(log_weights[index])
        if dot:
            self.job.vecs_t, self.job.slots_grad_t = self._doubles(vecs), self._doubles(slots)
        else:
            self.job.vecs, self.job.slots = self._doubles(vecs), self._doubles(slots)
        return features, vecs, slots, log_weights, blocks


def _totals(outputs):
    """Add the blocks' sums, in their order."""
    if outputs is None:
        return None
    features, vecs, slots, log_weights, blocks = outputs
    weights = [None if w is None else w.sum(axis=0) for w in log_weights]
    return features, vecs, slots.sum(axis=0), weights, blocks


_LARGEST = {dtype: np.finfo(dtype).max for dtype in _CANCELS}


def _in_range(parameters, dtype):
    """Parameters cut to the dtype's finite range: an infinite one would make NaN of a distance 0."""
    largest = _LARGEST[dtype]
    return np.minimum(np.maximum(parameters, -largest), largest)


def _centre(features):
    """A point amid the rows, to subtract before an expansion; it need not be their exact mean."""
    step = max(1, features.shape[0] // 256)
    # One order of summation whatever the layout. A centre out of range leaves no expansion that holds, so
    # that every pair is recomputed from differences.
    some = np.ascontiguousarray(features[::step])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.reduce(some, axis=0, dtype=np.float64) / len(some)


# From this many features on it is worth a look which columns of sparse features occur.
_WIDE = 2048


def _occurring(left, right):
    """Two CSR sides over the columns that occur in either, and those columns; None for all of them.

    Each thread holds a tile's columns densely, and a wide hashed text has mostly columns that no row uses.
    """
    d = left.shape[1]
    if d < _WIDE:
        return left, right, None
    same = right is left
    columns = np.unique(left.indices if same else np.concatenate([left.indices, right.indices]))
    if 2 * len(columns) > d:
        return left, right, None
    width = max(1, len(columns))

    def over(F):
        return type(F)((F.data, np.searchsorted(columns, F.indices), F.indptr), shape=(F.shape[0], width))

    left = over(left)
    return left, left if same else over(right), columns


cdef class Memory:
    """Bytes for a result, from memory.c and given back to it; NumPy sees them through the buffer protocol."""

    cdef void *memory
    cdef Py_ssize_t size

    def __cinit__(self, size_t size, int n_threads):
        self.size = size
        with nogil:
            self.memory = mercer_take(size, n_threads)
        if self.memory == NULL:
            raise MemoryError(f"no memory for a result of {size} bytes")

    def __dealloc__(self):
        mercer_give(self.memory, self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory, self.size, False, flags)


def simd(int function, x, y):
    """Apply a function of simd_math.h to a contiguous array; for the tests of its error bounds."""
    cdef const MercerTable *table = mercer_table(x.dtype == np.float32)
    return table.simd(function, _address(x, NULL, NULL, False), <void *>_address(y, NULL, NULL, True), x.size)


def isa():
    """The instruction set in use."""
    return mercer_isa().decode()


def isas():
    """The instruction sets that were compiled and that this machine has."""
    return [name for name in ("baseline", "v3", "v4") if mercer_isa_available(name.encode())]


def openmp():
    """The OpenMP version that this module was compiled with."""
    return mercer_openmp()


isa()  # chooses, while the import lock keeps other threads away
