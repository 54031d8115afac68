"""The compact built-in trainer: real transformers, real off-policyness, complete per-token logs.

It knows the run format (`ratioscope`) and nothing of the analysis.
"""

import os

# Read when torch loads its thread pool, so it has to stand here. A thread that waits first spins, then sleeps. Without
# spinning a small model is twice as slow on a quiet machine; with the usual long spin it is many times slower
# as soon as something else, a dashboard say, wants one of two cores. This is a hundredth of the usual.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")
