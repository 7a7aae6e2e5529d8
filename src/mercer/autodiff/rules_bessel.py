"""Rules of scipy.special: Bessel and hypergeometric functions, orthogonal polynomials."""

import numpy as np
import scipy.special as sp

from mercer.autodiff.errors import NoRuleError, trace_error
from mercer.autodiff.rules import define, elementwise
from mercer.autodiff.rules_special import without_rule

__all__ = ["spherical_jn", "spherical_slope"]

# -- Bessel functions: C_v' = (C_(v−1) ∓ C_(v+1))/2, in the argument alone ------------------------------

elementwise(sp.j0, lambda ans, x: -sp.j1(x))
elementwise(sp.j1, lambda ans, x: 0.5 * (sp.j0(x) - sp.jv(2, x)))
elementwise(sp.y0, lambda ans, x: -sp.y1(x))
elementwise(sp.y1, lambda ans, x: np.where(x == 0, np.inf, 0.5 * (sp.y0(x) - sp.yv(2, x))))
elementwise(sp.i0, lambda ans, x: sp.i1(x))
elementwise(sp.i1, lambda ans, x: 0.5 * (sp.i0(x) + sp.iv(2, x)))
elementwise(sp.k0, lambda ans, x: -sp.k1(x))
elementwise(sp.k1, lambda ans, x: -0.5 * (sp.k0(x) + sp.kv(2, x)))
elementwise(sp.i0e, lambda ans, x: sp.i1e(x) - np.sign(x) * ans)
elementwise(sp.i1e, lambda ans, x: 0.5 * (sp.i0e(x) + sp.ive(2, x)) - np.sign(x) * ans)
elementwise(sp.k0e, lambda ans, x: ans - sp.k1e(x))
elementwise(sp.k1e, lambda ans, x: ans - 0.5 * (sp.k0e(x) + sp.kve(2, x)))


def cylinder(fun, sign, factor=1.0, scaled=None, base=None, at_zero=None):
    """Make the rule of a Bessel function of order v.

    Parameters
    ----------
    fun : np.ufunc
    sign, factor : float
        Its derivative is ``factor * (base(v − 1, x) + sign * base(v + 1, x)) / 2``.
    scaled : callable, optional
        ``scaled(x)`` times the function is added, for those with an exponential factor.
    base : np.ufunc, optional
        The same function for any real order, where `fun` truncates it.
    at_zero : float, optional
        Its slope at 0 for orders of at least 0, where the formula is ∞ − ∞.
    """
    cylinder_of = base or fun

    def slope(ans, v, x):
        v = v if base is None else np.trunc(v)
        below, above = cylinder_of(np.subtract(v, 1), x), cylinder_of(np.add(v, 1), x)
        with np.errstate(invalid="ignore"):
            d = 0.5 * factor * (below - above if sign < 0 else below + above)
        if at_zero is not None:
            d = np.where((x == 0) & (v >= 0), at_zero, d)
        return d if scaled is None else d + scaled(x) * ans

    elementwise(fun, without_rule(fun.__name__, "the order"), slope)


def _real_only(name):
    def sign(x):
        if x.dtype.kind == "c":
            raise trace_error(
                f"scipy.special.{name}",
                "is not analytic in complex numbers",
                "use the unscaled function",
                NoRuleError,
            )
        return -np.sign(x)

    return sign


cylinder(sp.jv, -1)
cylinder(sp.yv, -1, at_zero=np.inf)
cylinder(sp.yn, -1, base=sp.yv, at_zero=np.inf)
cylinder(sp.iv, 1)
cylinder(sp.kv, 1, -1.0)
cylinder(sp.kn, 1, -1.0, base=sp.kv)
cylinder(sp.ive, 1, scaled=_real_only("ive"))
cylinder(sp.kve, 1, -1.0, scaled=lambda x: 1)
cylinder(sp.hankel1, -1)
cylinder(sp.hankel2, -1)
cylinder(sp.hankel1e, -1, scaled=lambda x: -1j)
cylinder(sp.hankel2e, -1, scaled=lambda x: 1j)


def spherical_slope(z, n):
    """Return j_n'(z), where (2n + 1) j_n' = n j_(n−1) − (n + 1) j_(n+1): there is no division by z."""
    lower = n * spherical_jn(z, n=n - 1) if n else 0.0
    return (lower - (n + 1) * spherical_jn(z, n=n + 1)) / (2 * n + 1)


#: ``spherical_jn(z, n=…)``
spherical_jn = define(
    lambda z, n: sp.spherical_jn(n, z).astype(z.dtype)[()],
    name="scipy.special.spherical_jn",
    jvp=[lambda t, ans, z, n: t * spherical_slope(z, n)],
    vjp=[lambda g, ans, z, n: g * np.conj(spherical_slope(z, n))],
    batched=True,
)

# -- hypergeometric functions and polynomials -----------------------------------------------------------

elementwise(sp.hyp0f1, without_rule("hyp0f1", "v"), lambda ans, v, z: sp.hyp0f1(np.add(v, 1), z) / v)
elementwise(
    sp.hyp1f1,
    without_rule("hyp1f1", "a"),
    without_rule("hyp1f1", "b"),
    lambda ans, a, b, x: np.true_divide(a, b) * sp.hyp1f1(np.add(a, 1), np.add(b, 1), x),
)
elementwise(
    sp.hyp2f1,
    without_rule("hyp2f1", "a"),
    without_rule("hyp2f1", "b"),
    without_rule("hyp2f1", "c"),
    lambda ans, a, b, c, z: np.multiply(a, b) / c * sp.hyp2f1(np.add(a, 1), np.add(b, 1), np.add(c, 1), z),
)
elementwise(
    sp.hyperu,
    without_rule("hyperu", "a"),
    without_rule("hyperu", "b"),
    lambda ans, a, b, x: np.negative(a) * sp.hyperu(np.add(a, 1), np.add(b, 1), x),
)


def polynomial(fun, slope):
    """Make the rule of an orthogonal polynomial from its derivative for degrees above 0."""

    def partial(ans, n, *args):
        n = np.asarray(n)
        d = slope(np.where(n == 0, 1, n), *args)
        return np.where(n == 0, 0, d) if (n == 0).any() else d

    orders = [without_rule(fun.__name__, "degree and parameters")] * (fun.nin - 1)
    elementwise(fun, *orders, partial)


polynomial(sp.eval_legendre, lambda n, x: sp.eval_gegenbauer(n - 1, 1.5, x))
polynomial(sp.eval_chebyt, lambda n, x: n * sp.eval_chebyu(n - 1, x))
polynomial(sp.eval_chebyu, lambda n, x: 2 * sp.eval_gegenbauer(n - 1, 2, x))
polynomial(sp.eval_hermite, lambda n, x: 2 * n * sp.eval_hermite(n - 1, x))
polynomial(sp.eval_hermitenorm, lambda n, x: n * sp.eval_hermitenorm(n - 1, x))
polynomial(sp.eval_laguerre, lambda n, x: -sp.eval_genlaguerre(n - 1, 1, x))
polynomial(sp.eval_genlaguerre, lambda n, a, x: -sp.eval_genlaguerre(n - 1, np.add(a, 1), x))
polynomial(sp.eval_gegenbauer, lambda n, a, x: 2 * a * sp.eval_gegenbauer(n - 1, np.add(a, 1), x))
polynomial(
    sp.eval_jacobi,
    lambda n, a, b, x: (n + a + b + 1) / 2 * sp.eval_jacobi(n - 1, np.add(a, 1), np.add(b, 1), x),
)
