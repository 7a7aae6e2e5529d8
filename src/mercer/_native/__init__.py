"""The only importer of compiled code, a module for each compiled one.

Place on the way: ``kernels``, ``gram``, ``solvers`` → **_native** → ``_gram``, ``_cholesky``, … (compiled).
Dtypes, layouts and thread counts are settled here; the compiled modules get buffers that fit.
"""

from .duals import (
    DUAL_JOB,
    DUAL_PATH_CAPPED,
    DUAL_PATH_ENDED,
    DUAL_PATH_FAR,
    DUAL_PATH_ROUNDED,
    dual,
    dual_diagonal,
    dual_fill,
    dual_lay_jobs,
    dual_layout,
    dual_path,
    dual_place,
    dual_run,
    dual_units,
    matrix_add_rows,
    matrix_entries,
)
from .factors import (
    cholesky,
    cholesky_inverse_diagonal,
    cholesky_solve,
    coarse,
    coarse_solve,
    scaled_part,
    symmetric_product,
)
from .loading import _sweep as sweep
from .loading import empty, isa, isas, openmp
from .neighbors import integer_panels, nearest, nearest_by_integers, nearest_pairs
from .tiles import gram, matmul, pair_decisions, pair_votes, pair_votes_given, pull, pull_push, push, simd

__all__ = [
    "DUAL_JOB",
    "DUAL_PATH_CAPPED",
    "DUAL_PATH_ENDED",
    "DUAL_PATH_FAR",
    "DUAL_PATH_ROUNDED",
    "cholesky",
    "cholesky_inverse_diagonal",
    "cholesky_solve",
    "coarse",
    "coarse_solve",
    "dual",
    "dual_diagonal",
    "dual_fill",
    "dual_lay_jobs",
    "dual_layout",
    "dual_path",
    "dual_place",
    "dual_run",
    "dual_units",
    "empty",
    "gram",
    "integer_panels",
    "isa",
    "isas",
    "matmul",
    "matrix_add_rows",
    "matrix_entries",
    "nearest",
    "nearest_by_integers",
    "nearest_pairs",
    "openmp",
    "pair_decisions",
    "pair_votes",
    "pair_votes_given",
    "pull",
    "pull_push",
    "push",
    "scaled_part",
    "simd",
    "sweep",
    "symmetric_product",
]
