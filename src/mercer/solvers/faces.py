"""Newton steps over the free variables of a dual problem, also where pairwise steps crawl.

Place on the way: ``_native`` → **faces** → ``newton_dual``, ``_chains``.

At a large C a few hundred variables are free and badly conditioned, and SMO moves two of them at a time:
hundreds of thousands of steps. Here all free variables move together: to the minimum over the face of the
box that they span, by one Cholesky factor, dropping each variable that meets its bound on the way (a
rank-one change of the inverse); then variables at bounds whose gradient points inwards join, and so on. What
comes out is feasible and never worse; the native solver looks at it, and goes on where this gave up.
"""

import numpy as np

from .. import _native

__all__ = ["Rows", "face_steps", "newton_on_faces"]

# What is added to the diagonal, relative to its largest entry: eigenvalues that rounding of the entries
# leaves.
_RIDGES = {np.dtype(np.float32): (1e-7, 1e-5), np.dtype(np.float64): (1e-13, 1e-10)}
# Columns of the inverse that are solved for together: the variables nearest to their bounds.
_BATCH = 16


class Rows:
    """Entries of a kernel matrix among the variables of one problem.

    Parameters
    ----------
    matrix : ndarray of shape (N, N)
        float32 or float64.
    ranges : list of slice
        Where the variables are.
    diagonal : ndarray of shape (n,) or None
        What is added to the entries of each variable with itself.
    """

    def __init__(self, matrix, ranges, diagonal=None):
        self.matrix, self.ranges, self.diagonal = matrix, ranges, diagonal
        self.places = np.concatenate([np.arange(part.start, part.stop) for part in ranges])

    def square(self, A):
        """K among the variables A, float64 in Fortran order."""
        out = _native.matrix_square(self.matrix, self.places[A])
        if self.diagonal is not None:
            np.einsum("ii->i", out)[:] += self.diagonal[A]
        return out

    def product(self, A, change):
        """K times a vector that is 0 but for `change` at A, by all variables."""
        out, start = np.zeros(len(self.places)), 0
        for part in self.ranges:
            end = start + part.stop - part.start
            _native.matrix_add_rows(self.matrix[:, part], self.places[A], change, out[start:end])
            start = end
        if self.diagonal is not None:
            out[A] += self.diagonal[A] * change
        return out


def face_steps(n_free, n):
    """How many SMO steps over n variables cost about as much as a few rounds over so many free ones."""
    # seconds of both, measured at up to 1400 free of 5000
    faces = 5e-3 + 1e-10 * n_free**3 + 8e-9 * n_free * n
    return int(faces / (4e-7 + 6e-10 * n))


class _Inverse:
    """Columns of the inverse of a positive definite matrix that loses rows and columns one by one."""

    def __init__(self, H, n_threads):
        self.factor, self.n, self.n_threads = H, len(H), n_threads
        self._columns, self._dropped, self._pivots = {}, np.empty((32, len(H))), np.empty(32)
        self.m = 0
        self.gone = np.zeros(len(H), bool)

    @classmethod
    def of(cls, rows, A, dtype, n_threads):
        """That of K among A, or None if K is not positive definite there but for rounding."""
        for ridge in _RIDGES[dtype]:
            H = rows.square(A)
            diagonal = np.einsum("ii->i", H)
            diagonal += ridge * diagonal.max()
            if not _native.cholesky(H, n_threads):
                return cls(H, n_threads)
        return None

    def solve(self, R):
        """The inverse of the whole matrix times R (n, p)."""
        return _native.cholesky_solve(self.factor, R, self.n_threads)

    def _column(self, k, room):
        """Column k of the inverse as it is; those that are likely to be asked for next come with it."""
        if k not in self._columns:
            room = np.where(self.gone, np.inf, room)
            room[list(self._columns)] = np.inf
            near = np.argpartition(room, min(_BATCH, self.n - 1))[:_BATCH]
            near = np.union1d(near[np.isfinite(room[near])], [k])
            unit = np.zeros((self.n, len(near)), order="F")
            unit[near, np.arange(len(near))] = 1.0
            columns = self._follow(self.solve(unit).T, near, 0)
            self._columns.update(zip(near.tolist(), ((self.m, column) for column in columns), strict=True))
        since, column = self._columns[k]
        return self._follow(column, k, since)

    def _follow(self, columns, k, since):
        """Columns (rows of an array, or one) as they are after the drops since some of them."""
        some = slice(since, self.m)
        if since == self.m:
            return columns
        dropped = self._dropped[some]
        return columns - (dropped[:, k] / self._pivots[some, None if np.ndim(k) else ...]).T @ dropped

    def drop(self, k, room, *vectors):
        """Drop row and column k; two products with the inverse follow. False where digits are lost."""
        column, m = self._column(k, room).copy(), self.m
        column[self.gone] = 0.0
        pivot = column[k]
        if not pivot > 0:
            return False
        if m == len(self._pivots):
            self._dropped = np.concatenate([self._dropped, np.empty_like(self._dropped)])
            self._pivots = np.concatenate([self._pivots, np.empty_like(self._pivots)])
        self._dropped[m], self._pivots[m] = column, pivot
        self.m += 1
        self.gone[k] = True
        for vector in vectors:
            vector -= column * (vector[k] / pivot)
            vector[k] = 0.0
        return True


def _down_the_face(inverse, F, beta, lower, upper, keeps_sum):
    """Minimise over β within its box, at its sum; variables that meet a bound stay there. Returns β."""
    beta = beta.copy()
    x, u = inverse.solve(np.stack([F, np.ones(len(F))], axis=1)).T.copy()
    while True:
        bias = 0.0
        if keeps_sum:
            total = u.sum()
            if not total > 0:
                return beta
            bias = x.sum() / total
        step = x - bias * u
        step[inverse.gone] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0, upper - beta, lower - beta) / step
        room[step == 0] = np.inf
        length = max(0.0, room.min())
        if not length < 1:
            return np.clip(beta + step, lower, upper) if np.isfinite(step).all() else beta
        beta += length * step
        # F on the face is now (1 − length) F + length · bias
        x *= 1 - length
        x += (length * bias) * u
        for k in np.flatnonzero(room <= length):
            beta[k] = upper[k] if step[k] > 0 else lower[k]
            if not inverse.drop(int(k), room, x, u):
                return np.clip(beta, lower, upper)
        if inverse.gone.all():
            return beta


def _working_set(F, beta, lower, upper, tol, keeps_sum):
    """Free variables and those at bounds that ought to move, or None where the gap is at most `tol`."""
    can_rise, can_fall = beta < upper, beta > lower
    # Without the sum there is no intercept, whose place 0 takes.
    most = F[can_rise].max(initial=-np.inf if keeps_sum else 0.0)
    least = F[can_fall].min(initial=np.inf if keeps_sum else 0.0)
    if not most - least > tol:
        return None
    free = can_rise & can_fall
    n_free = np.count_nonzero(free)
    bias = 0.0 if not keeps_sum else F[free].mean() if n_free else (most + least) / 2
    violation = np.where(can_rise, np.where(can_fall, 0.0, F - bias), np.where(can_fall, bias - F, 0.0))
    join = np.flatnonzero(violation > tol / 2)
    # most of those that join at once would only leave again
    limit = max(32, n_free // 8)
    if len(join) > limit:
        join = join[np.argsort(-violation[join], kind="stable")[:limit]]
    free[join] = True
    return np.flatnonzero(free)


def newton_on_faces(
    rows, F, beta, lower, upper, tol, *, rounds=20, check=None, keeps_sum=True, most_free=np.inf, n_threads=1
):
    """Bring β of a problem min ½βᵀKβ − cᵀβ, lower ≤ β ≤ upper, at its sum, towards the optimum.

    Parameters
    ----------
    rows : Rows
        K.
    F : ndarray of shape (n,)
        c − Kβ; changed in place.
    beta : ndarray of shape (n,)
        Feasible; changed in place.
    lower, upper : ndarray of shape (n,)
    tol : float
        The gap to be reached.
    rounds : int
        At most.
    check : callable or None
        Called between rounds; may raise.
    keeps_sum : bool
        Whether Σβ is to stay as it is.
    most_free : float
        Of so many variables at a time, at most: no further round is begun with more.
    n_threads : int
        Changes nothing in the result.

    Returns
    -------
    bool
        Whether the gap is at most `tol`.

    References
    ----------
    K. Scheinberg, An efficient implementation of an active set method for SVMs, JMLR 7, 2006.
    """
    for _ in range(rounds):
        if check is not None:
            check()
        A = _working_set(F, beta, lower, upper, tol, keeps_sum)
        if A is None:
            return True
        if len(A) > most_free:
            return False
        inverse = _Inverse.of(rows, A, rows.matrix.dtype, n_threads)
        if inverse is None:
            return False
        new = _down_the_face(inverse, F[A], beta[A], lower[A], upper[A], keeps_sum)
        change = new - beta[A]
        moved = np.flatnonzero(change)
        if not moved.size:
            return False
        F -= rows.product(A[moved], change[moved])
        beta[A] = new
    return False
