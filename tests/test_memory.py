"""What memory there is, and matrices that are refused."""

import numpy as np
import pytest

from mercer import _memory
from mercer._memory import available_memory, check_output, readable_size


def test_what_is_available_is_positive_and_finite():
    assert 2**20 < available_memory() < 2**63


def test_too_large_a_matrix_names_its_size_and_the_operator():
    with pytest.raises(ValueError, match=r"10000000 x 10000000 .* needs 800 TB.*k\.gram\(X, Z\)"):
        check_output(10**7, 10**7, np.float64)
    check_output(10, 10, np.float64)


def test_a_cgroup_limit_counts(monkeypatch):
    monkeypatch.setattr(_memory, "_cgroup_free", lambda: 1000)
    assert available_memory() == 1000


def test_sizes_are_readable():
    sizes = [readable_size(n) for n in (12, 3.2e9, 1.5e6, 8e14)]
    assert sizes == ["12 bytes", "3.2 GB", "1.5 MB", "800 TB"]
