"""What autograd's examples differentiate, written with ``import numpy as np``: what works as it stands.

Each function uses the features of the example of that name in autograd's repository, at a small size. CHANGED
says what had to be written otherwise than with `numpy` in the place of `autograd.numpy`.
"""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.special

import mercer.autodiff as ad
from mercer.autodiff.errors import TraceError
from mercer.testing import check_derivative

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 2))
LABELS = np.array([0, 1, 1, 0, 2, 1])
ONE_HOT = np.eye(3)[LABELS]
WEIGHTS = RNG.standard_normal(40)
SEQUENCE = RNG.standard_normal((5, 2, 3))
IMAGES = RNG.standard_normal((2, 1, 6, 6))
FIELD = RNG.standard_normal((2, 5, 5))

logsumexp = ad.scipy.special.logsumexp


def normal_logpdf(x, mean, scale):
    return -0.5 * ((x - mean) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def sigmoid(x):
    return 0.5 * (np.tanh(x) + 1)


def layers(parameters, x):
    """Return the outputs of tanh layers, the last without tanh."""
    for W, b in parameters:
        outputs = np.dot(x, W) + b
        x = np.tanh(outputs)
    return outputs


def network(*sizes):
    """Return weights and biases as a list of pairs."""
    return [(RNG.standard_normal((m, n)), RNG.standard_normal(n)) for m, n in itertools.pairwise(sizes)]


# -- functions of the examples --------------------------------------------------------------------------


def tanh(x):
    y = np.exp(-2.0 * x)
    return (1.0 - y) / (1.0 + y)


def slope_of(f):
    return lambda x: ad.jvp(f, (x,), (np.ones_like(x),))[1]


def tanh_third_derivative(x):
    f = tanh
    for _ in range(3):
        f = slope_of(f)
    return f(x)


def sinusoid(x):
    """The sine by its series, a loop that a traced number ends."""
    total = term = x
    i = 0
    while np.abs(term) > 1e-12:
        term = -term * x * x / ((2 * i + 3) * (2 * i + 2))
        total = total + term
        i += 1
    return total


def logistic_regression(w):
    p = sigmoid(np.dot(X, w))
    targets = LABELS == 1
    return -np.sum(np.log(p * targets + (1 - p) * (1 - targets)))


def neural_net(parameters):
    outputs = layers(parameters, X)
    log_p = outputs - logsumexp(outputs, axis=1, keepdims=True)
    prior = -sum(np.sum(W**2) + np.sum(b**2) for W, b in parameters) / 2
    return -prior - np.sum(log_p * ONE_HOT)


def neural_net_regression(w):
    hidden = np.tanh(np.dot(X, np.reshape(w[:12], (3, 4))) + w[12:16])
    predicted = np.einsum("nd,dk->nk", hidden, np.reshape(w[16:24], (4, 2)))
    return -np.sum(normal_logpdf(Y, predicted, 0.1 + np.exp(w[24])))


def rnn(p):
    h, loss = np.repeat(p["start"], 2, axis=0), 0.0
    for x in SEQUENCE:
        h = np.tanh(np.dot(np.hstack((x, h, np.ones((2, 1)))), p["change"]))
        outputs = np.dot(np.hstack((h, np.ones((2, 1)))), p["predict"])
        loss = loss - np.sum((outputs - logsumexp(outputs, axis=1, keepdims=True)) * np.abs(x))
    return loss


def lstm(p):
    h, c = np.repeat(p["h"], 2, axis=0), np.repeat(p["c"], 2, axis=0)
    for x in SEQUENCE:
        gates = np.dot(np.concatenate([x, h, np.ones((2, 1))], axis=1), p["gates"])
        change, forget, ingate, outgate = np.split(gates, 4, axis=1)
        c = sigmoid(forget) * c + sigmoid(ingate) * np.tanh(change)
        h = sigmoid(outgate) * np.tanh(c)
    return h


def gmm(p):
    """Mixture of Gaussians with Cholesky factors of the precisions."""
    log_weights = p["log_weights"] - logsumexp(p["log_weights"])
    terms = []
    for log_weight, mean, L in zip(log_weights, p["means"], p["factors"], strict=True):
        root = np.tril(L)
        covariance = np.dot(root, root.T) + np.eye(3)
        centred = X - mean
        mahalanobis = np.sum(centred * np.linalg.solve(covariance, centred.T).T, axis=1)
        terms.append(log_weight - 0.5 * (mahalanobis + np.linalg.slogdet(covariance)[1]))
    return -np.sum(logsumexp(np.vstack(terms), axis=0))


def black_box_svi(q):
    """Monte Carlo estimate of a variational bound."""
    mean, log_std = q[:2], q[2:]
    samples = np.random.RandomState(0).randn(20, 2) * np.exp(log_std) + mean
    mu, log_sigma = samples[:, 0], samples[:, 1]
    target = normal_logpdf(log_sigma, 0, 1.35) + normal_logpdf(mu, 0, np.exp(log_sigma))
    return -(0.5 * 2 * (1.0 + np.log(2 * np.pi)) + np.sum(log_std) + np.mean(target))


def natural_gradient(q):
    """The gradient of the bound, over the Fisher matrix of a diagonal Gaussian."""
    gradient = ad.grad(black_box_svi)(q)
    return np.concatenate([np.exp(2 * q[2:]), np.full(2, 0.5)]) * gradient


def bayesian_neural_net(q):
    """Weights by samples: an axis of networks, products by einsum."""
    w = np.exp(q[1])[None, :] * np.random.RandomState(1).randn(4, 21) + q[0]
    hidden = np.einsum("nd,mdo->mno", X, np.reshape(w[:, :12], (-1, 3, 4))) + np.reshape(
        w[:, 12:16], (-1, 1, 4)
    )
    outputs = np.einsum("mnd,mdo->mno", np.exp(-(hidden**2)), np.reshape(w[:, 16:20], (-1, 4, 1)))
    return -np.mean(np.sum(normal_logpdf(Y[None, :, :1], outputs + w[:, 20:, None], 0.3), axis=(1, 2)))


def mixture_variational_inference(p):
    components = np.reshape(p[:6], (3, 2))
    weights = p[6:9] - logsumexp(p[6:9])
    samples = np.random.RandomState(2).randn(3, 10, 2) + components[:, None, :]
    densities = np.stack([np.sum(normal_logpdf(samples, c, 1.0), axis=-1) for c in components], axis=-1)
    mixed = logsumexp(densities + weights, axis=-1)
    return np.sum(np.exp(weights) * np.mean(mixed - np.sum(samples**4, axis=-1) / 9, axis=1))


def variational_autoencoder(parameters):
    encoder, decoder = parameters
    means, log_std = np.split(layers(encoder, X), 2, axis=1)
    z = means + np.exp(log_std) * np.random.RandomState(3).randn(6, 2)
    logits = layers(decoder, z)
    likelihood = -np.logaddexp(0, -logits * np.where(X > 0, 1, -1))
    return np.mean(np.sum(likelihood, axis=-1)) - np.mean(np.sum(means**2 + np.exp(2 * log_std), axis=1))


def generative_adversarial_net(parameters):
    generator, discriminator = parameters
    fake = layers(generator, np.random.RandomState(4).rand(6, 2))
    on_fake, on_real = layers(discriminator, fake), layers(discriminator, X)
    return np.mean(np.log1p(np.exp(on_fake)) - on_real + np.maximum(on_real, 0))


def convnet(p):
    """Convolution as a product of patches, max pooling, a dense layer."""
    filters, dense = p
    windows = np.lib.stride_tricks.sliding_window_view(IMAGES, (3, 3), axis=(2, 3))
    maps = np.tensordot(windows, filters, axes=([1, 4, 5], [0, 2, 3]))
    maps = np.moveaxis(np.tanh(maps), -1, 1)
    pooled = np.max(np.max(np.reshape(maps, (2, 2, 2, 2, 2, 2)), axis=3), axis=4)
    outputs = np.dot(np.reshape(pooled, (2, 8)), dense)
    return outputs - logsumexp(outputs, axis=1, keepdims=True)


def convolution(p):
    return np.convolve(p[0], np.tanh(p[1]), mode="valid")


def fluidsim(v):
    """Diffusion and projection by rolled grids, then advection by interpolation."""
    vx, vy = v
    p = np.zeros_like(vx)
    divergence = -0.5 * (
        np.roll(vx, -1, axis=1) - np.roll(vx, 1, axis=1) + np.roll(vy, -1, axis=0) - np.roll(vy, 1, axis=0)
    )
    for _ in range(4):
        p = (
            divergence
            + np.roll(p, 1, axis=1)
            + np.roll(p, -1, axis=1)
            + np.roll(p, 1, axis=0)
            + np.roll(p, -1, axis=0)
        ) / 4
    vx = vx - 0.5 * (np.roll(p, -1, axis=1) - np.roll(p, 1, axis=1))
    rows, columns = np.meshgrid(np.arange(5.0), np.arange(5.0), indexing="ij")
    at_x, at_y = (rows - vx).ravel(), (columns - vy).ravel()
    left, top = np.floor(at_x).astype(int), np.floor(at_y).astype(int)
    rw, bw = at_x - left, at_y - top
    w, r, t, b = left % 5, (left + 1) % 5, top % 5, (top + 1) % 5
    flat = (1 - rw) * ((1 - bw) * vx[w, t] + bw * vx[w, b]) + rw * ((1 - bw) * vx[r, t] + bw * vx[r, b])
    return np.reshape(flat, (5, 5))


def wing(occlusion):
    """Logistic occlusion of a flow, drag and lift."""
    solid = 1 / (1 + np.exp(-occlusion))
    vx = np.ones((5, 5)) * (1 - solid)
    vx = np.where(np.arange(5)[:, None] > 3, vx, np.roll(vx, 1, axis=0) * (1 - solid))
    return np.mean(vx) / (0.1 + np.mean((np.roll(vx, 1, 0) - vx) ** 2))


def covariance(theta, A, B):
    differences = np.expand_dims(A / np.exp(theta[1:]), 1) - np.expand_dims(B / np.exp(theta[1:]), 0)
    return np.exp(theta[0]) * np.exp(-0.5 * np.sum(differences**2, axis=2))


def gaussian_process(theta):
    K = covariance(theta[1:], X, X) + (1e-2 + np.exp(theta[0])) * np.eye(6)
    y = Y[:, 0]
    return 0.5 * np.dot(y, np.linalg.solve(K, y)) + 0.5 * np.linalg.slogdet(K)[1]


def bayesian_optimization(x):
    """Expected improvement at candidates."""
    theta = np.zeros(4)
    K, cross = covariance(theta, X, X) + 0.1 * np.eye(6), covariance(theta, x, X)
    mean = np.dot(cross, np.linalg.solve(K, Y[:, 0]))
    variance = 1 - np.diag(np.dot(cross, np.linalg.solve(K, cross.T)))
    z = (mean - 0.5) / np.sqrt(variance)
    cdf = 0.5 * (1 + scipy.special.erf(z / np.sqrt(2)))
    return np.sqrt(variance) * (z * cdf + np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def deep_gaussian_process(p):
    hidden, theta = np.reshape(p[:12], (6, 2)), p[12:15]
    value = gaussian_process(np.concatenate([p[15:17], np.zeros(3)]))
    K = covariance(theta, hidden, hidden) + 0.1 * np.eye(6)
    L = np.linalg.cholesky(K)
    return value + np.sum(np.log(np.diag(L))) + 0.5 * np.sum(np.linalg.solve(L, Y) ** 2)


def gplvm(p):
    latent = np.reshape(p[:12], (6, 2))
    K = covariance(p[12:15], latent, latent) + 0.1 * np.eye(6)
    return np.trace(np.dot(Y.T, np.linalg.solve(K, Y))) + 2 * np.linalg.slogdet(K)[1] + np.sum(latent**2)


def rkhs(p):
    """Logistic loss and the norm in a kernel's space."""
    K = np.exp(-0.5 * np.sum((X[:, None] - X[None]) ** 2, axis=-1))
    f = np.dot(K, p)
    return np.sum(np.log1p(np.exp(-f * np.sign(Y[:, 0])))) + 0.1 * np.dot(p, np.dot(K, p))


def hmm_em(p):
    """Log-likelihood of a hidden Markov chain by the forward recursion."""
    initial, transition, emission = (q - logsumexp(q, axis=-1, keepdims=True) for q in p)
    alpha = initial + emission[:, LABELS[0]]
    for symbol in LABELS[1:]:
        alpha = logsumexp(alpha[:, None] + transition, axis=0) + emission[:, symbol]
    return logsumexp(alpha)


def ica(W):
    sources = np.dot(X, W)
    return np.sum(np.log(np.cosh(sources))) - 6 * np.linalg.slogdet(W)[1]


def negative_binomial_maxlike(p):
    counts, (r, q) = np.arange(1.0, 7), np.exp(p)
    q = q / (1 + q)
    gammaln = scipy.special.gammaln
    return np.sum(
        gammaln(counts + r) - gammaln(counts + 1) - gammaln(r) + counts * np.log(q) + r * np.log(1 - q)
    )


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def ode_net(p):
    """Runge and Kutta's method in place of SciPy's odeint, which has a pullback of its own in autograd."""
    y, h = p["start"], 0.1

    def slope(y):
        return np.dot(np.tanh(np.dot(y**3, p["A"])), p["B"])

    for _ in range(5):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
    return y


@ad.primitive(vjp=lambda g, ans, x: g * np.exp(x - own_logsumexp(x)))
def own_logsumexp(x):
    """Log of a sum of exponentials with a rule of its own."""
    largest = np.max(x)
    return largest + np.log(np.sum(np.exp(x - largest)))


def define_gradient(y):
    return own_logsumexp(y**2)


def dot_graph(x, y):
    """The function whose graph the example draws."""
    return np.log(x * x + y) * np.sin(x) - np.power(y, 1.5)


#: Name, function, arguments.
EXAMPLES = [
    ("bayesian_neural_net", bayesian_neural_net, RNG.standard_normal((2, 21)) / 3),
    ("bayesian_optimization", bayesian_optimization, RNG.standard_normal((3, 3))),
    ("black_box_svi", black_box_svi, np.array([-0.3, 0.4, -1.0, -0.7])),
    ("convnet", convnet, (RNG.standard_normal((1, 2, 3, 3)), RNG.standard_normal((8, 3)))),
    ("convolution", convolution, (RNG.standard_normal(9), RNG.standard_normal(4))),
    ("deep_gaussian_process", deep_gaussian_process, RNG.standard_normal(17) / 2),
    ("define_gradient", define_gradient, np.array([1.5, 0.3, -0.8])),
    ("dot_graph", dot_graph, 1.3, 0.7),
    ("fluidsim", fluidsim, FIELD),
    ("gaussian_process", gaussian_process, np.array([0.1, 0.2, -0.1, 0.3, 0.0])),
    ("generative_adversarial_net", generative_adversarial_net, [network(2, 4, 3), network(3, 4, 1)]),
    (
        "gmm",
        gmm,
        {
            "log_weights": WEIGHTS[:2],
            "means": WEIGHTS[2:8].reshape(2, 3),
            "factors": WEIGHTS[8:26].reshape(2, 3, 3),
        },
    ),
    ("gplvm", gplvm, RNG.standard_normal(15)),
    ("hmm_em", hmm_em, [RNG.standard_normal(2), RNG.standard_normal((2, 2)), RNG.standard_normal((2, 3))]),
    ("ica", ica, RNG.standard_normal((3, 3))),
    ("logistic_regression", logistic_regression, WEIGHTS[:3]),
    ("lstm", lstm, {"h": WEIGHTS[None, :2], "c": WEIGHTS[None, 2:4], "gates": RNG.standard_normal((6, 8))}),
    ("mixture_variational_inference", mixture_variational_inference, WEIGHTS[:9]),
    ("natural_gradient_black_box_svi", natural_gradient, np.array([-0.3, 0.4, -1.0, -0.7])),
    ("negative_binomial_maxlike", negative_binomial_maxlike, np.array([0.4, -0.2])),
    ("neural_net", neural_net, network(3, 4, 3)),
    ("neural_net_regression", neural_net_regression, WEIGHTS[:25]),
    (
        "ode_net",
        ode_net,
        {"start": WEIGHTS[:2], "A": WEIGHTS[2:8].reshape(2, 3), "B": WEIGHTS[8:14].reshape(3, 2)},
    ),
    ("rkhs", rkhs, WEIGHTS[:6]),
    (
        "rnn",
        rnn,
        {
            "start": WEIGHTS[None, :2],
            "change": RNG.standard_normal((6, 2)),
            "predict": RNG.standard_normal((3, 3)),
        },
    ),
    ("rosenbrock", rosenbrock, np.array([-0.5, 0.8])),
    ("sinusoid", sinusoid, 0.9),
    ("tanh", tanh, np.linspace(-2, 2, 5)),
    ("tanh, third derivative", tanh_third_derivative, np.linspace(-2, 2, 5)),
    ("variational_autoencoder", variational_autoencoder, [network(3, 4, 4), network(2, 4, 3)]),
    ("wing", wing, FIELD[0]),
]
#: What is not plain NumPy in the example or is written otherwise here, and why.
CHANGED = {
    "bayesian_neural_net": "scipy.stats",
    "bayesian_optimization": "scipy.stats",
    "black_box_svi": "scipy.stats",
    "convnet": "a convolution that autograd brings (autograd.scipy.signal)",
    "convolution": "a convolution that autograd brings (autograd.scipy.signal)",
    "deep_gaussian_process": "scipy.stats",
    "define_gradient": "how a rule is given",
    "gaussian_process": "scipy.stats",
    "gmm": "scipy.stats; logsumexp from ad.scipy",
    "gplvm": "scipy.stats",
    "hmm_em": "logsumexp from ad.scipy",
    "mixture_variational_inference": "scipy.stats; logsumexp from ad.scipy",
    "natural_gradient_black_box_svi": "scipy.stats",
    "neural_net": "logsumexp from ad.scipy",
    "neural_net_regression": "scipy.stats",
    "ode_net": "scipy.integrate.odeint is not NumPy",
    "rnn": "logsumexp from ad.scipy",
    "variational_autoencoder": "scipy.stats",
}


@pytest.mark.parametrize(("f", "args"), [pytest.param(f, args, id=name) for name, f, *args in EXAMPLES])
def test_example(f, args):
    check_derivative(f, *args)


def test_how_many_work_as_they_stand():
    assert set(CHANGED) <= {name for name, *_ in EXAMPLES}
    assert (len(EXAMPLES), len(EXAMPLES) - len(CHANGED)) == (31, 13)


# -- scipy.optimize -------------------------------------------------------------------------------------


def rosen(x):
    """SciPy's scipy.optimize.rosen, which itself turns its argument into a plain array first."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0, axis=0)


@pytest.mark.parametrize(
    "method", ["BFGS", "L-BFGS-B", "CG", "Newton-CG", "trust-ncg", "trust-krylov", "trust-exact"]
)
@pytest.mark.parametrize("n", [2, 5])
def test_minimize_takes_the_derivatives(method, n):
    options = {"jac": ad.grad(rosen)}
    if method in ("Newton-CG", "trust-ncg", "trust-krylov"):
        options["hessp"] = lambda x, v: ad.hvp(rosen, x, v)
    if method == "trust-exact":
        options["hess"] = ad.hessian(rosen)
    start = np.array([1.3, 0.7, 0.8, 1.9, 1.2])[:n]
    result = scipy.optimize.minimize(scipy.optimize.rosen, start, method=method, **options)
    assert result.success, result.message
    # A gradient below 1e-4 (SciPy's largest tolerance) over the Hessian's least eigenvalue, about 0.4 at 1.
    np.testing.assert_allclose(result.x, 1.0, atol=2e-3)


def test_value_and_gradient_in_one_call():
    result = scipy.optimize.minimize(ad.value_and_grad(rosen), [1.3, 0.7, 0.8], jac=True, method="L-BFGS-B")
    np.testing.assert_allclose(result.x, 1.0, atol=2e-3)


def test_rosenbrock_has_scipys_derivatives():
    x, v = np.random.default_rng(5).standard_normal((2, 7))
    np.testing.assert_allclose(ad.grad(rosen)(x), scipy.optimize.rosen_der(x), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(ad.hessian(rosen)(x), scipy.optimize.rosen_hess(x), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(
        ad.hvp(rosen, x, v), scipy.optimize.rosen_hess_prod(x, v), rtol=1e-11, atol=1e-10
    )


def test_what_scipy_makes_an_array_is_refused():
    """No silent zero: SciPy's own Rosenbrock function calls np.asarray."""
    with pytest.raises(TraceError, match="asarray"):
        ad.grad(scipy.optimize.rosen)(np.ones(3))


def test_least_squares_takes_the_jacobian():
    t = np.linspace(0, 3, 20)
    y = 2.0 * np.exp(-1.3 * t) + 0.5

    def residuals(p):
        return p[0] * np.exp(-p[1] * t) + p[2] - y

    result = scipy.optimize.least_squares(residuals, [1.0, 1.0, 0.0], jac=ad.jacobian(residuals))
    np.testing.assert_allclose(result.x, [2.0, 1.3, 0.5], rtol=1e-6)


# -- what autograd's own tests differentiate --------------------------------------------------------------

A, B, V = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 3)), RNG.standard_normal(3)
POSITIVE = np.abs(V) + 0.5

#: What a test is about, function, arguments.
TESTED = [
    ("fan-out", lambda x: np.sin(np.sin(x) + np.sin(x)), 0.7),
    ("constant output", lambda x: 1.0, 0.7),
    ("identity", lambda x: x, 0.7),
    ("a branch on a value", lambda x: np.exp(x) if x > 0.5 else x**2, 0.7),
    ("a dictionary", lambda d: np.sum(d["a"] * np.sin(d["b"])) * d["c"], {"a": V, "b": A, "c": 2.0}),
    ("a nested list", lambda t: t[0] * np.sum(t[1][0]) + t[1][1] ** 2, [0.3, [V, 1.2]]),
    ("indices with duplicates", lambda x: x[[0, 2, 2, 0]] ** 2, V),
    ("a mask", lambda x: x[V > 0] ** 2, V),
    ("slices and new axes", lambda x: x[None, ::-1, 1:] * x[:, None, :2], A),
    ("reversed operands", lambda x: (2.0 - x) * (3.0 / x) + 2.0**x, POSITIVE),
    ("remainder", lambda x: x % 0.4 + np.mod(x, 0.3) + np.fmod(x, 0.7), np.array([0.15, 0.65, 0.95])),
    ("powers", lambda x, y: x**y + x**2 + x**-1.5, POSITIVE, V),
    ("arctan2 and hypot", lambda x, y: np.arctan2(x, y) + np.hypot(x, y), V, POSITIVE),
    ("maximum and minimum", lambda x, y: np.maximum(x, y) * np.fmin(x, y), V, A),
    ("complex parts", lambda x: np.abs(np.exp(1j * x)) + np.real(x * 1j * np.exp(2j * x)), V),
    ("complex products", lambda z: np.dot(np.conj(z), z * (1 + 2j)), V + 1j * POSITIVE),
    ("Fourier transform", lambda x: np.abs(np.fft.fft(x)) ** 2, A),
    ("real Fourier transform", lambda x: np.fft.irfft(np.fft.rfft(x, axis=1) ** 2, 5, axis=1), A),
    ("dot of ranks", lambda x, y: np.dot(x, y) * np.inner(y, y), A, V),
    ("tensordot", lambda x, y: np.tensordot(x, y, axes=([0, 2], [1, 0])), RNG.standard_normal((3, 2, 3)), A),
    ("einsum", lambda x, y: np.einsum("ij,jk->ik", x, y) + np.einsum("ii", x), A, B),
    ("kron and outer", lambda x, y: np.kron(x, x) * np.sum(np.outer(y, y)), A, V),
    ("sums and products", lambda x: np.prod(x, axis=0) + np.cumsum(x, axis=1)[0] + np.mean(x, 1), A),
    ("variance", lambda x: np.var(x, axis=0, ddof=1) + np.std(x, axis=1, keepdims=True), A),
    ("extrema", lambda x: np.max(x, axis=0) * np.min(x, axis=1) + np.max(x), A),
    ("sort and partition", lambda x: np.sort(x) ** 2 + np.partition(x, 1)[1], V),
    (
        "where and select",
        lambda x: np.where(x > 0, x, x**2) + np.select([x > 0.2, x > 0], [x, x**3], 0.1 * x),
        V,
    ),
    ("clip", lambda x: np.clip(x, -0.2, 0.4) ** 2, A),
    ("concatenate and stack", lambda x, y: np.concatenate([x, np.stack([y, y**2]), [y]]), A, V),
    ("split and hstack", lambda x: np.hstack(np.array_split(x, 2, axis=1)[::-1]) ** 2, A),
    ("tile, repeat, pad", lambda x: np.pad(np.tile(x, 2), 1)[:-2] * np.repeat(x, [2, 3, 1]), V),
    ("roll, flip, rot90", lambda x: np.roll(x, 2, axis=1) * np.flipud(x) + np.rot90(x), A),
    ("diagonals and triangles", lambda x: np.diag(np.diag(x)) + np.tril(x) ** 2 + np.triu(x, 1), A),
    ("sinc, logaddexp", lambda x: np.sinc(x) + np.logaddexp(x, 0.3) + np.logaddexp2(x, 1.0), V),
    ("norms", lambda x: np.linalg.norm(x) + np.linalg.norm(x, 3, axis=0) + np.linalg.norm(x, "nuc"), A),
    ("determinants", lambda x: np.linalg.det(x) + np.linalg.slogdet(x)[1], A),
    ("inverse and solve", lambda x, y: np.linalg.inv(x) @ np.linalg.solve(x, y), A, B),
    ("pseudo-inverse", lambda x: np.linalg.pinv(x), RNG.standard_normal((4, 2))),
    ("eigh", lambda x: np.linalg.eigh(x @ x.T)[0], A),
    ("svd", lambda x: np.linalg.svd(x, compute_uv=False), RNG.standard_normal((4, 3))),
    ("cholesky", lambda x: np.linalg.cholesky(x @ x.T + np.eye(3)), A),
    ("gradient and diff", lambda x: np.gradient(x)[0] * np.diff(x, axis=1, append=1.0), A),
    (
        "scipy.special",
        lambda x: scipy.special.gammaln(x) + scipy.special.erf(x) + scipy.special.expit(x),
        POSITIVE,
    ),
    ("bessel", lambda x: scipy.special.j0(x) + scipy.special.jn(2, x) + scipy.special.y1(x), POSITIVE),
]


@pytest.mark.parametrize(("f", "args"), [pytest.param(f, args, id=name) for name, f, *args in TESTED])
def test_what_autograd_tests(f, args):
    check_derivative(f, *args)
