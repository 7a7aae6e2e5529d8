"""Rules of scipy.special: against mpmath, of second order, and the sums of exponentials."""

import warnings
from pathlib import Path
from typing import NamedTuple

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import mercer.autodiff as ad
from mercer.autodiff.errors import NoRuleError, TraceError
from mercer.autodiff.trace import UFUNCS
from mercer.testing import check_derivative

EPS = np.finfo(float).eps
special = ad.scipy.special


class Case(NamedTuple):
    """A function of its last argument; `orders` are the plain arguments before it.

    `tol` is in eps: the errors of the functions that the derivative is made of (SciPy's are a few eps to some
    hundred for Bessel functions), times what a power or an exponential makes of a rounded argument.
    """

    name: str
    function: object
    exact: object
    inner: tuple
    ends: tuple = ()
    tol: float = 10


def of(f, *orders):
    return lambda x: f(*orders, x)


half, pi = mp.mpf("0.5"), mp.pi


def voigt(x, sigma, gamma):
    z = (x + 1j * mp.mpf(gamma)) / (sigma * mp.sqrt(2))
    return mp.re(mp.exp(-z * z) * mp.erfc(-1j * z)) / (sigma * mp.sqrt(2 * pi))


def f_distribution(m, n, x):
    """Whose quotient x of two mean squares has m and n degrees of freedom."""
    return mp.betainc(mp.mpf(m) / 2, mp.mpf(n) / 2, 0, m * x / (m * x + n), regularized=True)


CASES = [
    Case("erf", sp.erf, mp.erf, (-1.2, 0.0, 0.7), (5.0, -1e-300), 30),  # x² is rounded
    Case("erfc", sp.erfc, mp.erfc, (-1.2, 0.0, 0.7), (5.0, -3.0), 30),
    Case("erfi", sp.erfi, mp.erfi, (-1.2, 0.0, 0.7), (5.0,), 30),
    Case("erfcx", sp.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), (-1.2, 0.0, 0.7),
         (21.0, 30.0, 1e4, 1e8, -5.0), 60),
    Case("dawsn", sp.dawsn, lambda x: mp.sqrt(pi) / 2 * mp.exp(-x * x) * mp.erfi(x), (-1.2, 0.1, 0.7),
         (3.0,), 60),
    Case("erfinv", sp.erfinv, mp.erfinv, (-0.8, 0.0, 0.5), (0.999,), 30),
    Case("erfcinv", sp.erfcinv, lambda x: mp.erfinv(1 - x), (0.3, 1.0, 1.6), (1e-10,), 60),
    Case("ndtr", sp.ndtr, mp.ncdf, (-1.2, 0.0, 0.7), (-8.0, 5.0), 80),
    Case("log_ndtr", sp.log_ndtr, lambda x: mp.log(mp.ncdf(x)), (-1.2, 0.0, 0.7), (-30.0, 4.0), 80),
    Case("ndtri", sp.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), (0.3, 0.5, 0.8), (1e-10,), 80),
    Case("gamma", sp.gamma, mp.gamma, (0.3, 1.7, 4.2, -1.5), (20.0, -7.3), 60),
    Case("rgamma", sp.rgamma, mp.rgamma, (0.3, 1.7, 4.2, -1.5, 0.0, -1.0, -3.1), (20.0, -20.0), 60),
    Case("gammaln", sp.gammaln,
         lambda x: mp.log(abs(mp.gamma(x))), (0.3, 1.7, 4.2, -1.5), (1e-10, 1e10), 40),
    Case("loggamma", sp.loggamma, mp.loggamma, (0.3, 1.7, 4.2), (1e-10, 1e10), 40),
    Case("psi", sp.psi, lambda x: mp.psi(0, x), (0.3, 1.7, 4.2, -1.5), (1e-5, 1e5), 40),
    Case("polygamma", of(special.polygamma, 2),
         lambda x: mp.psi(2, x), (0.3, 1.7, 4.2, -1.5), (1e-3, 1e3), 40),
    Case("zeta", of(sp.zeta, 3.5), lambda q: mp.zeta(3.5, q), (0.5, 1.7, 4.2), (1e2,), 40),
    Case("beta", of(sp.beta, 1.5), lambda x: mp.beta(1.5, x), (0.3, 1.7, 4.2), (30.0,), 60),
    Case("betaln", of(sp.betaln, 1.5), lambda x: mp.log(mp.beta(1.5, x)), (0.3, 1.7, 4.2), (), 60),
    Case("poch z", lambda x: sp.poch(x, 1.5), lambda x: mp.rf(x, 1.5), (0.3, 1.7, 4.2), (), 60),
    Case("poch m", of(sp.poch, 1.5), lambda x: mp.rf(1.5, x), (0.3, 1.7, 4.2), (), 60),
    Case("binom n", lambda x: sp.binom(x, 1.5), lambda x: mp.binomial(x, 1.5), (2.3, 5.7), (), 60),
    Case("binom k", of(sp.binom, 6.5), lambda x: mp.binomial(6.5, x), (2.3, 5.7), (), 200),
    # where a gamma function has a pole: the quotient is 0 there, or another's pole cancels it
    Case("beta, sum at a pole", of(sp.beta, 1.5), lambda x: mp.beta(1.5, x), (-1.5, -2.5, -6.5, -1.4), (),
         200),
    Case("beta, large sum at a pole", of(sp.beta, 150.5), lambda x: mp.beta(150.5, x), (-160.5,), (), 1e4),
    Case("beta, two poles", of(sp.beta, 3.0),
         lambda x: 2 / (x * (x + 1) * (x + 2)), (-3.0, -5.0, -2.6), (), 60),
    Case("betaln, two poles", of(sp.betaln, 3.0),
         lambda x: mp.log(abs(2 / (x * (x + 1) * (x + 2)))), (-3.0, -5.0, -2.6), (), 60),
    Case("poch, z at a pole", lambda x: sp.poch(x, 1.5), lambda x: mp.rf(x, 1.5), (0.0, -1.0, -5.0, -1.1), (),
         200),
    Case("poch, whole m", lambda x: sp.poch(x, 3.0),
         lambda x: x * (x + 1) * (x + 2), (0.0, -1.0, -2.0, -4.0, -0.9), (), 60),
    Case("poch, m below 0", lambda x: sp.poch(x, -2.0),
         lambda x: 1 / ((x - 1) * (x - 2)), (0.0, -1.0, -2.0, -0.6), (), 60),
    Case("poch, large z at a pole", lambda x: sp.poch(x, 1.5), lambda x: mp.rf(x, 1.5), (-200.0,), (), 1e4),
    Case("binom, k beyond n", lambda x: sp.binom(x, 7.0),
         lambda x: mp.binomial(x, 7), (0.0, 1.0, 6.0, 5.9), (), 60),
    Case("binom, k at a pole", of(sp.binom, 6.0),
         lambda x: mp.binomial(6, x), (-1.0, -3.0, 7.0, 9.0, 8.9, -0.9), (), 200),
    Case("binom, large n", of(sp.binom, 300.0), lambda x: mp.binomial(300, x), (301.0, -2.0), (), 1e4),
    Case("binom, n below 0", lambda x: sp.binom(x, 3.0),
         lambda x: x * (x - 1) * (x - 2) / 6, (-1.5, -2.0 + 2**-20), (), 60),
    Case("gammainc", of(sp.gammainc, 2.5),
         lambda x: mp.gammainc(2.5, 0, x, regularized=True), (0.5, 1.7, 4.2), (1e-10, 50.0), 200),
    Case("gammaincc", of(sp.gammaincc, 2.5),
         lambda x: mp.gammainc(2.5, x, mp.inf, regularized=True), (0.5, 1.7, 4.2), (50.0,), 200),
    Case("betainc", of(sp.betainc, 2.5, 1.5),
         lambda x: mp.betainc(2.5, 1.5, 0, x, regularized=True), (0.3, 0.7), (1e-10,), 100),
    Case("betaincc", of(sp.betaincc, 2.5, 1.5),
         lambda x: -mp.betainc(2.5, 1.5, 0, x, regularized=True), (0.3, 0.7), (), 100),
    Case("chdtr", of(sp.chdtr, 2.5),
         lambda x: mp.gammainc(1.25, 0, x / 2, regularized=True), (0.5, 1.7, 4.2), (50.0,), 200),
    Case("chdtrc", of(sp.chdtrc, 2.5),
         lambda x: mp.gammainc(1.25, x / 2, mp.inf, regularized=True), (0.5, 1.7, 4.2), (50.0,), 200),
    Case("gdtr x", of(sp.gdtr, 1.3, 2.5),
         lambda x: mp.gammainc(2.5, 0, mp.mpf(1.3) * x, regularized=True), (0.5, 1.7, 4.2), (40.0,), 300),
    Case("gdtr a", lambda a: sp.gdtr(a, 2.5, 1.3),
         lambda a: mp.gammainc(2.5, 0, mp.mpf(1.3) * a, regularized=True), (0.5, 1.7, 4.2), (), 200),
    Case("gdtrc x", of(sp.gdtrc, 1.3, 2.5),
         lambda x: -mp.gammainc(2.5, 0, mp.mpf(1.3) * x, regularized=True), (0.5, 1.7, 4.2), (), 200),
    Case("gdtrc a", lambda a: sp.gdtrc(a, 2.5, 1.3),
         lambda a: -mp.gammainc(2.5, 0, mp.mpf(1.3) * a, regularized=True), (0.5, 1.7, 4.2), (), 200),
    Case("fdtr", of(sp.fdtr, 3.0, 4.5), lambda x: f_distribution(3, 4.5, x), (0.5, 1.7, 4.2), (1e-8,), 100),
    Case("fdtrc", of(sp.fdtrc, 3.0, 4.5), lambda x: -f_distribution(3, 4.5, x), (0.5, 1.7), (1e4,), 200),
    Case("stdtr", of(sp.stdtr, 3.5),
         lambda t: mp.sign(t) * mp.betainc(half, 1.75, 0, t * t / (t * t + 3.5), regularized=True) / 2,
         (-1.2, 0.7, 4.0), (1e3,), 100),
    Case("pdtr", of(sp.pdtr, 3.0),
         lambda m: mp.gammainc(4, m, mp.inf, regularized=True), (0.5, 1.7, 4.2), (), 100),
    Case("pdtrc", of(sp.pdtrc, 3.7),
         lambda m: -mp.gammainc(4, m, mp.inf, regularized=True), (0.5, 1.7, 4.2), (), 100),
    Case("bdtr", of(sp.bdtr, 3.7, np.int64(7)),
         lambda p: -mp.betainc(4, 4, 0, p, regularized=True), (0.3, 0.7), (1e-10,), 100),
    Case("bdtrc", of(sp.bdtrc, 3.0, np.int64(7)),
         lambda p: mp.betainc(4, 4, 0, p, regularized=True), (0.3, 0.7), (), 100),
    Case("nbdtr", of(sp.nbdtr, 3, 7),
         lambda p: mp.betainc(7, 4, 0, p, regularized=True), (0.3, 0.7), (1e-10,), 200),
    Case("nbdtrc", of(sp.nbdtrc, 3, 7),
         lambda p: -mp.betainc(7, 4, 0, p, regularized=True), (0.3, 0.7), (), 100),
    Case("nrdtrimn p", lambda p: sp.nrdtrimn(p, 1.3, 0.4),
         lambda p: -1.3 * mp.sqrt(2) * mp.erfinv(2 * p - 1), (0.3, 0.8), (), 80),
    Case("nrdtrimn sd", lambda sd: sp.nrdtrimn(0.3, sd, 0.4),
         lambda sd: -sd * mp.sqrt(2) * mp.erfinv(2 * mp.mpf(0.3) - 1), (0.3, 0.8), (), 80),
    Case("nrdtrimn x", of(sp.nrdtrimn, 0.3, 1.3), lambda x: x, (0.3, 0.8)),
    Case("nrdtrisd mean", lambda mean: sp.nrdtrisd(mean, 0.3, 0.1),
         lambda mean: (mp.mpf(0.1) - mean) / (mp.sqrt(2) * mp.erfinv(2 * mp.mpf(0.3) - 1)), (0.3, 0.8), (),
         80),
    Case("nrdtrisd p", lambda p: sp.nrdtrisd(0.3, p, 1.1),
         lambda p: (mp.mpf(1.1) - mp.mpf(0.3)) / (mp.sqrt(2) * mp.erfinv(2 * p - 1)), (0.7, 0.8), (), 100),
    Case("nrdtrisd x", of(sp.nrdtrisd, 0.3, 0.8),
         lambda x: x / (mp.sqrt(2) * mp.erfinv(2 * mp.mpf(0.8) - 1)), (0.7, 0.8), (), 80),
    Case("lambertw", lambda x: np.real(sp.lambertw(x)), mp.lambertw, (0.3, 1.7, 4.2), (1e5,), 40),
    Case("wrightomega", sp.wrightomega, lambda x: mp.lambertw(mp.exp(x)), (0.3, 1.7, -1.2), (1e2,), 40),
    Case("expit", sp.expit, lambda x: 1 / (1 + mp.exp(-x)), (-1.2, 0.0, 0.7), (40.0, -40.0, -700.0)),
    Case("logit", sp.logit, lambda p: mp.log(p / (1 - p)), (0.2, 0.5, 0.7), (1e-300, 1 - 2**-53)),
    Case("log_expit", sp.log_expit, lambda x: -mp.log1p(mp.exp(-x)), (-1.2, 0.0, 0.7), (40.0, -40.0)),
    Case("xlogy x", lambda x: sp.xlogy(x, 1.7), lambda x: x * mp.log(1.7), (-1.2, 0.0, 0.7)),
    Case("xlogy y", of(sp.xlogy, 1.7), lambda y: 1.7 * mp.log(y), (0.2, 0.5, 7.7), (1e-300,)),
    Case("xlog1py x", lambda x: sp.xlog1py(x, 1.7), lambda x: x * mp.log(mp.mpf(1.7) + 1), (-1.2, 0.0, 0.7)),
    Case("xlog1py y", of(sp.xlog1py, 1.7), lambda y: 1.7 * mp.log1p(y), (-0.2, 0.5, 7.7), (1e-300,)),
    Case("entr", sp.entr, lambda x: -x * mp.log(x), (0.2, 0.5, 7.7), (1e-300,)),
    Case("rel_entr x", lambda x: sp.rel_entr(x, 0.7),
         lambda x: x * mp.log(x / mp.mpf(0.7)), (0.2, 0.5, 7.7), (1e-300,)),
    Case("rel_entr y", of(sp.rel_entr, 0.7), lambda y: 0.7 * mp.log(0.7 / y), (0.2, 0.5, 7.7)),
    Case("kl_div x", lambda x: sp.kl_div(x, 0.7),
         lambda x: x * mp.log(x / mp.mpf(0.7)) - x, (0.2, 0.5, 7.7), (0.7 + 2**-50,)),
    Case("kl_div y", of(sp.kl_div, 0.7), lambda y: 0.7 * mp.log(0.7 / y) + y, (0.2, 0.5, 7.7)),
    Case("huber r", of(sp.huber, 1.3),
         lambda r: r * r / 2 if abs(r) < 1.3 else 1.3 * (abs(r) - 0.65), (0.2, -0.5, 7.7, -3.0)),
    Case("huber delta", lambda d: sp.huber(d, 1.3),
         lambda d: d * (1.3 - d / 2) if d < 1.3 else mp.mpf(0), (0.2, 0.5, 7.7)),
    Case("pseudo_huber r", of(sp.pseudo_huber, 1.3),
         lambda r: mp.mpf(1.3) ** 2 * (mp.sqrt(1 + (r / mp.mpf(1.3)) ** 2) - 1), (0.2, -0.5, 0.0), (1e200,)),
    Case("pseudo_huber delta", lambda d: sp.pseudo_huber(d, 1.3),
         lambda d: d**2 * (mp.sqrt(1 + (1.3 / d) ** 2) - 1), (0.2, 0.5, 7.7), (1e3,), 30),
    Case("exp2", sp.exp2, lambda x: mp.mpf(2) ** x, (-3.0, 0.0, 2.5)),
    Case("exp10", sp.exp10, lambda x: mp.mpf(10) ** x, (-3.0, 0.0, 0.5)),
    Case("expm1", sp.expm1, mp.expm1, (-3.0, 0.0, 2.5), (-50.0,)),
    Case("log1p", sp.log1p, mp.log1p, (-0.3, 0.0, 2.5)),
    Case("cbrt", sp.cbrt, mp.cbrt, (0.3, 1.0, 2.5)),
    Case("cosm1", sp.cosm1, mp.cos, (0.3, 1.0, 2.5)),
    Case("sindg", sp.sindg, lambda x: mp.sin(x * pi / 180), (3.0, 100.0)),
    Case("cosdg", sp.cosdg, lambda x: mp.cos(x * pi / 180), (3.0, 100.0)),
    Case("tandg", sp.tandg, lambda x: mp.tan(x * pi / 180), (3.0, 100.0)),
    Case("cotdg", sp.cotdg, lambda x: mp.cot(x * pi / 180), (13.0, 100.0)),
    Case("radian", lambda x: sp.radian(x, 2 * x, 3 * x),
         lambda x: (1 + mp.mpf(2) / 60 + mp.mpf(3) / 3600) * x * pi / 180, (3.0, 9.0)),
    Case("exprel", sp.exprel, lambda x: mp.expm1(x) / x, (-3.0, 0.2, 2.5), (1e-9, 700.0, -50.0), 40),
    Case("powm1 x", lambda x: sp.powm1(x, 1.7), lambda x: x ** mp.mpf(1.7), (0.3, 2.5)),
    Case("powm1 y", of(sp.powm1, 1.7), lambda y: mp.mpf(1.7) ** y, (-0.3, 0.0, 2.5)),
    Case("boxcox x", lambda x: sp.boxcox(x, 0.7), lambda x: x ** mp.mpf(0.7) / mp.mpf(0.7), (0.3, 2.5)),
    Case("boxcox λ", of(sp.boxcox, 1.7),
         lambda v: (mp.mpf(1.7) ** v - 1) / v, (0.3, 2.5, -0.7), (1e-9,), 20),
    Case("boxcox1p x", lambda x: sp.boxcox1p(x, 0.7),
         lambda x: (1 + x) ** mp.mpf(0.7) / mp.mpf(0.7), (-0.3, 2.5)),
    Case("boxcox1p λ", of(sp.boxcox1p, 0.7),
         lambda v: ((1 + mp.mpf(0.7)) ** v - 1) / v, (0.3, 2.5), (1e-9,), 20),
    Case("inv_boxcox y", lambda y: sp.inv_boxcox(y, 0.7),
         lambda y: (0.7 * y + 1) ** (1 / mp.mpf(0.7)), (0.3, 2.5)),
    Case("inv_boxcox λ", of(sp.inv_boxcox, 1.7), lambda v: (v * 1.7 + 1) ** (1 / v), (0.3, 2.5), (), 40),
    Case("inv_boxcox1p y", lambda y: sp.inv_boxcox1p(y, 0.7),
         lambda y: (0.7 * y + 1) ** (1 / mp.mpf(0.7)), (0.3, 2.5)),
    Case("inv_boxcox1p λ", of(sp.inv_boxcox1p, 1.7), lambda v: (v * 1.7 + 1) ** (1 / v), (0.3, 2.5), (), 40),
    Case("expi", sp.expi, mp.ei, (0.3, 2.5, -0.7)),
    Case("exp1", sp.exp1, mp.e1, (0.3, 2.5)),
    Case("expn 2", of(sp.expn, 2), lambda x: mp.expint(2, x), (0.3, 2.5)),
    Case("expn 0", of(sp.expn, 0), lambda x: mp.exp(-x) / x, (0.3, 2.5)),
    Case("Si", lambda x: sp.sici(x)[0], mp.si, (0.3, 2.5)),
    Case("Ci", lambda x: sp.sici(x)[1], mp.ci, (0.3, 2.5)),
    Case("Shi", lambda x: sp.shichi(x)[0], mp.shi, (0.3, 2.5, 0.0)),
    Case("Chi", lambda x: sp.shichi(x)[1], mp.chi, (0.3, 2.5)),
    Case("Fresnel S", lambda x: sp.fresnel(x)[0], mp.fresnels, (0.3, 1.5)),
    Case("Fresnel C", lambda x: sp.fresnel(x)[1], mp.fresnelc, (0.3, 1.5)),
    Case("Ai", lambda x: sp.airy(x)[0], mp.airyai, (0.3, 1.5, -2.0), (), 40),
    Case("Ai'", lambda x: sp.airy(x)[1], lambda x: mp.airyai(x, derivative=1), (0.3, 1.5, -2.0), (), 40),
    Case("Bi", lambda x: sp.airy(x)[2], mp.airybi, (0.3, 1.5, -2.0), (), 40),
    Case("Bi'", lambda x: sp.airy(x)[3], lambda x: mp.airybi(x, derivative=1), (0.3, 1.5, -2.0), (), 40),
    Case("spence", sp.spence, lambda x: mp.polylog(2, 1 - x), (0.3, 0.9, 1.0, 1.5), (1 + 1e-9,), 20),
    Case("ellipk", sp.ellipk, mp.ellipk, (-3.0, 0.0, 0.7), (0.999, -1e3), 40),
    Case("ellipe", sp.ellipe, mp.ellipe, (-3.0, 0.0, 0.7), (0.999, -1e3), 40),
    Case("ellipkinc", lambda x: sp.ellipkinc(x, 0.7), lambda x: mp.ellipf(x, 0.7), (-0.3, 0.7)),
    Case("ellipeinc", lambda x: sp.ellipeinc(x, 0.7), lambda x: mp.ellipe(x, 0.7), (-0.3, 0.7)),
    Case("owens_t h", lambda x: sp.owens_t(x, 0.7), None, (-0.3, 0.7)),
    Case("owens_t a", of(sp.owens_t, 0.7), None, (-0.3, 0.7)),
    Case("j0", sp.j0, lambda x: mp.besselj(0, x), (0.0, 0.7, -3.0), (50.0,), 100),
    Case("j1", sp.j1, lambda x: mp.besselj(1, x), (0.0, 0.7, -3.0), (50.0,), 100),
    Case("y0", sp.y0, lambda x: mp.bessely(0, x), (0.3, 0.7, 3.0), (50.0,), 100),
    Case("y1", sp.y1, lambda x: mp.bessely(1, x), (0.3, 0.7, 3.0), (50.0,), 100),
    Case("i0", sp.i0, lambda x: mp.besseli(0, x), (0.0, 0.7, -3.0), (50.0,), 20),
    Case("i1", sp.i1, lambda x: mp.besseli(1, x), (0.0, 0.7, -3.0), (50.0,), 20),
    Case("i0e", sp.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), (0.3, 0.7, -3.0), (50.0,), 400),
    Case("i1e", sp.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), (0.3, 0.7, -3.0), (50.0,), 400),
    Case("k0", sp.k0, lambda x: mp.besselk(0, x), (0.3, 0.7, 3.0), (50.0,), 20),
    Case("k1", sp.k1, lambda x: mp.besselk(1, x), (0.3, 0.7, 3.0), (50.0,), 20),
    Case("k0e", sp.k0e, lambda x: mp.besselk(0, x) * mp.exp(x), (0.3, 0.7, 3.0), (50.0,), 400),
    Case("k1e", sp.k1e, lambda x: mp.besselk(1, x) * mp.exp(x), (0.3, 0.7, 3.0), (50.0,), 400),
    Case("jv", of(sp.jv, 1.5), lambda x: mp.besselj(1.5, x), (0.4, 3.0), (50.0,), 100),
    Case("yv", of(sp.yv, 1.5), lambda x: mp.bessely(1.5, x), (0.4, 3.0), (50.0,), 100),
    Case("yn", of(sp.yn, 2), lambda x: mp.bessely(2, x), (0.4, 3.0), (), 100),
    Case("iv", of(sp.iv, 1.5), lambda x: mp.besseli(1.5, x), (0.4, 3.0), (50.0,), 60),
    Case("kv", of(sp.kv, 1.5), lambda x: mp.besselk(1.5, x), (0.4, 3.0), (50.0,), 60),
    Case("kn", of(sp.kn, 2), lambda x: mp.besselk(2, x), (0.4, 3.0), (50.0,), 60),
    Case("ive", of(sp.ive, 1.5), lambda x: mp.besseli(1.5, x) * mp.exp(-x), (0.4, 2.0), (50.0,), 1000),
    Case("kve", of(sp.kve, 1.5), lambda x: mp.besselk(1.5, x) * mp.exp(x), (0.4, 3.0), (50.0,), 1000),
    Case("spherical_jn 0", of(special.spherical_jn, 0),
         lambda x: mp.sincpi(x / pi), (0.4, 3.0, 0.1), (), 40),
    Case("spherical_jn 2", of(special.spherical_jn, 2),
         lambda x: mp.sqrt(pi / 2 / x) * mp.besselj(2.5, x), (0.4, 3.0), (), 40),
    Case("hyp0f1", of(sp.hyp0f1, 1.5), lambda x: mp.hyp0f1(1.5, x), (0.4, 3.0, -0.5), (), 40),
    Case("hyp1f1", of(sp.hyp1f1, 1.5, 2.5), lambda x: mp.hyp1f1(1.5, 2.5, x), (0.4, 3.0, -0.5), (), 40),
    Case("hyp2f1", of(sp.hyp2f1, 0.5, 1.5, 2.5),
         lambda x: mp.hyp2f1(0.5, 1.5, 2.5, x), (0.4, 0.7, -0.5), (), 40),
    Case("hyperu", of(sp.hyperu, 0.5, 1.5), lambda x: mp.hyperu(0.5, 1.5, x), (0.4, 3.0), (), 100),
    Case("legendre", of(sp.eval_legendre, 4), lambda x: mp.legendre(4, x), (0.4, 0.0, -0.5), (1.0,), 40),
    Case("legendre 0", of(sp.eval_legendre, 0), lambda x: x * 0, (0.4, 0.0, -0.5), (1.0,)),
    Case("chebyt", of(sp.eval_chebyt, 4), lambda x: mp.chebyt(4, x), (0.4, 0.0, -0.5), (1.0,), 40),
    Case("chebyu", of(sp.eval_chebyu, 4), lambda x: mp.chebyu(4, x), (0.4, 0.0, -0.5), (1.0,), 40),
    Case("hermite", of(sp.eval_hermite, 4), lambda x: mp.hermite(4, x), (0.4, 0.0, -0.5), (3.0,), 40),
    Case("hermitenorm", of(sp.eval_hermitenorm, 3), lambda x: x**3 - 3 * x, (0.4, 0.0, -0.5), (3.0,), 40),
    Case("laguerre", of(sp.eval_laguerre, 4), lambda x: mp.laguerre(4, 0, x), (0.4, 0.0, -0.5), (3.0,), 40),
    Case("genlaguerre", of(sp.eval_genlaguerre, 4, 1.5),
         lambda x: mp.laguerre(4, 1.5, x), (0.4, 0.0, -0.5), (3.0,), 40),
    Case("gegenbauer", of(sp.eval_gegenbauer, 4, 1.5),
         lambda x: mp.gegenbauer(4, 1.5, x), (0.4, 0.0, -0.5), (1.0,), 40),
    Case("jacobi", of(sp.eval_jacobi, 4, 1.5, 0.5),
         lambda x: mp.jacobi(4, 1.5, 0.5, x), (0.4, 0.0, -0.5), (1.0,), 60),
    Case("multigammaln", lambda x: special.multigammaln(x, 3),
         lambda x: sum(mp.log(mp.gamma(x - half * j)) for j in range(3)), (1.5, 3.0), (), 40),
    Case("softplus", sp.softplus, lambda x: mp.log1p(mp.exp(x)), (-1.0, 0.0, 3.0), (50.0, -700.0)),
    Case("sinc", special.sinc, mp.sincpi, (-1.1, 0.3), (), 40),
    # z w(z) comes near to i/√π far out
    Case("voigt x", lambda x: sp.voigt_profile(x, 0.5, 0.7), lambda x: voigt(x, 0.5, 0.7), (-1.2, 0.7),
         (0.0, 5.0), 1e3),
    Case("voigt sigma", lambda s: sp.voigt_profile(0.3, s, 0.7), lambda s: voigt(0.3, s, 0.7), (0.5, 2.0),
         (), 1e3),
    Case("voigt gamma", of(sp.voigt_profile, 0.3, 0.5), lambda g: voigt(0.3, 0.5, g), (0.5, 2.0), (), 1e3),
]  # fmt: skip

#: Bessel functions of whole order, which take mpmath long
SLOW = {"k0", "k1", "k0e", "k1e", "kn", "y0", "y1", "yn"}


def exact_slope(f, x, digits):
    """Return a derivative by mpmath, a third of the digits being for the step."""
    with mp.workdps(digits):
        x = mp.mpf(float(x))
        return float(mp.re(mp.diff(f, x, h=mp.mpf(10) ** -(digits // 3) * (abs(x) or 1))))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
class TestCases:
    def test_derivative_is_mpmaths(self, case):
        x = np.array(case.inner + case.ends)
        value, tangent = ad.jvp(case.function, (x,), (np.ones_like(x),))
        np.testing.assert_array_equal(value, case.function(x))
        np.testing.assert_array_equal(ad.vjp(case.function, x)[1](np.ones_like(value))[0], tangent)
        if case.exact is None:
            return
        for xi, ti in zip(x, tangent, strict=True):
            want = exact_slope(case.exact, xi, 36 if case.name in SLOW else 100)

            allowed = case.tol * EPS * abs(want) + (EPS if xi == 0 else 0)
            assert abs(ti - want) <= allowed, (xi, ti, want, abs(ti - want) / abs(want) / EPS)

    def test_second_order_and_modes(self, case):
        check_derivative(case.function, np.array(case.inner))

    def test_types_and_chunks(self, case):
        x = np.array(case.inner)
        slope = ad.jvp(case.function, (x,), (np.ones_like(x),))[1]
        for mode in ("forward", "reverse"):
            np.testing.assert_allclose(ad.jacobian(case.function, mode=mode)(x), np.diag(slope), rtol=1e-14)
        y = x.astype("f")
        value, tangent = ad.jvp(case.function, (y,), (np.ones_like(y),))
        pulled = ad.vjp(case.function, y)[1](np.ones_like(value))[0]
        assert pulled.dtype == np.dtype("f")
        assert tangent.dtype == value.dtype
        np.testing.assert_allclose(tangent, slope, rtol=3e-4, atol=1e-5)  # of 24 bits in derivatives near 0
        for empty in (x[:0], x[:1, None] * 1):
            assert ad.grad(lambda x: np.sum(case.function(x)))(empty).shape == empty.shape


Z = np.array([0.3 + 0.4j, 0.7 + 0.2j, 0.5 - 0.6j])
ANALYTIC = {
    "erf": sp.erf, "erfc": sp.erfc, "erfcx": sp.erfcx, "erfi": sp.erfi, "dawsn": sp.dawsn, "wofz": sp.wofz,
    "gamma": sp.gamma, "log1p": sp.log1p, "expm1": sp.expm1, "exp1": sp.exp1, "expi": sp.expi,
    "jv": of(sp.jv, 1.5), "yv": of(sp.yv, 1.5), "iv": of(sp.iv, 1.5), "kv": of(sp.kv, 1.5),
    "kve": of(sp.kve, 1.5),
    "hankel1": of(sp.hankel1, 1.5), "hankel2": of(sp.hankel2, 1.5), "hankel1e": of(sp.hankel1e, 1.5),
    "hankel2e": of(sp.hankel2e, 1.5), "hyp0f1": of(sp.hyp0f1, 1.5), "hyp1f1": of(sp.hyp1f1, 1.5, 2.5),
    "hyp2f1": of(sp.hyp2f1, 0.5, 1.5, 2.5), "lambertw": sp.lambertw, "wrightomega": sp.wrightomega,
    "xlogy": of(sp.xlogy, 1.5), "airy": lambda z: sp.airy(z)[0], "spence": sp.spence,
    "spherical_jn": of(special.spherical_jn, 2), "loggamma": sp.loggamma, "rgamma": sp.rgamma,
    "shi": lambda z: sp.shichi(z)[0], "chi": lambda z: sp.shichi(z)[1],
}  # fmt: skip
#: whose second derivative is not in SciPy for complex numbers
FIRST_ONLY = {"gamma", "loggamma", "rgamma"}


@pytest.mark.parametrize("name", ANALYTIC)
def test_complex(name):
    f = ANALYTIC[name]
    check_derivative(f, Z, order=1 if name in FIRST_ONLY else 2)
    t = ad.jvp(f, (Z,), (np.ones(3, complex),))[1]
    np.testing.assert_allclose(ad.vjp(f, Z)[1](np.ones(3, complex))[0], np.conj(t), rtol=1e-13)


@pytest.mark.parametrize(
    "f", [special.logsumexp, special.softmax, special.log_softmax], ids=lambda f: f.__name__
)
def test_sums_of_complex_exponentials(f):
    check_derivative(f, Z)
    check_derivative(lambda z: f(z, axis=1), np.stack([Z, 1j - Z]))


@pytest.mark.parametrize("options", [{"b": 1j * Z}, {"b": Z.real}, {"return_sign": True}], ids=list)
def test_weighted_sums_of_complex_exponentials_are_refused(options):
    with pytest.raises(
        TraceError, match=r"logsumexp: weights b and return_sign .* real arrays only.*np\.log"
    ):
        ad.vjp(lambda z: special.logsumexp(z, **options), Z)


def test_not_analytic():
    with pytest.raises(NoRuleError, match=r"ive.*not analytic"):
        ad.jvp(lambda z: sp.ive(1.5, z), (Z,), (Z,))
    with pytest.raises(NoRuleError, match=r"psi: has no derivative rule in complex numbers"):
        ad.jvp(sp.psi, (Z,), (Z,))


@pytest.mark.parametrize(
    ("f", "args"),
    [(sp.jv, (1.5, 2.0)), (sp.kv, (1.5, 2.0)), (sp.fdtr, (1.5, 2.0, 0.3)), (sp.betainc, (1.5, 2.0, 0.3)),
     (sp.hyp2f1, (1.5, 2.0, 0.3, 0.2)), (sp.eval_legendre, (2.0, 0.3)), (sp.ellipkinc, (0.2, 0.3)),
     (special.polygamma, (2.0, 0.3)), (sp.expn, (2.0, 0.3))],
)  # fmt: skip
def test_derivatives_in_an_order_are_refused(f, args):
    which = 1 if f is sp.ellipkinc else 0
    with pytest.raises(NoRuleError, match="has no derivative rule in"):
        ad.grad(f, argnums=which)(*args)
    with pytest.raises(NoRuleError, match="has no derivative rule in"):
        ad.jvp(lambda v: f(*(v if i == which else a for i, a in enumerate(args))), (args[which],), (1.0,))


@pytest.mark.parametrize(
    ("f", "orders"),
    [(sp.kn, (2.5,)), (sp.yn, (2.5,)), (sp.yn, (-2.5,)), (sp.expn, (2.5,)), (sp.expn, (0.5,)),
     (sp.bdtr, (2.5, 5.5)), (sp.bdtrc, (2.5, 5.5)), (sp.bdtri, (2.5, 5.5)),
     (sp.nbdtr, (2.5, 5.5)), (sp.nbdtrc, (2.5, 5.5)), (sp.nbdtri, (2.5, 5.5)), (sp.pdtri, (2.5,))],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:floating point number truncated", "ignore:non-integer arg n")
def test_truncated_orders_are_truncated_in_the_slope(f, orders):
    """SciPy warns that it truncates them: the slope is that of the value."""
    check_derivative(lambda x: f(*orders, x), np.array([0.3, 0.6]))


def test_every_rule_is_in_a_table():
    tested = Path(__file__).read_text(encoding="utf-8")  # each is named as sp.name
    ours = [u for n, u in vars(sp).items() if isinstance(u, np.ufunc) and u in UFUNCS and u.__name__ == n]
    constant = {"gammasgn", "round"}
    for u in ours:
        if u.__name__ not in constant and not isinstance(getattr(np, u.__name__, None), np.ufunc):
            assert f"sp.{u.__name__}" in tested, u.__name__


class TestInverses:
    @pytest.mark.parametrize(
        ("inverse", "forward", "y"),
        [(of(sp.gammaincinv, 2.5), of(sp.gammainc, 2.5), 0.4),
         (of(sp.gammainccinv, 2.5), of(sp.gammaincc, 2.5), 0.4),
         (of(sp.betaincinv, 2.5, 1.5), of(sp.betainc, 2.5, 1.5), 0.4),
         (of(sp.betainccinv, 2.5, 1.5), of(sp.betaincc, 2.5, 1.5), 0.4),
         (of(sp.chdtri, 2.5), of(sp.chdtrc, 2.5), 0.4), (of(sp.fdtri, 3.0, 4.5), of(sp.fdtr, 3.0, 4.5), 0.4),
         (of(sp.stdtrit, 3.5), of(sp.stdtr, 3.5), 0.3), (of(sp.pdtri, 3.0), of(sp.pdtr, 3.0), 0.4),
         (of(sp.bdtri, 3.0, 7), of(sp.bdtr, 3.0, 7), 0.4), (of(sp.nbdtri, 3, 7), of(sp.nbdtr, 3, 7), 0.4),
         (of(sp.gdtrix, 1.3, 2.5), of(sp.gdtr, 1.3, 2.5), 0.4),
         (lambda a: sp.gdtrix(a, 2.5, 0.4), lambda x: sp.gdtrix(1.0, 2.5, 0.4) / x, 1.3),
         (sp.ndtri_exp, sp.log_ndtr, -3.0)],
    )  # fmt: skip
    def test_slopes_are_reciprocal(self, inverse, forward, y):
        x, slope = ad.jvp(inverse, (y,), (1.0,))
        np.testing.assert_allclose(slope * ad.jvp(forward, (x,), (1.0,))[1], 1, rtol=100 * EPS)
        check_derivative(inverse, y)


class TestBroadcasting:
    @pytest.mark.parametrize("f", [sp.beta, sp.betaln, sp.xlogy, sp.xlog1py, sp.rel_entr, sp.kl_div,
                                   sp.boxcox,
                                   sp.pseudo_huber, sp.huber, sp.owens_t, sp.poch, sp.powm1])  # fmt: skip
    def test_both_arguments(self, f, rng):
        x, y = rng.uniform(0.5, 1.5, 3), rng.uniform(2.0, 3.0, (2, 1))
        check_derivative(f, x, y)
        check_derivative(f, y, x)

    def test_orders_may_be_arrays(self):
        x = np.array([0.3, 0.7])
        check_derivative(lambda x: sp.jv(np.array([[0], [1], [2]]), x), x)
        check_derivative(lambda x: sp.eval_legendre(np.array([[0], [1], [2]]), x), x)
        check_derivative(lambda x: special.polygamma(np.array([[0], [1], [2]]), x), x)
        check_derivative(lambda x: sp.expn(np.array([[0], [1], [2]]), x), x)


class TestZeros:
    """x log y and its kin at x = 0, with a zero share: no NaN arises."""

    @pytest.mark.parametrize("mode", ["forward-over-forward", "forward-over-reverse", "reverse-over-forward",
                                      "reverse-over-reverse"])  # fmt: skip
    def test_no_nan_in_the_other_argument(self, mode):
        with np.errstate(all="ignore"):
            for f in (sp.xlogy, sp.rel_entr):
                g = lambda y: np.sum(f(np.array([0.0, 1.0]), y))  # noqa: B023, E731
                y = np.array([0.0, 2.0])
                sign = 1 if f is sp.xlogy else -1
                assert ad.grad(g)(y).tolist() == [0, sign * 0.5]
                assert ad.hvp(g, y, np.ones(2), mode=mode).tolist() == [0, sign * -0.25]
            assert ad.grad(lambda y: sp.kl_div(0.0, y))(0.0) == 1.0

    def test_kinks_of_scaled_bessel_functions(self):
        assert ad.grad(sp.i0e)(0.0) == 0.0
        assert ad.grad(sp.i1e)(0.0) == 0.5


class TestSums:
    X = np.array([[0.3, -1.2, 2.0], [0.9, -0.5, 1.4]])

    @pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), (1,)])
    def test_values_and_derivatives(self, axis):
        for f, g in ((special.logsumexp, sp.logsumexp), (special.softmax, sp.softmax),
                     (special.log_softmax, sp.log_softmax)):  # fmt: skip
            ours = lambda x: f(x, axis=axis)  # noqa: B023, E731
            np.testing.assert_array_equal(ad.jvp(ours, (self.X,), (self.X,))[0], g(self.X, axis=axis))
            np.testing.assert_array_equal(ours(self.X), g(self.X, axis=axis))
            check_derivative(ours, self.X)
            forward = ad.jacobian(ours, mode="forward")(self.X)
            np.testing.assert_allclose(
                ad.jacobian(ours, mode="reverse")(self.X), forward, rtol=1e-13, atol=1e-16
            )
            x32 = self.X.astype("f")
            assert ad.vjp(ours, x32)[1](ours(x32))[0].dtype == np.dtype("f")

    def test_large_entries(self):
        x = np.array([1e9, 1e9 - 1])
        want = [1 / (1 + np.exp(-1)), 1 / (1 + np.e)]
        np.testing.assert_allclose(ad.grad(special.logsumexp)(x), want, rtol=4 * EPS)

    def test_keepdims(self):
        f = lambda x: special.logsumexp(x, axis=1, keepdims=True)  # noqa: E731
        assert ad.jvp(f, (self.X,), (self.X,))[1].shape == (2, 1)
        check_derivative(f, self.X)

    def test_weights_and_signs(self, rng):
        a, b = rng.standard_normal((2, 3)), np.array([[1.0, 2.0, -0.5]])
        f = lambda a, b: special.logsumexp(a, axis=1, b=b)  # noqa: E731
        np.testing.assert_array_equal(ad.jvp(f, (a, b), (a, b))[0], sp.logsumexp(a, axis=1, b=b))
        check_derivative(f, a, b)
        value, sign = ad.jvp(lambda a: special.logsumexp(a, b=-b, return_sign=True), (a,), (a,))[0]
        assert (value, sign) == sp.logsumexp(a, b=-b, return_sign=True)
        check_derivative(lambda a: special.logsumexp(a, b=-b, axis=0, return_sign=True)[0], a)
        assert np.isnan(ad.value_and_grad(lambda a: special.logsumexp(a, b=-np.abs(b)))(a)[0])

    def test_weights_of_zero(self):
        a = np.array([1.0, 1e4, 0.5])
        b = np.array([1.0, 0.0, 2.0])
        g = ad.grad(lambda a: special.logsumexp(a, b=b))(a)
        e = b[[0, 2]] * np.exp(a[[0, 2]])
        np.testing.assert_allclose(g, [e[0] / e.sum(), 0, e[1] / e.sum()], rtol=8 * EPS)

    @pytest.mark.lenient
    def test_infinities(self):
        g = ad.grad(special.logsumexp)
        assert g(np.array([-np.inf, -np.inf])).tolist() == [0.5, 0.5]
        assert g(np.array([-np.inf, 3.0])).tolist() == [0, 1]

    def test_lists_of_traced_values(self):
        assert ad.grad(lambda x: special.logsumexp([x, 2 * x]))(0.0) == 1.5
        assert special.logsumexp([0.0, 0.0]) == np.log(2)
        assert special.erf is sp.erf


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_bessel_functions_of_the_second_kind_rise_from_their_pole(mode):
    functions = [sp.y0, sp.y1, *(lambda x, v=v: sp.yv(v, x) for v in (0, 0.5, 3)), lambda x: sp.yn(2, x)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slopes = [ad.jacobian(f, mode)(0.0) for f in functions]
    assert slopes == [np.inf] * len(functions)
