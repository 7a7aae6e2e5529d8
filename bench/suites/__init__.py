"""asv suites: mercer against its own past (``bench/README.md`` says how to run them)."""

import sys
from pathlib import Path

# The table of kernels that the tests check is the one that is timed.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
