"""scikit-learn's checks of estimators for the classifiers that minimise a cost; none is exempt."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer.estimators.classification import KernelLogisticRegression, SquaredMarginClassifier
from mercer.kernels import RBF, Linear

CLASSIFIERS = [
    KernelLogisticRegression(),
    SquaredMarginClassifier(kernel=0.5 * RBF(gamma=0.3) + Linear()),
    SquaredMarginClassifier(multiclass="joint"),
]


@parametrize_with_checks(CLASSIFIERS)
@pytest.mark.lenient
@pytest.mark.filterwarnings("default")
def test_scikit_learns_checks(estimator, check):
    check(estimator)
