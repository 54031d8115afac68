"""Speed as ratios against a baseline measured in the same run; `python -m tests.benchmarks [name ...]`."""

import ratioscope.trainer  # noqa: F401  before torch is loaded: it sets how long idle threads spin
