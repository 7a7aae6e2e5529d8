import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mercer.estimators import KernelRidge


@parametrize_with_checks([KernelRidge()])
def test_scikit_learns_checks_pass_without_exemption(estimator, check):
    check(estimator)
