"""The compact built-in trainer: real transformers, real off-policyness, complete per-token logs.

It knows the run format (`ratioscope`) and nothing of the analysis.
"""

import os

# Read when torch loads its thread pool, so it has to stand here. Idle threads that spin instead of sleeping make a
# small model many times slower as soon as something else, a dashboard say, wants one of two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
