"""scikit-learn's checks of estimators for the five support vector machines; what cannot hold, and why."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from mercer.kernels import RBF, Linear

# ν-SVC needs α in boxes of the weights wᵢ with a sum of ν Σw/2 over each class: for two classes of weights
# W₊ and W₋ that is possible if and only if ν ≤ 2 min(W₊, W₋)/(W₊ + W₋).
CLASS_WEIGHT = {
    "check_class_weight_classifiers": (
        "it weighs one class 1000 and the others 0.0001, so that no nu above 1e-6 is feasible"
    ),
}
GRAM = {
    "check_classifiers_one_label_sample_weights": (
        "it gives random numbers, 10 by 10, as the kernel's matrix; one that is not symmetric is refused"
    ),
}
# y and the weights are drawn by RandomState(42), after rand(15, 30): the classes weigh 3, 10 and 14 together.
EQUIVALENCE = {
    f"check_sample_weight_equivalence_on_{form}_data": (
        "its three classes weigh 3, 10 and 14: the largest nu that is feasible for all pairs is "
        "2·3/(3 + 14) = 0.353, and it fits nu=0.5; NuSVC(nu=0.3) beside it is not exempt"
    )
    for form in ("dense", "sparse")
}
MACHINES = [
    SVC(),
    SVC(kernel="precomputed"),
    SVC(kernel=0.5 * RBF(gamma=0.3) + Linear(), C=2.0),
    SVC(probability=True),
    SVC(multiclass="ovr"),
    SVC(multiclass="crammer-singer"),
    NuSVC(),
    NuSVC(nu=0.3),
    SVR(),
    SVR(kernel="precomputed"),
    NuSVR(),
    OneClassSVM(),
]


def exempt(estimator):
    if isinstance(estimator, SVC) and estimator.kernel == "precomputed":
        return GRAM
    if not isinstance(estimator, NuSVC):
        return {}
    return CLASS_WEIGHT | EQUIVALENCE if estimator.nu == 0.5 else CLASS_WEIGHT


@parametrize_with_checks(MACHINES, expected_failed_checks=exempt)
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks(estimator, check):
    check(estimator)
