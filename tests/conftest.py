"""What every test runs under: warnings and floating-point errors raise, draws repeat."""

import os
import signal

import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("mercer", deadline=None, max_examples=50, print_blob=True)
# A run that must end well for others draws the same examples each time.
settings.register_profile("ci", parent=settings.get_profile("mercer"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "mercer")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_configure(config):
    # A shell without job control has what it runs in the background ignore SIGINT.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def strict_floating_point(request):
    """Let no division by zero, overflow or NaN pass in silence, except in tests marked lenient."""
    if request.node.get_closest_marker("lenient"):
        yield
        return
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        yield


@pytest.fixture
def rng():
    """A generator that draws the same in each run."""
    return np.random.default_rng(20240229)
