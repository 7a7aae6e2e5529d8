"""Rules of scipy.special: error, gamma, Bessel and related functions.

Those that are ufuncs are found by NumPy's dispatch; the others are called through ``ad.scipy.special``.
"""

import scipy.special as sp

from mercer.autodiff.rules import define, elementwise

elementwise(sp.expit, lambda ans, x: ans * sp.expit(-x))
elementwise(sp.i0, lambda ans, x: sp.i1(x))
elementwise(sp.i1, lambda ans, x: 0.5 * (sp.i0(x) + sp.iv(2, x)))


def _spherical_slope(t, ans, z, n):
    """(2n + 1) j_n' = n j_(n−1) − (n + 1) j_(n+1): no division by z."""
    lower = n * spherical_jn(z, n=n - 1) if n else 0.0
    return t * ((lower - (n + 1) * spherical_jn(z, n=n + 1)) / (2 * n + 1))


#: ``spherical_jn(z, n=…)``
spherical_jn = define(
    lambda z, n: sp.spherical_jn(n, z),
    name="scipy.special.spherical_jn",
    jvp=[_spherical_slope],
    vjp=[_spherical_slope],
    batched=True,
)
