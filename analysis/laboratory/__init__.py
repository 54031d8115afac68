"""The laboratory: the theory's statements as problems small enough to be exact, one module each.

`EXPERIMENTS` has them in the order in which a newcomer learns most. Each is an `Experiment`: sliders, one function that
computes every number, curve and sentence, and how they are drawn. The functions can be used alone:

>>> from ratioscope.analysis.laboratory import importance_weights
>>> round(importance_weights.chi_square(q=0.9, length=10), 6)
139.746784
"""

from importlib import import_module

from ratioscope.analysis.laboratory.experiment import Experiment

_ORDER = (
    "importance_weights",
    "rare_token",
    "one_token",
    "surrogate",
    "wrong_arm",
    "no_policy_near",
    "data_age",
    "noise",
    "improvement",
    "filter_bias",
    "interval",
    "engine_or_age",
)

EXPERIMENTS: dict[str, Experiment] = {name: import_module(f"{__name__}.{name}").EXPERIMENT for name in _ORDER}
