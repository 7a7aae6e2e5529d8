"""Rules of the discrete Fourier transforms: linear maps whose transposes are transforms again.

With the real inner product Re⟨u, v⟩ the transpose of a transform is its conjugate transpose; that of a
transform of real numbers is its real part.
"""

import operator

import numpy as np

from mercer.autodiff.array_methods import ndim_of, shape_of, write_into
from mercer.autodiff.rules import Primitive, cast, composite, no_derivative
from mercer.autodiff.rules_shape import normal_axis
from mercer.autodiff.trace import stacked

no_derivative(np.fft.fftfreq, np.fft.rfftfreq)

#: The norm of the transpose: fft with "backward" has no factor, and so does its transpose.
_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}

fft_of = Primitive(
    lambda x, axis, norm: np.fft.fft(x, axis=axis, norm=norm),
    jvp=[lambda t, ans, x, axis, norm: fft_of(t, axis, norm)],
    vjp=[lambda g, ans, x, axis, norm: cast(ifft_of(g, axis, _OTHER[norm]), x)],
    name="np.fft.fft",
    batched=True,
)
ifft_of = Primitive(
    lambda x, axis, norm: np.fft.ifft(x, axis=axis, norm=norm),
    jvp=[lambda t, ans, x, axis, norm: ifft_of(t, axis, norm)],
    vjp=[lambda g, ans, x, axis, norm: cast(fft_of(g, axis, _OTHER[norm]), x)],
    name="np.fft.ifft",
    batched=True,
)


def _by_frequency(n, axis, dtype, ends, inner):
    """Return factors for the frequencies 0, …, n // 2: `ends` where a frequency is its own mirror image."""
    factors = np.full(n // 2 + 1, inner, dtype)
    factors[0] = ends
    if n % 2 == 0:
        factors[-1] = ends
    return factors.reshape((-1, *(1,) * (-axis - 1)))


def _real_type(x):
    return np.empty(0, x.dtype).real.dtype


def _rfft_vjp(g, ans, x, axis, norm):
    n = shape_of(x)[axis]
    return cast(irfft_of(g * _by_frequency(n, axis, _real_type(g), 1, 0.5), n, axis, _OTHER[norm]), x)


def _irfft_vjp(g, ans, x, n, axis, norm):
    full = rfft_of(g, axis, _OTHER[norm])
    return cast(full * _by_frequency(n, axis, _real_type(g), 1, 2), x)


rfft_of = Primitive(
    lambda x, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
    jvp=[lambda t, ans, x, axis, norm: rfft_of(t, axis, norm)],
    vjp=[_rfft_vjp],
    name="np.fft.rfft",
    batched=True,
)
irfft_of = Primitive(
    lambda x, n, axis, norm: np.fft.irfft(x, n, axis=axis, norm=norm),
    jvp=[lambda t, ans, x, n, axis, norm: irfft_of(t, n, axis, norm)],
    vjp=[_irfft_vjp],
    name="np.fft.irfft",
    batched=True,
)


def _norm(norm):
    norm = "backward" if norm is None else norm
    if norm not in _OTHER:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm


def _fitted(a, n, axis):
    """Return `a` cut or filled up with zeros to n entries along an axis."""
    have = shape_of(a)[axis]
    if n is None or n == have:
        if have < 1:
            raise ValueError(f"Invalid number of data points ({have}) specified.")
        return a
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"Invalid number of data points ({n}) specified.")
    if n < have:
        return a[(*(slice(None),) * axis, slice(n))]
    shape = list(shape_of(a))
    shape[axis] = n - have
    return np.concatenate((a, np.zeros(shape, a.dtype)), axis)


def _complex_transform(primitive):
    def transform(a, n=None, axis=-1, norm=None, out=None):
        a = stacked(a)
        axis = normal_axis(axis, ndim_of(a))
        return write_into(out, primitive(_fitted(a, n, axis), axis - ndim_of(a), _norm(norm)))

    return transform


composite(np.fft.fft)(_complex_transform(fft_of))
composite(np.fft.ifft)(_complex_transform(ifft_of))


@composite(np.fft.rfft)
def _rfft(a, n=None, axis=-1, norm=None, out=None):
    a = stacked(a)
    if a.dtype.kind == "c":
        raise TypeError("np.fft.rfft takes real entries; use np.fft.fft")
    axis = normal_axis(axis, ndim_of(a))
    return write_into(out, rfft_of(_fitted(a, n, axis), axis - ndim_of(a), _norm(norm)))


@composite(np.fft.irfft)
def _irfft(a, n=None, axis=-1, norm=None, out=None):
    a = stacked(a)
    axis = normal_axis(axis, ndim_of(a))
    n = 2 * (shape_of(a)[axis] - 1) if n is None else operator.index(n)
    if n < 1:
        raise ValueError(f"Invalid number of data points ({n}) specified.")
    a = _fitted(a, n // 2 + 1, axis)
    return write_into(out, irfft_of(a, n, axis - ndim_of(a), _norm(norm)))


@composite(np.fft.hfft)
def _hfft(a, n=None, axis=-1, norm=None, out=None):
    return np.fft.irfft(np.conj(stacked(a)), n, axis, _OTHER[_norm(norm)], out)


@composite(np.fft.ihfft)
def _ihfft(a, n=None, axis=-1, norm=None, out=None):
    return write_into(out, np.conj(np.fft.rfft(a, n, axis, _OTHER[_norm(norm)])))


def _sizes(a, s, axes):
    """Return the sizes and axes of a transform along several axes, as NumPy reads them."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(ndim_of(a))
    axes = [normal_axis(i, ndim_of(a)) for i in axes]
    sizes = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    return sizes, axes


def _several(transform):
    def f(a, s=None, axes=None, norm=None, out=None):
        a = stacked(a)
        for n, axis in reversed(list(zip(*_sizes(a, s, axes), strict=True))):
            a = transform(a, n, axis, norm)
        return write_into(out, a)

    return f


@composite(np.fft.rfftn)
def _rfftn(a, s=None, axes=None, norm=None, out=None):
    a = stacked(a)
    sizes, axes = _sizes(a, s, axes)
    a = np.fft.rfft(a, sizes[-1], axes[-1], norm)
    for n, axis in list(zip(sizes, axes, strict=True))[-2::-1]:
        a = np.fft.fft(a, n, axis, norm)
    return write_into(out, a)


@composite(np.fft.irfftn)
def _irfftn(a, s=None, axes=None, norm=None, out=None):
    a = stacked(a)
    sizes, axes = _sizes(a, s, axes)
    for n, axis in list(zip(sizes, axes, strict=True))[:-1]:
        a = np.fft.ifft(a, n, axis, norm)
    return np.fft.irfft(a, sizes[-1], axes[-1], norm, out)


def _in_two(transform):
    return lambda a, s=None, axes=(-2, -1), norm=None, out=None: transform(a, s, axes, norm, out)


composite(np.fft.fftn)(_several(np.fft.fft))
composite(np.fft.ifftn)(_several(np.fft.ifft))
for _two, _n in (
    (np.fft.fft2, np.fft.fftn), (np.fft.ifft2, np.fft.ifftn), (np.fft.rfft2, np.fft.rfftn),
    (np.fft.irfft2, np.fft.irfftn),
):  # fmt: skip
    composite(_two)(_in_two(_n))


def _shifted(sign):
    def f(x, axes=None):
        x = stacked(x)
        axes = tuple(range(ndim_of(x))) if axes is None else axes if ndim_of(axes) else (axes,)
        shifts = [shape_of(x)[i] // 2 if sign > 0 else -(shape_of(x)[i] // 2) for i in axes]
        return np.roll(x, shifts, tuple(axes))

    return f


composite(np.fft.fftshift)(_shifted(1))
composite(np.fft.ifftshift)(_shifted(-1))
