"""Row functions: the vectors f(x_i) by which MODULATE and OFFSET change a kernel, with derivatives.

Place on the way: ``derivatives`` → **rows** → the composites that modulate, normalise and center.

Each has ``value(X)`` → (n,); ``pullback(X, da)`` → ``(dX, dparams)``; ``pushforward(X, tX, tparams)`` → (n,);
``second(X, tX, tparams, da, tda)``, the directional derivative of ``pullback``; ``mixed(X, t, s)`` → (n,),
the second derivative along two directions (tX, tparams). ``dparams`` and ``tparams`` are dicts by path; None
is zero in dX and tX.
"""

import numpy as np

from . import derivatives
from .bilinear import diag_second_push, second_pushforward
from .diag import diag_pull, diag_pull_push, diag_push
from .prepared import Prepared, diagonal, dtype_of, n_rows, paired
from .user import checked, name_of
from .views import inverse_or_zero, plus, row_norms

__all__ = ["Centering", "HalfDiag", "InverseSqrtDiag", "Norm", "RowFunction", "UserFunction"]


class RowFunction:
    """Base of the row functions.

    Attributes
    ----------
    has_params : bool
        Whether it has hyperparameters, or may have.
    """

    has_params = True

    def value(self, X):
        """f(x_i), float64 of shape (n,)."""
        raise NotImplementedError

    def pullback(self, X, da):
        """Gradient of Σ daᵢ f(x_i) in X and the hyperparameters."""
        raise NotImplementedError

    def pushforward(self, X, tX, tparams):
        """Directional derivative of f(x_i), (n,)."""
        raise NotImplementedError

    def second(self, X, tX, tparams, da, tda):
        """Directional derivative of `pullback` along tX, tparams and tda."""
        raise NotImplementedError

    def mixed(self, X, t, s):
        """Second derivative of f(x_i) along two directions; here of an f without hyperparameters."""
        if t[0] is None or s[0] is None:
            return np.zeros(n_rows(X))
        one = np.ones(n_rows(X))
        return np.einsum("ij,ij->i", self.second(X, s[0], {}, one, np.zeros_like(one))[0], t[0])


class Norm(RowFunction):
    """‖x‖, whose gradient at 0 is 0.

    Parameters
    ----------
    columns : View
        The columns that count.
    """

    has_params = False

    def __init__(self, columns):
        self.columns = columns

    def value(self, X):
        """Norms."""
        return row_norms(self.columns.apply(X))

    def _parts(self, X):
        x = np.asarray(self.columns.apply(X), dtype=np.float64)
        inverse = inverse_or_zero(row_norms(x))[:, None]
        return x * inverse, inverse

    def pullback(self, X, da):
        """Da·x̂."""
        return self.columns.pullback(X, da[:, None] * self._parts(X)[0])[0], {}

    def pushforward(self, X, tX, tparams):
        """x̂ᵀtX."""
        if tX is None:
            return np.zeros(n_rows(X))
        return np.einsum("ij,ij->i", self._parts(X)[0], self.columns.pushforward(X, tX, {}))

    def second(self, X, tX, tparams, da, tda):
        """Tda·x̂ + da·(tX − x̂ x̂ᵀtX)/‖x‖."""
        unit, inverse = self._parts(X)
        out = tda[:, None] * unit
        if tX is not None:
            t = self.columns.pushforward(X, tX, {})
            out = out + da[:, None] * (t - unit * np.einsum("ij,ij->i", unit, t)[:, None]) * inverse
        return self.columns.pullback(X, out)[0], {}


_PER_ROW = "one entry or row per sample of its block X is needed"


class UserFunction(RowFunction):
    """A function that a user gave to ``modulate``: f(X) → (n,) for a whole block of samples.

    Parameters
    ----------
    f : callable
        X (n, d) → (n,).
    gradient : callable or None
        X (n, d) → (n, d), row i the gradient of f at x_i.
    hessian_product : callable or None
        (X, T) → (n, d), row i the Hessian of f at x_i times T's row i.
    columns : View
        The columns that f sees.
    """

    has_params = False

    def __init__(self, f, gradient, hessian_product, columns):
        self.f, self.gradient, self.hessian_product, self.columns = f, gradient, hessian_product, columns

    def value(self, X):
        """What f returns, checked."""
        return checked(self.f, self.f(self.columns.apply(X)), (n_rows(X),), _PER_ROW)

    def _slopes(self, X):
        if self.gradient is None:
            raise ValueError(
                f"modulate({name_of(self.f)}) has no derivative; give it as modulate(f, gradient=…), where "
                "gradient(X) is the (n, d) matrix of the gradients of f at the rows of X"
            )
        x = self.columns.apply(X)
        return checked(self.gradient, self.gradient(x), x.shape, _PER_ROW)

    def pullback(self, X, da):
        """Da times the gradient's rows."""
        if not hasattr(X, "shape"):
            return None, {}
        return self.columns.pullback(X, da[:, None] * self._slopes(X))[0], {}

    def pushforward(self, X, tX, tparams):
        """The gradient's rows times tX's."""
        if tX is None:
            return np.zeros(n_rows(X))
        return np.einsum("ij,ij->i", self._slopes(X), self.columns.pushforward(X, tX, {}))

    def second(self, X, tX, tparams, da, tda):
        """Tda times the gradient, and da times the Hessian's product with tX."""
        if not hasattr(X, "shape"):
            return None, {}
        out = tda[:, None] * self._slopes(X)
        if tX is not None:
            if self.hessian_product is None:
                raise ValueError(
                    f"modulate({name_of(self.f)}) has no second derivative; give modulate(f, gradient=…, "
                    "hessian_product=…), where hessian_product(X, T) has rows ∇²f(x_i) t_i"
                )
            x, t = self.columns.apply(X), self.columns.pushforward(X, tX, {})
            product = self.hessian_product(x, t)
            out = out + da[:, None] * checked(self.hessian_product, product, x.shape, _PER_ROW)
        return self.columns.pullback(X, out)[0], {}


class InverseSqrtDiag(RowFunction):
    """1/√k(x, x), and 0 where k(x, x) is 0 or subnormal, for ``normalize``.

    Parameters
    ----------
    program : Program
        Of the kernel k that is normalised, with full paths.
    """

    def __init__(self, program):
        self.program = program

    def _diag(self, X):
        diag = diagonal(self.program, X)
        if not (diag >= 0).all():
            row = int(np.argmin(np.where(np.isnan(diag), -np.inf, diag)))
            raise ValueError(
                f"normalize() needs k(x, x) >= 0, but it is {diag[row]} at row {row}: the kernel is not "
                "positive semidefinite"
            )
        limits = np.finfo(dtype_of(X))
        if not (diag <= limits.max).all():
            raise ValueError(
                f"normalize() needs a finite k(x, x), but it overflows at row {int(np.argmax(diag))}; scale "
                "the samples down, or normalise what is inside a power or product: k.normalize() ** p"
            )
        # The inverse of a subnormal number is out of range.
        return np.where(diag < limits.tiny, 0.0, diag)

    def value(self, X):
        """1/√k(x, x)."""
        return inverse_or_zero(np.sqrt(self._diag(X)))

    def pullback(self, X, da):
        """Through −½ k(x, x)^(−3/2)."""
        return diag_pull(self.program, X, -0.5 * da * self.value(X) ** 3)

    def pushforward(self, X, tX, tparams):
        """Through −½ k(x, x)^(−3/2)."""
        return -0.5 * self.value(X) ** 3 * diag_push(self.program, X, tX, tparams)

    def second(self, X, tX, tparams, da, tda):
        """Through −½ k(x, x)^(−3/2) and ¾ k(x, x)^(−5/2)."""
        a = self.value(X)
        t_diag = diag_push(self.program, X, tX, tparams)
        g_dot = -0.5 * tda * a**3 + 0.75 * da * a**5 * t_diag
        return diag_pull_push(self.program, X, -0.5 * da * a**3, g_dot, tX, tparams)

    def mixed(self, X, t, s):
        """Through −½ k(x, x)^(−3/2) and ¾ k(x, x)^(−5/2)."""
        a = self.value(X)
        both = diag_push(self.program, X, *t) * diag_push(self.program, X, *s)
        return 0.75 * a**5 * both - 0.5 * a**3 * diag_second_push(self.program, X, t, s)


class HalfDiag(RowFunction):
    """−½ k(x, x), by which the exponent of ``k.exp().normalize()`` stays in range.

    Parameters
    ----------
    program : Program
        Of the kernel k, with full paths.
    """

    def __init__(self, program):
        self.program = program

    def value(self, X):
        """−½ k(x, x)."""
        return -0.5 * diagonal(self.program, X)

    def pullback(self, X, da):
        """Through k(x, x), linearly."""
        return diag_pull(self.program, X, -0.5 * da)

    def pushforward(self, X, tX, tparams):
        """Through k(x, x), linearly."""
        return -0.5 * diag_push(self.program, X, tX, tparams)

    def second(self, X, tX, tparams, da, tda):
        """Through k(x, x), linearly."""
        return diag_pull_push(self.program, X, -0.5 * da, -0.5 * tda, tX, tparams)

    def mixed(self, X, t, s):
        """Through k(x, x), linearly."""
        return -0.5 * diag_second_push(self.program, X, t, s)


class Centering(RowFunction):
    """−mean_j k(x, r_j) + ½ mean_jl k(r_j, r_l) over reference samples r, for ``center``.

    Parameters
    ----------
    program : Program
        Of the kernel k that is centred, with full paths.
    reference : ndarray or sequence
        The samples r_j.
    """

    def __init__(self, program, reference):
        self.program, self.reference = program, reference
        self.n = n_rows(reference)
        self._half_mean = None

    def value(self, X):
        """The offset, (n,)."""
        ones = np.full((self.n, 1), 1.0 / self.n)
        if self._half_mean is None:
            rows = Prepared(self.program, self.reference).matmul(ones)
            self._half_mean = 0.5 * float(rows.mean())
        return self._half_mean - Prepared(self.program, *self._pair(X)).matmul(ones)[:, 0]

    def _pair(self, X):
        return paired(X, self.reference)

    def _cotangents(self, da):
        # Both are outer products: −da 1ᵀ/N for k(x, r), ½ Σda 1 1ᵀ/N² for k(r, r).
        ones = np.ones((self.n, 1))
        return (-da[:, None], ones / self.n), (0.5 * da.sum() / self.n * ones, ones / self.n)

    def pullback(self, X, da):
        """Through both means."""
        to_x, to_r = self._cotangents(da)
        dX, _, dparams = derivatives.pullback(self.program, *self._pair(X), to_x)
        _, _, more = derivatives.pullback(self.program, self.reference, None, to_r)
        return dX, _added(dparams, more)

    def pushforward(self, X, tX, tparams):
        """Through both means."""
        X, reference = self._pair(X)
        out = np.empty((n_rows(X), self.n))
        derivatives.pushforward(self.program, X, reference, tX, None, tparams, out)
        mean = 0.0
        if tparams:
            rows = np.empty((self.n, self.n))
            derivatives.pushforward(self.program, reference, None, None, None, tparams, rows)
            mean = 0.5 * rows.mean()
        return mean - out.mean(axis=1)

    def second(self, X, tX, tparams, da, tda):
        """Through both means."""
        dX, dparams = self.pullback(X, tda)
        to_x, to_r = self._cotangents(da)
        tdX, _, first = derivatives.pullback_pushforward(
            self.program, *self._pair(X), to_x, tX, None, tparams
        )
        _, _, more = derivatives.pullback_pushforward(
            self.program, self.reference, None, to_r, None, None, tparams
        )
        return plus(dX, tdX), _added(_added(dparams, first), more)

    def mixed(self, X, t, s):
        """Through both means."""
        X, reference = self._pair(X)
        out = np.empty((n_rows(X), self.n))
        second_pushforward(self.program, X, reference, (t[0], None, t[1]), (s[0], None, s[1]), out)
        mean = 0.0
        if t[1] and s[1]:
            rows = np.empty((self.n, self.n))
            second_pushforward(self.program, reference, None, (None, None, t[1]), (None, None, s[1]), rows)
            mean = 0.5 * rows.mean()
        return mean - out.mean(axis=1)


def _added(a, b):
    return {
        path: a[path] + b[path] if path in a and path in b else a.get(path, b.get(path)) for path in a | b
    }
