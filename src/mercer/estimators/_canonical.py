"""Training rows: equal ones made one, in an order that only their content decides.

Place on the way: arrays → **canonical rows** → ``svm``; their weighted variance also → ``classification``,
``regression``.

Weights of equal rows (of one class, or one target) add up, so that a weight of 2 is the row written twice, to
the last digit; and what the solver sees does not depend on the order in which the caller had the rows.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse

from ..kernels.names import variance_of

__all__ = ["CanonicalRows", "canonical_rows", "equal_across", "row_hashes", "weighted_variance"]

# Numbers hashed at a time: two temporaries of so many stay in cache.
_CHUNK = 2**15
# What sums of shares may be off, relative to the whole.
_ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class CanonicalRows:
    """Distinct rows of positive weight, by group.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        The caller's row that stands for each; ascending groups, and within a group an order by content.
    offsets : ndarray of shape (k + 1,)
        Where each group begins.
    weights : ndarray of shape (m,)
        Sums of weights.
    members : ndarray of int or None
        All the caller's rows that count, grouped by what they became and ascending in that; None where no two
        were equal.
    starts : ndarray of shape (m + 1,) or None
        Where those of each distinct row begin among `members`.
    member_weights : ndarray or None
        Their weights.
    """

    rows: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray
    members: np.ndarray | None = None
    starts: np.ndarray | None = None
    member_weights: np.ndarray | None = None

    @property
    def groups(self):
        """The rows of each group."""
        return [self.rows[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def gathered(self, values):
        """Sums over equal rows of values by the caller's rows, (…, n) → (…, m)."""
        if self.members is None:
            return values[..., self.rows]
        return np.add.reduceat(values[..., self.members], self.starts[:-1], axis=-1)

    def spread(self, coefficients, bound, *, evenly=False):
        """Coefficients by the caller's rows: those of equal rows fill up one after another.

        Parameters
        ----------
        coefficients : ndarray of shape (p, m)
        bound : ndarray of shape (m,)
            The largest size of each, of which equal rows have shares by their weights.
        evenly : bool
            Whether equal rows share each coefficient by their weights instead, so that what the p of a row
            have in common (a sum of 0) each of them has.

        Returns
        -------
        rows : ndarray of shape (s,)
            Those with a coefficient that is not 0, by group, ascending in it.
        coefficients : ndarray of shape (p, s)
        bound : ndarray of shape (s,)
            Of each by itself.
        group : ndarray of shape (s,)
        """
        used = np.flatnonzero(coefficients.any(axis=0))
        if self.members is None:
            rows, values, bound, owner = self.rows[used], coefficients[:, used], bound[used], used
        else:
            rows, values, bound, owner = self._shares(used, coefficients, bound, evenly)
        group = np.searchsorted(self.offsets, owner, side="right") - 1
        order = np.lexsort((rows, group)) if len(self.offsets) > 2 else np.argsort(rows)
        return rows[order], values[:, order], bound[order], group[order]

    def _shares(self, used, coefficients, bound, evenly):
        counts = np.diff(self.starts)[used]
        owner = np.repeat(used, counts)
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = self.starts[owner] + rank
        share = np.where(
            counts[np.searchsorted(used, owner)] == 1, 1.0, self.member_weights[at] / self.weights[owner]
        )
        whole, own = coefficients[:, owner], share * bound[owner]
        values = share * whole if evenly else _filled(whole, bound[owner], own, _before(share, rank))
        kept = values.any(axis=0)
        return self.members[at[kept]], values[:, kept], own[kept], owner[kept]


def _before(share, rank):
    """The shares of the equal rows in front of each, added up among these alone, two ranges into one."""
    sums, step = share.copy(), 1
    while step <= rank.max(initial=0):
        later = np.flatnonzero(rank >= step)
        sums[later] += sums[later - step]
        step *= 2
    return np.where(rank > 0, np.roll(sums, 1), 0.0)


def _filled(whole, bound, own, before):
    """What is left for each of the equal rows once those before are full; infinite bounds are never full."""
    size = np.abs(whole)
    with np.errstate(invalid="ignore"):
        taken = np.where(before == 0, 0.0, before * bound)
    left = size - np.minimum(taken, size)
    # Within what rounding of the shares left over or short, a row is full or untouched.
    near = np.minimum(_ROUNDING * size, own / 2)
    values = np.where(left >= own - near, own, np.where(left <= near, 0.0, left))
    return np.copysign(values, whole)


# ---------------------------------------------------------------- hashes


@lru_cache(maxsize=4)
def _multipliers(d):
    """Odd numbers without a pattern, one per column: splitmix64's, of multiples of the golden ratio."""
    with np.errstate(over="ignore"):
        z = np.arange(1, d + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    z.flags.writeable = False
    return z


def _bits(values):
    """Bits of numbers as float64, −0 as 0, with the upper half in the lower one, which round numbers lack."""
    bits = (values.astype(np.float64, copy=False) + 0.0).view(np.uint64)
    return bits ^ (bits >> np.uint64(32))


def row_hashes(X, targets=None):
    """A number for each row that equal rows share, however they are stored.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
        Finite numbers.
    targets : ndarray of shape (n,) or None
        One more column.

    Returns
    -------
    ndarray of shape (n,)
        uint64: Σ mⱼ·bits(xⱼ) modulo 2⁶⁴ with odd mⱼ, to which zeros add nothing.
    """
    n, d = X.shape
    m = _multipliers(d + 1)
    if sparse.issparse(X):
        sums = np.zeros(X.nnz + 1, np.uint64)
        np.cumsum(_bits(X.data) * m[X.indices], out=sums[1:])
        hashes = np.diff(sums[X.indptr])
    else:
        hashes = np.empty(n, np.uint64)
        step = max(1, _CHUNK // d)
        for start in range(0, n, step):
            np.matmul(_bits(X[start : start + step]), m[:d], out=hashes[start : start + step])
    if targets is not None:
        hashes += _bits(np.ascontiguousarray(targets)) * m[d]
    return hashes


# ---------------------------------------------------------------- merging


def canonical_rows(X, codes, n_groups, weights, *, targets=None, merge=True):
    """Distinct rows by group, in an order by content.

    Parameters
    ----------
    X : ndarray, csr_array or sequence of n
    codes : ndarray of shape (n,) or None
        The group of each row; None is one group.
    n_groups : int
    weights : ndarray of shape (n,) or None
        Rows whose weight is not positive are left out.
    targets : ndarray of shape (n,) or None
        Numbers that must be equal, too.
    merge : bool
        False keeps every row and the caller's order: X is a kernel matrix, or no matrix of numbers.

    Returns
    -------
    CanonicalRows
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    kept = None if weights is None or (weights > 0).all() else np.flatnonzero(weights > 0)
    # The group in the upper bits, so that one sort does.
    bits = np.uint64(max(0, int(n_groups - 1).bit_length()))
    keys = row_hashes(X, targets) >> bits if merge else np.zeros(n, np.uint64)
    if codes is not None and n_groups > 1:
        keys += codes.astype(np.uint64) << (np.uint64(64) - bits)
    keys = keys if kept is None else keys[kept]
    order = np.argsort(keys, kind=None if merge else "stable")
    rows = order if kept is None else kept[order]
    if merge:
        keys = keys[order]
        fresh = np.empty(len(keys), bool)
        fresh[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        if not fresh.all():
            return _merged(X, targets, codes, n_groups, weights, rows, fresh)
    return CanonicalRows(rows, _offsets(codes, rows, n_groups), _weights_of(weights, rows))


def _weights_of(weights, rows):
    return np.ones(len(rows)) if weights is None else weights[rows]


def _offsets(codes, rows, n_groups):
    if codes is None or n_groups == 1:
        return np.array([0, len(rows)])
    return np.concatenate([[0], np.cumsum(np.bincount(codes[rows], minlength=n_groups))])


def _merged(X, targets, codes, n_groups, weights, rows, fresh):
    identity = np.cumsum(fresh) - 1
    rows = rows[np.lexsort((rows, identity))]
    firsts = rows[np.flatnonzero(fresh)]
    doubles = ~fresh
    same = _same(X, targets, rows[doubles], firsts[identity[doubles]])
    if not same.all():
        wrong = np.unique(identity[doubles][~same])
        rows, fresh = _split_collisions(X, targets, rows, identity, wrong)
        identity = np.cumsum(fresh) - 1
        firsts = rows[np.flatnonzero(fresh)]
    starts = np.append(np.flatnonzero(fresh), len(rows))
    own = _weights_of(weights, rows)
    # Sums in an order that the caller's does not change.
    ordered = own if weights is None else own[np.lexsort((own, identity))]
    summed = np.add.reduceat(ordered, starts[:-1])
    return CanonicalRows(firsts, _offsets(codes, firsts, n_groups), summed, rows, starts, own)


def _same(X, targets, rows, others):
    """Whether two rows are equal, for each of two lists of them."""
    if sparse.issparse(X):
        same = np.diff((X[rows] != X[others]).indptr) == 0
    else:
        same = np.empty(len(rows), bool)
        step = max(1, 8 * _CHUNK // X.shape[1])
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            same[part] = (X[rows[part]] == X[others[part]]).all(axis=1)
    return same if targets is None else same & (targets[rows] == targets[others])


def _split_collisions(X, targets, rows, identity, wrong):
    """Rows of one hash that are not equal, apart: in lexicographic order within the hash."""
    rank = np.zeros(len(rows), np.intp)
    for each in wrong:
        at = np.flatnonzero(identity == each)
        block = X[rows[at]]
        block = block.toarray() if sparse.issparse(block) else block
        if targets is not None:
            block = np.column_stack([block, targets[rows[at]]])
        rank[at] = np.unique(block, axis=0, return_inverse=True)[1].ravel()
    order = np.lexsort((rows, rank, identity))
    rows, identity, rank = rows[order], identity[order], rank[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (identity[1:] != identity[:-1]) | (rank[1:] != rank[:-1])
    return rows, fresh


def equal_across(X, rows, codes):
    """Two equal rows of different groups, or None.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
    rows : ndarray of int
        Those to look at.
    codes : ndarray of shape (n,)
        The group of each row.

    Returns
    -------
    tuple of two ints, or None
    """
    hashes = row_hashes(X)[rows]
    order = np.lexsort((codes[rows], hashes))
    rows = rows[order]
    near = np.flatnonzero((np.diff(hashes[order]) == 0) & (np.diff(codes[rows]) != 0))
    found = near[_same(X, None, rows[near], rows[near + 1])]
    return tuple(sorted((int(rows[found[0]]), int(rows[found[0] + 1])))) if found.size else None


@np.errstate(over="ignore", invalid="ignore")
def weighted_variance(X, weights=None, rows=None):
    """Variance of all entries of the training rows, each as often as its weight says.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n, d)
    weights : ndarray or None
        Rows whose weight is not positive are left out.
    rows : ndarray of int or None
        Those that the weights are of; None is all.

    Returns
    -------
    float
        `variance_of` the rows where all count once, or it is exactly 0.
    """
    if weights is None:
        return variance_of(X)
    kept = np.flatnonzero(weights > 0)
    block, weights = X[kept if rows is None else rows[kept]], weights[kept]
    variance = variance_of(block)
    if not variance or (weights == 1).all():
        return variance
    w = weights.astype(np.longdouble)
    total = w.sum() * block.shape[1]
    # Extended sums round to the same number for any storage.
    if sparse.issparse(block):
        values, w = block.data.astype(np.float64), np.repeat(w, np.diff(block.indptr))
        mean = float((w @ values.astype(np.longdouble)) / total)
        squares = w @ np.square(values - mean).astype(np.longdouble) + (total - w.sum()) * np.square(mean)
        return float(squares / total)
    block = block.astype(np.float64, copy=False)
    mean = float((w @ block.sum(axis=1, dtype=np.longdouble)) / total)
    return float((w @ np.square(block - mean).sum(axis=1, dtype=np.longdouble)) / total)
