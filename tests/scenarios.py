"""The table of kernels that values, derivatives and benchmarks share, with exact values by mpmath.

``exact(x, z)`` computes k(x, z) at 50 digits from the defining formula, for two sequences of numbers, and
from nothing that mercer computes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
from mpmath import mpf

from mercer.kernels import (
    RBF,
    ChiSquared,
    Cosine,
    ExpDotProduct,
    Fourier,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)

__all__ = ["D", "METRIC", "REFERENCE", "SCENARIOS", "Scenario", "nonnegative", "real"]

DIGITS = 50
#: Features of the samples that a domain draws.
D = 3


@dataclass(frozen=True)
class Scenario:
    """A kernel, its exact value, and samples that it is defined on.

    Attributes
    ----------
    name : str
    make : callable
        () → kernel.
    exact : callable
        (x, z) → k(x, z) as an mpf, for two sequences of D floats or mpf.
    domain : callable
        (rng, n) → samples of shape (n, D).
    """

    name: str
    make: Callable
    exact: Callable
    domain: Callable


def real(rng, n):
    return rng.normal(size=(n, D))


def nonnegative(rng, n):
    return rng.exponential(size=(n, D))


# ---------------------------------------------------------------- exact values


def _number(a):
    return a if isinstance(a, mpf) else mpf(float(a))


def _dot(x, z):
    return mpmath.fsum(_number(a) * _number(b) for a, b in zip(x, z, strict=True))


def _differences(x, z):
    return [_number(a) - _number(b) for a, b in zip(x, z, strict=True)]


def _square(x, z, scales=(1.0,) * D):
    return mpmath.fsum((delta / mpf(s)) ** 2 for delta, s in zip(_differences(x, z), scales, strict=True))


def _norm(x):
    return mpmath.sqrt(_dot(x, x))


def _cosine(x, z):
    return _dot(x, z) / (_norm(x) * _norm(z))


def _rbf(gamma):
    return lambda x, z: mpmath.exp(-mpf(gamma) * _square(x, z))


def _rbf_ard(x, z):
    return mpmath.exp(-mpmath.fsum(mpf(g) * d**2 for g, d in zip(GAMMAS, _differences(x, z), strict=True)))


def _matern(nu, length_scale):
    scales = np.broadcast_to(length_scale, (D,)).tolist()

    def exact(x, z):
        v = mpf(nu)
        q = mpmath.sqrt(2 * v * _square(x, z, scales))
        if q == 0:
            return mpf(1)
        return 2 ** (1 - v) / mpmath.gamma(v) * q**v * mpmath.besselk(v, q)

    return exact


def _dirichlet(degree, period):
    def exact(x, z):
        product = mpf(1)
        for delta, p in zip(_differences(x, z), np.broadcast_to(period, (D,)).tolist(), strict=True):
            t = delta / mpf(p)
            product *= 1 + 2 * mpmath.fsum(mpmath.cos(2 * mpmath.pi * m * t) for m in range(1, degree + 1))
        return product

    return exact


def _polynomial(degree, gamma, coef0, bias=True):
    def exact(x, z):
        value = (mpf(gamma) * _dot(x, z) + mpf(coef0)) ** degree
        return value if bias else value - mpf(coef0) ** degree

    return exact


def _chi_squared(x, z):
    parts = ((_number(a) - _number(b)) ** 2 / (_number(a) + _number(b)) for a, b in zip(x, z, strict=True))
    return mpmath.exp(-mpf(0.75) * mpmath.fsum(parts))


def _rational(x, z):
    return (1 + _square(x, z) / (2 * mpf(1.5) * mpf(0.75) ** 2)) ** -mpf(1.5)


def _exp_dot(x, z):
    return _norm(x) * _norm(z) * mpmath.exp(mpf(1.25) * (_cosine(x, z) - 1))


def _metric(x, z):
    return _dot(x, [_dot(row, z) for row in METRIC.tolist()])


def _normalized(exact):
    return lambda x, z: exact(x, z) / mpmath.sqrt(exact(x, x) * exact(z, z))


def _centered(exact):
    def centered(x, z):
        mean_x = mpmath.fsum(exact(x, r) for r in REFERENCE) / len(REFERENCE)
        mean_z = mpmath.fsum(exact(z, r) for r in REFERENCE) / len(REFERENCE)
        both = mpmath.fsum(exact(r, s) for r in REFERENCE for s in REFERENCE) / len(REFERENCE) ** 2
        return exact(x, z) - mean_x - mean_z + both

    return centered


def _some(exact, columns):
    """Exact value on some columns, filled up with columns where both samples are 0."""

    def on(x, z):
        pad = [0.0] * (D - len(columns))
        return exact([*(x[c] for c in columns), *pad], [*(z[c] for c in columns), *pad])

    return on


def _at_digits(exact):
    def at_digits(x, z):
        with mpmath.workdps(DIGITS):
            return exact(x, z)

    return at_digits


# ---------------------------------------------------------------- user functions


def weight(X):
    return 1.0 + 0.5 * np.sin(X[:, 0]) * X[:, 1]


def weight_gradient(X):
    out = np.zeros_like(X)
    out[:, 0] = 0.5 * np.cos(X[:, 0]) * X[:, 1]
    out[:, 1] = 0.5 * np.sin(X[:, 0])
    return out


def weight_hessian_product(X, T):
    out = np.zeros_like(X)
    out[:, 0] = -0.5 * np.sin(X[:, 0]) * X[:, 1] * T[:, 0] + 0.5 * np.cos(X[:, 0]) * T[:, 1]
    out[:, 1] = 0.5 * np.cos(X[:, 0]) * T[:, 0]
    return out


def _modulated(exact):
    def f(x):
        return 1 + mpf(0.5) * mpmath.sin(_number(x[0])) * _number(x[1])

    return lambda x, z: f(x) * exact(x, z) * f(z)


# ---------------------------------------------------------------- the table

METRIC = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 0.5]])
REFERENCE = np.array([[0.5, -1.0, 0.25], [1.5, 0.0, -0.75], [-0.25, 0.5, 1.0], [0.0, 1.25, -0.5]])
GAMMAS = [0.25, 0.5, 1.25]
SCALES = [0.75, 1.5, 2.0]

_TABLE = [
    ("linear", Linear, _dot, real),
    ("linear-metric", lambda: Linear(METRIC), _metric, real),
    ("polynomial", lambda: Polynomial(3, gamma=0.5, coef0=0.75), _polynomial(3, 0.5, 0.75), real),
    (
        "polynomial-no-bias",
        lambda: Polynomial(3, gamma=0.5, coef0=0.75, include_bias=False),
        _polynomial(3, 0.5, 0.75, bias=False),
        real,
    ),
    (
        "polynomial-homogeneous",
        lambda: Polynomial(2, coef0=0.0, include_bias=False),
        _polynomial(2, 1.0, 0.0),
        real,
    ),
    (
        "sigmoid",
        lambda: Sigmoid(0.25, 0.5),
        lambda x, z: mpmath.tanh(mpf(0.25) * _dot(x, z) + mpf(0.5)),
        real,
    ),
    ("cosine", Cosine, _cosine, real),
    ("exp-dot-product", lambda: ExpDotProduct(1.25), _exp_dot, real),
    (
        "exp-dot-product-unit",
        lambda: ExpDotProduct(1.25, unit_norm=True),
        lambda x, z: mpmath.exp(mpf(1.25) * (_dot(x, z) - 1)),
        real,
    ),
    ("rbf", lambda: RBF(0.5), _rbf(0.5), real),
    ("rbf-ard", lambda: RBF(gamma=GAMMAS), _rbf_ard, real),
    (
        "rbf-length-scale",
        lambda: RBF(length_scale=0.75),
        lambda x, z: mpmath.exp(-_square(x, z) / (2 * mpf(0.75) ** 2)),
        real,
    ),
    (
        "rbf-length-scale-ard",
        lambda: RBF(length_scale=np.array(SCALES)),
        lambda x, z: mpmath.exp(-_square(x, z, SCALES) / 2),
        real,
    ),
    (
        "laplacian",
        lambda: Laplacian(0.5),
        lambda x, z: mpmath.exp(-mpf(0.5) * mpmath.fsum(map(abs, _differences(x, z)))),
        real,
    ),
    (
        "laplacian-ard",
        lambda: Laplacian(GAMMAS),
        lambda x, z: mpmath.exp(
            -mpmath.fsum(mpf(g) * abs(d) for g, d in zip(GAMMAS, _differences(x, z), strict=True))
        ),
        real,
    ),
    ("matern-1/2", lambda: Matern(0.5, 1.25), _matern(0.5, 1.25), real),
    ("matern-3/2", lambda: Matern(1.5, 1.25), _matern(1.5, 1.25), real),
    ("matern-3/2-ard", lambda: Matern(1.5, SCALES), _matern(1.5, SCALES), real),
    ("matern-5/2", lambda: Matern(2.5, 1.25), _matern(2.5, 1.25), real),
    ("matern-0.7", lambda: Matern(0.7, 1.25), _matern(0.7, 1.25), real),
    ("matern-3.25-ard", lambda: Matern(3.25, SCALES), _matern(3.25, SCALES), real),
    ("matern-60", lambda: Matern(60.0, 1.25), _matern(60.0, 1.25), real),
    (
        "matern-inf",
        lambda: Matern(np.inf, 1.25),
        lambda x, z: mpmath.exp(-_square(x, z) / (2 * mpf(1.25) ** 2)),
        real,
    ),
    ("rational-quadratic", lambda: RationalQuadratic(0.75, 1.5), _rational, real),
    ("chi-squared", lambda: ChiSquared(0.75), _chi_squared, nonnegative),
    ("fourier", lambda: Fourier(2, 1.5), _dirichlet(2, 1.5), real),
    ("fourier-periods", lambda: Fourier(3, SCALES), _dirichlet(3, SCALES), real),
    (
        "fourier-no-bias",
        lambda: Fourier(2, include_bias=False),
        lambda x, z: _dirichlet(2, 1.0)(x, z) - 1,
        real,
    ),
    ("fourier-normalized", lambda: Fourier(2, 1.5).normalize(), _normalized(_dirichlet(2, 1.5)), real),
    (
        "fourier-no-bias-normalized",
        lambda: Fourier(2, include_bias=False).normalize(),
        _normalized(lambda x, z: _dirichlet(2, 1.0)(x, z) - 1),
        real,
    ),
    ("scaled", lambda: 1.5 * RBF(0.5), lambda x, z: mpf(1.5) * _rbf(0.5)(x, z), real),
    (
        "sum",
        lambda: Linear() + RBF(0.5) + RBF(0.25),
        lambda x, z: _dot(x, z) + _rbf(0.5)(x, z) + _rbf(0.25)(x, z),
        real,
    ),
    ("product", lambda: Linear() * RBF(0.5), lambda x, z: _dot(x, z) * _rbf(0.5)(x, z), real),
    ("power", lambda: RationalQuadratic(0.75, 1.5) ** 3, lambda x, z: _rational(x, z) ** 3, real),
    (
        "polynomial-of",
        lambda: Cosine().polynomial([0.5, 0.0, 1.5, 0.25]),
        lambda x, z: mpf(0.5) + mpf(1.5) * _cosine(x, z) ** 2 + mpf(0.25) * _cosine(x, z) ** 3,
        real,
    ),
    ("exp", lambda: (0.25 * Linear()).exp(), lambda x, z: mpmath.exp(mpf(0.25) * _dot(x, z)), real),
    (
        "modulated",
        lambda: RBF(0.5).modulate(weight, weight_gradient, weight_hessian_product),
        _modulated(_rbf(0.5)),
        real,
    ),
    ("normalized", lambda: Polynomial(2, 0.5).normalize(), _normalized(_polynomial(2, 0.5, 1.0)), real),
    (
        "normalized-metric",
        lambda: (Linear(METRIC) + RBF(0.5)).normalize(),
        _normalized(lambda x, z: _metric(x, z) + _rbf(0.5)(x, z)),
        real,
    ),
    ("centered", lambda: RBF(0.5).center(REFERENCE), _centered(_rbf(0.5)), real),
    ("centered-metric", lambda: Linear(METRIC).center(REFERENCE), _centered(_metric), real),
    ("columns", lambda: RBF(0.5).on([2, 0]), _some(_rbf(0.5), [2, 0]), real),
    (
        "columns-cosine",
        lambda: ExpDotProduct(1.25).on(slice(1, 3)) + Fourier(2, 1.5).on(0),
        lambda x, z: _some(_exp_dot, [1, 2])(x, z) + _some(_dirichlet(2, 1.5), [0])(x, z) / 25,
        real,
    ),
    (
        "composite",
        lambda: 0.5 * RBF(2.0) + Polynomial(3) * Fourier(2),
        lambda x, z: mpf(0.5) * _rbf(2.0)(x, z) + _polynomial(3, 1.0, 1.0)(x, z) * _dirichlet(2, 1.0)(x, z),
        real,
    ),
    (
        "composite-deep",
        lambda: (
            (0.5 * Matern(2.5, 1.25) + Linear(METRIC).on([0, 2, 1]) ** 2).normalize()
            * RationalQuadratic(0.75, 1.5).center(REFERENCE).polynomial([0.5, 0.25, 1.0])
        ),
        lambda x, z: (
            _normalized(
                lambda a, b: (
                    mpf(0.5) * _matern(2.5, 1.25)(a, b) + _metric([a[0], a[2], a[1]], [b[0], b[2], b[1]]) ** 2
                )
            )(x, z)
            * _quadratic(_centered(_rational)(x, z))
        ),
        real,
    ),
    (
        "composite-block",
        lambda: (
            (0.5 * Matern(0.7, 1.25).on([0, 1]) + 0.25 * Linear())
            .exp()
            .modulate(weight, weight_gradient, weight_hessian_product)
        ),
        _modulated(
            lambda x, z: mpmath.exp(
                mpf(0.5) * _some(_matern(0.7, 1.25), [0, 1])(x, z) + mpf(0.25) * _dot(x, z)
            )
        ),
        real,
    ),
]


def _quadratic(k):
    return mpf(0.5) + mpf(0.25) * k + k**2


SCENARIOS = [Scenario(name, make, _at_digits(exact), domain) for name, make, exact, domain in _TABLE]
