"""asv suites: mercer against its own past (``bench/README.md`` says how to run them)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The table of kernels that the tests check is the one that is timed; cases of bench.peers are timed here, too.
sys.path += [str(ROOT / "tests"), str(ROOT)]
