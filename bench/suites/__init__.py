"""asv suites: mercer against its own past (``bench/README.md`` says how to run them)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The table of kernels that the tests check is the one that is timed, and so are the cases of bench.peers.
sys.path += [str(ROOT / "tests"), str(ROOT)]
