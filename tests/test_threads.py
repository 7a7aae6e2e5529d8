"""Numbers of threads: the OpenMP setting, the cgroup's share, the cores."""

import math
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mercer import _threads
from mercer._threads import available_cores, in_threads, n_threads, one_blas_thread


@pytest.fixture
def machine(monkeypatch):
    """A machine of eight cores without a setting or a limit."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(_threads.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(_threads, "_cgroup_cores", lambda: math.inf)
    return monkeypatch


@pytest.mark.parametrize(
    ("n", "expected"), [(None, 8), (3, 3), (-1, 8), (-2, 7), (-100, 1), (np.int64(2), 2), (64, 64)]
)
def test_numbers_as_joblib_reads_them(machine, n, expected):
    assert n_threads(n) == expected


@pytest.mark.parametrize(("setting", "expected"), [("3", 3), ("4,2", 4), ("", 8), ("zero", 8), ("0", 8)])
def test_none_is_the_openmp_setting(machine, setting, expected):
    machine.setenv("OMP_NUM_THREADS", setting)
    assert n_threads(None) == expected
    assert n_threads(-1) == 8


@pytest.mark.parametrize(("share", "expected"), [(2.5, 3), (0.2, 1), (100.0, 8)])
def test_the_cgroups_share_bounds_the_cores(machine, share, expected):
    machine.setattr(_threads, "_cgroup_cores", lambda: share)
    assert available_cores() == n_threads(None) == expected


@pytest.mark.parametrize(
    ("n", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError), ("2", TypeError)]
)
def test_what_is_no_number_of_threads(n, error):
    with pytest.raises(error, match="number of threads"):
        n_threads(n)


class TestCgroups:
    def read(self, root, membership):
        (root / "membership").write_text(membership)
        return _threads._cgroup_cores.__wrapped__(root, root / "membership")

    def test_version_2(self, tmp_path):
        (tmp_path / "cpu.max").write_text("150000 100000\n")
        assert self.read(tmp_path, "0::/\n") == 1.5

    def test_an_ancestor_binds(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "cpu.max").write_text("200000 100000")
        (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000")
        assert self.read(tmp_path, "0::/a/b\n") == 2.0

    def test_version_1(self, tmp_path):
        (tmp_path / "cpu" / "job").mkdir(parents=True)
        (tmp_path / "cpu" / "job" / "cpu.cfs_quota_us").write_text("300000")
        (tmp_path / "cpu" / "job" / "cpu.cfs_period_us").write_text("100000")
        assert self.read(tmp_path, "5:memory:/job\n4:cpu,cpuacct:/job\n") == 3.0

    def test_without_any(self, tmp_path):
        assert self.read(tmp_path, "") == math.inf


def blas_counts():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_blas_is_set_and_restored():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread(), one_blas_thread():
            assert blas_counts() == {1}
        assert blas_counts() == {2}


def test_a_limit_of_the_caller_stands():
    with threadpool_limits(1, user_api="blas"):
        with one_blas_thread():
            assert blas_counts() == {1}
        assert blas_counts() == {1}


@pytest.mark.parametrize(("work", "own"), [(1e6, True), (1e12, False), (math.inf, False)])
def test_little_work_is_done_where_it_is_asked_for(work, own):
    found = in_threads([threading.get_ident] * 4, 2, work)
    assert len(found) == 4
    assert all((ident == threading.get_ident()) == own for ident in found)
