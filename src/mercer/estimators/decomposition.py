"""Kernel principal component analysis.

Place on the way: ``solvers`` → **estimators**.
"""

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from .._arrays import as_double, check_samples
from .._memory import check_output
from .._progress import progress
from .._threads import n_threads, one_blas_thread
from ..gram import Gram
from ..kernels.names import from_name
from ..kernels.precomputed import Precomputed
from ..solvers.eigenpairs import RowBlocks, block_lanczos, dense_eigenpairs, fits_lanczos
from ..solvers.outcome import warn_unconverged
from ._base import KernelEstimator, check_choice, check_flag, check_number, check_rng, own_rows
from ._components import CentredGram, Components
from .ridge import KernelRidge

__all__ = ["KernelPCA"]

#: "arpack" and "randomized" are scikit-learn's names for ways to a few components; here there is one.
_SOLVERS = ("auto", "dense", "lanczos", "arpack", "randomized")
#: Up to so many rows LAPACK is as fast for a few components (ten: 32 ms against 45 at n = 600, 113 against 80
#: at n = 1000, one thread).
_DENSE_UP_TO = 700
#: Columns of a product: few make the Krylov space of as many columns deeper; more pay where the kernel's
#: entries, worked out anew in each product, are dear. n = 3000 to 6000, one thread, 16 or 32 columns: 2.7 and
#: 3.6 s (16 features), 1.5 and 1.6 (36), 6.0 and 4.5 (784).
_BLOCK, _DEAR_BLOCK = 16, 32
_DEAR_FROM = 100


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Principal components in a kernel's feature space, from a stored kernel matrix or from products with it.

    With u the unit eigenvectors of the centred kernel matrix and λ its eigenvalues, the coefficients of
    component i are ``α = u / √λ``, so that ``αᵀα = 1/λ`` and components have norm 1 in feature space. A row's
    coordinate is ``Σⱼ αⱼ k̃(xⱼ, x)``, for training rows ``√λ u``.

    Parameters
    ----------
    n_components : int or None, default=None
        How many; None is all with variance. Where there are fewer than were asked for a warning says how many
        there are, and the others are zero, or dropped with `remove_zero_eig`.
    kernel : Kernel, str or callable, default="linear"
        An expression such as ``0.5 * RBF(2.0) + Polynomial(3)``; a name ("linear", "poly", "rbf",
        "laplacian", "sigmoid", "cosine", "chi2", "fourier", "precomputed"); or a callable
        ``f(x_row, z_row, **kernel_params) -> float``.
    gamma : float, "scale", "auto" or None, default=None
        For names. None and "auto" are 1 / n_features (1 for "chi2"), "scale" 1 / (n_features · X.var()); the
        number is fixed at `fit`.
    degree : int, default=3
        For "poly" and "fourier".
    coef0 : float, default=1
        For "poly" and "sigmoid".
    kernel_params : dict or None, default=None
        Keyword arguments of a callable.
    alpha : float, default=1.0
        Penalty of the ridge regression that learns `inverse_transform`.
    fit_inverse_transform : bool, default=False
        Learn pre-images: the training rows as a function of their coordinates, by ridge regression with the
        same kernel.
    eigen_solver : {"auto", "dense", "lanczos"}, default="auto"
        "dense" is LAPACK's, on the stored matrix. "lanczos" takes a few components from products with blocks
        of vectors; scikit-learn's "arpack" and "randomized" are other names for it. "auto" is "dense" up to
        700 rows and for more than a fifth of the components, and so is "lanczos" where four blocks find no
        room beside them.
    tol : float, default=1e-9
        For "lanczos": pair i is done when ``‖K̃u − λᵢu‖ ≤ tol √(λ₁λᵢ)``. Coordinates are then right, relative
        to the largest of the first component, to about tol · λᵢ over the gap to the next eigenvalue.
    max_iter : int or None, default=None
        For "lanczos": products with the matrix at most; None is 1000.
    remove_zero_eig : bool, default=False
        Drop components without variance; with ``n_components=None`` they always are.
    memory_budget : float, default=1e9
        Bytes that the kernel matrix may take (1e9 is n = 11180). Beyond, "lanczos" computes it anew in each
        product; "dense" stores it all the same.
    random_state : int, RandomState, Generator or None, default=None
        For "lanczos": draws the first block, which moves results by less than `tol`.
    n_jobs : int or None, default=None
        Threads: None is OpenMP's setting or the cores available, −1 all cores. Results do not depend on it.
    verbose : bool or int, default=False
        For "lanczos": show a progress bar with the residual.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (k,)
        λ of the centred kernel matrix, from the largest down. Below 1e-12 of the largest they are 0.
    eigenvectors_ : ndarray of shape (n, k)
        u, unit columns. The entry of largest magnitude is positive, the first of those that tie:
        scikit-learn's convention.
    explained_variance_ : ndarray of shape (k,)
        ``λ / (n − 1)``, the variances of the coordinates.
    explained_variance_ratio_ : ndarray of shape (k,)
        Their parts of the variance in feature space, which is the centred matrix's trace. Negative
        eigenvalues make that smaller: parts then are too large, and 0 where it is not positive.
    X_fit_ : ndarray, csr_array or list
        The training rows (a precomputed kernel: the matrix), a copy.
    kernel_ : Kernel
        The expression that was used.
    gamma_ : float
        For names of kernels: gamma as a number.
    dual_coef_ : ndarray of shape (n, d)
        With `fit_inverse_transform`: coefficients of the pre-images.
    X_transformed_fit_ : ndarray of shape (n, k)
        With `fit_inverse_transform`: the training rows' coordinates.
    n_features_in_ : int
        Columns at `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Their names, if they were all strings.
    n_iter_ : int
        Products with the kernel matrix; 1 for "dense".
    converged_ : bool
        Whether `tol` was reached.
    residual_ : float
        The largest ``‖K̃u − λu‖`` over λ₁; 0 for "dense", whose are of the size of rounding.
    solver_used_ : str
        "dense", "lanczos", or "lanczos, lazy" where the matrix was not stored.

    See Also
    --------
    mercer.KernelRidge : What learns the pre-images.

    References
    ----------
    LINMA algorithm 3, (4.60)–(4.62). Pre-images: Bakır, Weston & Schölkopf, "Learning to find pre-images",
    NeurIPS 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from mercer import KernelPCA
    >>> from mercer.kernels import RBF
    >>> angle = np.linspace(0, 6, 60)
    >>> X = np.c_[np.cos(angle), np.sin(angle)] * np.repeat([1.0, 3.0], 30)[:, None]
    >>> KernelPCA(2, kernel=RBF(gamma=1.0)).fit_transform(X).shape
    (60, 2)
    """

    def __init__(
        self,
        n_components=None,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        kernel_params=None,
        alpha=1.0,
        fit_inverse_transform=False,
        eigen_solver="auto",
        tol=1e-9,
        max_iter=None,
        remove_zero_eig=False,
        memory_budget=1e9,
        random_state=None,
        n_jobs=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.remove_zero_eig = remove_zero_eig
        self.memory_budget = memory_budget
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        """As the kernel says; float32 rows have float32 coordinates."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # ---------------------------------------------------------------- fit

    def fit(self, X, y=None):
        """Find the components of training rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Training rows; with a precomputed kernel the matrix (n, n); strings or sets for a kernel of those.
        y : None, default=None
            Not read.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For bad input, before any work, with argument, place and remedy.

        Warns
        -----
        UserWarning
            If fewer components have variance than were asked for, or the kernel matrix is not positive
            semidefinite: by its smallest eigenvalue, of which there is an estimate from above where not all
            are worked out.
        ConvergenceWarning
            If `max_iter` ended the iteration.
        """
        self._check_parameters()
        X, names = self._training_samples(X)
        kernel = self._kernel_for(X)
        # Compiled loops and fixed blocks of rows have the threads; what BLAS makes of several of its own
        # varies in the last digits.
        with one_blas_thread():
            found = self._solve(kernel, X)
            preimages = self._learn_preimages(kernel, X, found) if self.fit_inverse_transform else None
        self._keep(kernel, X, names, found, preimages)
        return self

    def fit_transform(self, X, y=None):
        """Find the components, and the training rows' coordinates on them without another kernel matrix.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            As in `fit`.
        y : None, default=None
            Not read.

        Returns
        -------
        ndarray of shape (n, k)
            ``√λ u``, equal to ``transform(X)`` but for rounding and `tol`.
        """
        self.fit(X)
        return self._coordinates().astype(self.eigenvectors_.dtype, copy=False)

    def _check_parameters(self):
        check_number("n_components", self.n_components, least=1, integer=True, none=True)
        check_number("alpha", self.alpha, least=0)
        check_choice("eigen_solver", self.eigen_solver, _SOLVERS)
        check_number("tol", self.tol, least=0)
        check_number("max_iter", self.max_iter, least=1, integer=True, none=True)
        check_number("memory_budget", self.memory_budget, above=0)
        check_flag("fit_inverse_transform", self.fit_inverse_transform)
        check_flag("remove_zero_eig", self.remove_zero_eig)
        check_rng(self.random_state)
        n_threads(self.n_jobs)
        self._check_kernel()
        if self.fit_inverse_transform and not self._reads_rows():
            raise ValueError(
                f"fit_inverse_transform needs rows of numbers, and kernel={self.kernel!r} reads others; "
                "leave it False"
            )
        if self.fit_inverse_transform and self._is_precomputed(self.kernel):
            raise ValueError(
                "Cannot fit_inverse_transform with a precomputed kernel: it has no rows to map back to; pass "
                "the rows and the kernel itself"
            )

    def _solve(self, kernel, X):
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        k = n if self.n_components is None else min(n, self.n_components)
        precomputed = type(kernel) is Precomputed
        stored = precomputed or 8.0 * n * n <= self.memory_budget
        block = _BLOCK if stored or _is_cheap(kernel, X) else _DEAR_BLOCK
        dense = self.eigen_solver == "dense" or not fits_lanczos(n, k, block)
        if self.eigen_solver == "auto":
            dense = dense or n <= _DENSE_UP_TO or 5 * k > n
        with RowBlocks(n, self.n_jobs) as rows:
            K = CentredGram(kernel, X, stored or dense, rows, self.n_jobs)
            if dense:
                pairs, name = dense_eigenpairs(K.matrix(), k), "dense"
            else:
                pairs, name = self._iterate(K, n, k, block), "lanczos" if stored else "lanczos, lazy"
        return Components(pairs, name, K, self.n_components, self.remove_zero_eig)

    def _iterate(self, K, n, k, block):
        with progress(self.verbose, "kernel PCA", self.max_iter) as on_step:
            pairs = block_lanczos(
                K.product,
                n,
                k,
                block=block,
                rng=check_rng(self.random_state),
                tol=self.tol,
                noise=K.noise / K.scale,
                max_iter=self.max_iter,
                on_step=on_step,
                n_threads=self.n_jobs,
            )
        if not pairs.converged:
            reached = float(np.max(pairs.residuals)) / max(float(pairs.values[0]), np.finfo(float).tiny)
            warn_unconverged("block Lanczos", reached, self.tol, pairs.n_iter, "raise max_iter or tol")
        return pairs

    def _learn_preimages(self, kernel, X, found):
        Z = found.scaled * found.values
        if Z.shape[1] == 0:
            raise ValueError("no component has variance, so that there are no coordinates to map back from")
        if sp.issparse(X):
            check_output(*X.shape, X.dtype)
            X = X.toarray()
        model = KernelRidge(
            self.alpha,
            kernel=kernel,
            fit_intercept=False,
            memory_budget=self.memory_budget,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        try:
            kernel(Z[:1])
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(
                f"fit_inverse_transform applies the kernel to the {Z.shape[1]} coordinates, and {kernel!r} "
                f"does not take rows of so many numbers ({error}); leave it False"
            ) from error
        return model.fit(Z, X)

    def _keep(self, kernel, X, names, found, preimages):
        """Assign what the fit found, all at the end: a fit that fails leaves the estimator as it was."""
        dtype = X.dtype if getattr(X, "dtype", None) == np.float32 else np.dtype(np.float64)
        state = {
            "X_fit_": own_rows(X),
            "kernel_": kernel,
            "eigenvalues_": found.values.astype(dtype),
            "eigenvectors_": found.vectors.astype(dtype),
            "explained_variance_": found.variance.astype(dtype),
            "explained_variance_ratio_": found.ratio.astype(dtype),
            "n_iter_": found.n_iter,
            "converged_": found.converged,
            "residual_": found.residual,
            "solver_used_": found.solver,
            # In float64 whatever the rows are: its entries cancel in the coordinates.
            "_scaled": found.scaled,
            "_eigenvalues": found.values,
            "_offset": found.offset,
        }
        if isinstance(self.kernel, str):
            state["gamma_"] = self._gamma_of(kernel, X)
        if preimages is not None:
            state |= {
                "_preimages": preimages,
                "dual_coef_": preimages.dual_coef_.astype(dtype, copy=False),
                "X_transformed_fit_": preimages.X_fit_.astype(dtype, copy=False),
            }
        for stale in ("gamma_", "dual_coef_", "X_transformed_fit_", "_preimages"):
            self.__dict__.pop(stale, None)
        self.__dict__.update(state)
        self._set_features(X, names)

    def _gamma_of(self, kernel, X):
        if hasattr(kernel, "gamma"):
            return kernel.gamma
        gamma = None if self._gamma_is_scale() else self.gamma
        return from_name("rbf", gamma, n_features=X.shape[1]).gamma

    # ---------------------------------------------------------------- coordinates and back

    def _coordinates(self):
        return self._scaled * self._eigenvalues

    def transform(self, X):
        """Coordinates of rows on the components, without an n×m matrix.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (m, d)
            Rows; with a precomputed kernel the matrix (m, n) against the training rows.

        Returns
        -------
        ndarray of shape (m, k)
            float32 if both the training rows and these are; worked out in float64.

        Raises
        ------
        NotFittedError
            Before `fit`.
        ValueError, TypeError
            For rows unlike the fit's: another number of columns, NaN or infinity (with its row).
        """
        self._require_fit("eigenvectors_")
        X = self._query_samples(X)
        with one_blas_thread():
            samples = as_double(X), as_double(self.X_fit_)
            Y = Gram(self.kernel_, *samples, n_threads=self.n_jobs).dot(self._scaled)
        # (4.60) without its two other terms: they are the same for all j, and each component's coefficients
        # add up to zero.
        Y -= self._offset
        single = getattr(X, "dtype", None) == np.float32 == self.eigenvectors_.dtype
        return Y.astype(np.float32) if single else Y

    def inverse_transform(self, X):
        """Rows whose coordinates these are, approximately: the learned pre-images.

        Parameters
        ----------
        X : array_like of shape (m, k)
            Coordinates.

        Returns
        -------
        ndarray of shape (m, d)
            float32 if both the training rows and these are.

        Raises
        ------
        NotFittedError
            Before `fit`, or after one without ``fit_inverse_transform=True``.
        """
        self._require_fit("eigenvectors_")
        if "_preimages" not in self.__dict__:
            raise NotFittedError(
                "inverse_transform is not available: the fit_inverse_transform parameter was not True at fit"
            )
        width = len(self.eigenvalues_)
        X = check_samples(X, n_features=width, owner="inverse_transform", allow_sparse=False)
        Y = self._preimages.predict(as_double(X))
        return Y.astype(np.float32) if X.dtype == np.float32 == self.eigenvectors_.dtype else Y

    @property
    def _n_features_out(self):
        return len(self.eigenvalues_)


def _is_cheap(kernel, X):
    """Whether an entry of the kernel matrix takes about as long as its products with a block."""
    if not (isinstance(X, np.ndarray) or sp.issparse(X)) or kernel._compiled(X.shape[1]).block_leaves:
        return False
    # Entries of sparse rows are found by merging indices.
    return (4 * X.nnz / X.shape[0] if sp.issparse(X) else X.shape[1]) < _DEAR_FROM
