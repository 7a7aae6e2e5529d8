"""Newton steps over the free variables of a dual problem, also where pairwise steps crawl.

Place on the way: ``_native`` → **faces** → ``dual``, ``newton_dual``, ``_chains``.

At a large C a few hundred variables are free and badly conditioned, and SMO moves two of them at a time:
hundreds of thousands of steps. Here all free variables move together: to the minimum over the face of the
box that they span, by one Cholesky factor, dropping each variable that meets its bound on the way (a
rank-one change of the inverse); then variables at bounds whose gradient points inwards join, and so on. What
comes out is feasible and never worse but for rounding; the native solver looks at it, and goes on where this
gave up.
"""

import numpy as np

from .. import _native
from ..kernels.program import Side

__all__ = ["KernelRows", "Rows", "face_steps", "newton_on_faces"]

# What is added to the diagonal, relative to its largest entry: eigenvalues that rounding of the entries
# leaves.
_RIDGES = {np.dtype(np.float32): (1e-7, 1e-5), np.dtype(np.float64): (1e-13, 1e-10)}
# Rounds whose cost `face_steps` tells.
_FEW_ROUNDS = 3
# Rounds in a row that gain next to nothing, of what was gained before them, until no more are made.
_IDLE, _NOTHING = 5, 1e-9
# Of the gap that is to be reached, what a face's own minimum may be off.
_PART = 0.25
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
        self.dtype = matrix.dtype
        self.places = np.concatenate([np.arange(part.start, part.stop) for part in ranges])

    def square(self, A):
        """K among the variables A, float64 in Fortran order."""
        out = _native.matrix_entries(self.matrix, self.places[A], self.places[A]).T
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


class KernelRows:
    """The same of rows that are computed when they are asked for, in float64.

    Parameters
    ----------
    program : Program
        Without a leaf that is a matrix.
    side : Side
        Features of the variables.
    n_threads : int
        Changes nothing in the results.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, program, side, n_threads):
        self.program, self.side, self.n_threads = program, side, n_threads

    def _some(self, A):
        features = [None if f is None else f[A] for f in self.side.features]
        return Side(len(A), features, self.side.vecs[:, A])

    def square(self, A):
        """As `Rows.square`."""
        out, some = np.empty((len(A), len(A)), order="F"), self._some(A)
        _native.gram(self.program, some, some, out, symmetric=True, n_threads=self.n_threads)
        return out

    def product(self, A, change):
        """As `Rows.product`."""
        out = np.empty((self.side.n, 1))
        change = np.ascontiguousarray(change[:, None])
        _native.matmul(self.program, self.side, self._some(A), change, out, n_threads=self.n_threads)
        return out[:, 0]


def face_steps(n_free, n):
    """How many SMO steps over n variables cost about as much as `_FEW_ROUNDS` over so many free ones."""
    # seconds of both, measured at up to 1400 free of 5000
    faces = 5e-3 + 1e-10 * n_free**3 + 8e-9 * n_free * n
    return max(1, int(faces / (4e-7 + 6e-10 * n)))


class _Inverse:
    """Columns of the inverse of a positive definite matrix that loses rows and columns one by one."""

    def __init__(self, H, n_threads):
        self.factor, self.n, self.n_threads = H, len(H), n_threads
        self._columns, self._dropped, self._pivots = {}, np.empty((32, len(H))), np.empty(32)
        self.m = 0
        self.gone = np.zeros(len(H), bool)

    @classmethod
    def of(cls, rows, A, members, least, n_threads):
        """That of K among A, or None if K is not positive definite there but for rounding.

        What is added to K's diagonal is `least` or more. Multiples of m mᵀ, m a row of `members`, are added
        to K: no step that keeps the sums feels it, and so K need be definite for these steps only.
        """
        for ridge in _RIDGES[rows.dtype]:
            H = rows.square(A)
            diagonal = np.einsum("ii->i", H)
            # by the typical entry: weights may spread what is added to the diagonal over many decades
            scale = np.median(diagonal) or diagonal.max()
            diagonal += np.maximum(ridge * np.maximum(diagonal, scale), least)
            for member in members:
                H.T[...] += (scale * member)[:, None] * member
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


def _down_the_face(inverse, F, beta, lower, upper, members):
    """Minimise over β within its box, at its sums; variables that meet a bound stay there. Returns β.

    `members` (q, n) are the variables' parts in the sums.
    """
    beta = beta.copy()
    x, *U = inverse.solve(np.concatenate([F[None], members]).T).T.copy()
    while True:
        biases, step = _biases(x, U, members), x.copy()
        if biases is None:
            return beta
        for bias, u in zip(biases, U, strict=True):
            step -= bias * u
        step[inverse.gone] = 0.0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = np.where(step > 0, upper - beta, lower - beta) / step
        room[step == 0] = np.inf
        length = max(0.0, room.min())
        if not length < 1:
            return np.clip(beta + step, lower, upper) if np.isfinite(step).all() else beta
        beta += length * step
        # F on the face is now (1 − length) F + length · bias
        x -= length * step
        for k in np.flatnonzero(room <= length):
            beta[k] = upper[k] if step[k] > 0 else lower[k]
            if not inverse.drop(int(k), room, x, *U):
                return np.clip(beta, lower, upper)
        if inverse.gone.all():
            return beta


def _biases(x, U, members):
    """What is to be taken from F for each sum to stay as it is, or None where digits are lost."""
    if len(U) == 1:  # as nearly always
        total = members[0] @ U[0]
        return [members[0] @ x / total] if total > 0 else None
    if not len(U):
        return []
    totals = members @ np.array(U).T
    # on a face sums may depend on each other
    return np.linalg.lstsq(totals, members @ x, rcond=None)[0] if np.isfinite(totals).all() else None


def _working_set(F, beta, lower, upper, tol, sums, epsilon):
    """Free variables and those that ought to move, or None where the gap is at most `tol`.

    Returns
    -------
    A : ndarray of int
    rate : ndarray
        Of A: F, less the slope of the kink on the side where the variable is or is to be, and less what
        stands for its sum's multiplier.
    lower, upper : ndarray
        Of A: their box, which ends at the kink.
    """
    up = np.where(beta < upper, F + np.where(beta < 0, epsilon, -epsilon), -np.inf)
    down = np.where(beta > lower, F + np.where(beta > 0, -epsilon, epsilon), np.inf)
    free = up == down
    gap, bias = _multipliers(F, up, down, free, sums)
    if not gap > tol:
        return None
    # at the kink both moves may gain
    rises, falls = up - bias, bias - down
    violation = np.where(free, 0.0, np.maximum(rises, falls))
    join = np.flatnonzero(violation > tol / 2)
    # most of those that join at once would only leave again
    limit = max(32, np.count_nonzero(free) // 8)
    if len(join) > limit:
        # of those that rise as many as of those that fall: alone neither keeps the sum
        join = join[np.argsort(-violation[join], kind="stable")]
        rising = rises[join] >= falls[join]
        place = np.where(rising, np.cumsum(rising), np.cumsum(~rising))
        join = join[np.argsort(place, kind="stable")[:limit]]
    free[join] = True
    A = np.flatnonzero(free)
    rate, lower, upper = (np.where(rises >= falls, up, down) - bias)[A], lower[A], upper[A]
    if epsilon:
        above = (beta[A] > 0) | ((beta[A] == 0) & (rises[A] >= falls[A]))
        lower, upper = (
            np.where(above, np.maximum(lower, 0.0), lower),
            np.where(above, upper, np.minimum(upper, 0.0)),
        )
    return A, rate, lower, upper


def _members(A, parts):
    """Which of A are in each part, as 1 and 0."""
    return np.array([(A >= part.start) & (A < part.stop) for part in parts], float)


def _multipliers(F, up, down, free, sums):
    """The gap, and by variable what stands for its sums' multipliers: the mean rate of free ones.

    Of general weights the multipliers are those of least squares, and the gap is what they leave.
    """
    # Without a sum there is no intercept, whose place 0 takes.
    bias = np.zeros(len(F))
    if isinstance(sums, np.ndarray) and len(sums):
        used = np.flatnonzero(free)
        bias = np.linalg.lstsq(sums[:, used].T, up[used], rcond=None)[0] @ sums
    if isinstance(sums, np.ndarray):
        return (up - bias).max(initial=0.0) + (bias - down).max(initial=0.0), bias
    gaps = []
    for part in sums:
        most, least = up[part].max(initial=-np.inf), down[part].min(initial=np.inf)
        gaps.append(most - least)
        some = up[part][free[part]]
        if some.size:
            bias[part] = some.mean()
        else:
            bias[part] = most if np.isinf(least) else least if np.isinf(most) else (most + least) / 2
    return max(gaps), bias


def newton_on_faces(
    rows, F, beta, lower, upper, tol, *, rounds=20, worth=np.inf, check=None, sums=None, epsilon=0.0,
    most_free=np.inf, n_threads=1,
):  # fmt: skip
    """Bring β of min ½βᵀKβ − cᵀβ + ε Σ|βᵢ|, lower ≤ β ≤ upper, at its sums, towards the optimum.

    Parameters
    ----------
    rows : Rows or KernelRows
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
    worth : float
        The SMO steps that all may cost as much as, by `face_steps`.
    check : callable or None
        Called between rounds; may raise.
    sums : list of slice, ndarray of shape (q, n), or None
        Variables whose sums are to stay as they are, or weights of β in the sums; None is Σβ.
    epsilon : float
        ε.
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
    sums = [slice(0, len(F))] if sums is None else sums
    gained, idle = 0.0, 0
    for _ in range(rounds):
        if check is not None:
            check()
        found = _working_set(F, beta, lower, upper, tol, sums, epsilon)
        if found is None:
            return True
        A, rate, least, most = found
        worth -= face_steps(len(A), len(F)) / _FEW_ROUNDS
        if len(A) > most_free or worth < 0:
            return False
        members = sums[:, A] if isinstance(sums, np.ndarray) else _members(A, sums)
        # Where β moves by as much as it is this puts a rate off by a part of `tol`, and where K is but
        # rounding β does not rush to its bounds.
        size = np.abs(beta).max()
        inverse = _Inverse.of(rows, A, members, _PART * tol / size if size > 0 else 0.0, n_threads)
        if inverse is None:
            return False
        new = _down_the_face(inverse, rate, beta[A], least, most, members)
        change = new - beta[A]
        moved = np.flatnonzero(change)
        if not moved.size:
            return False
        image = rows.product(A[moved], change[moved])
        F -= image
        beta[A] = new
        gain = float(change @ (rate - 0.5 * image[A]))
        idle = 0 if gain > _NOTHING * gained else idle + 1
        gained += max(gain, 0.0)
        if idle == _IDLE:
            return False
    return False
