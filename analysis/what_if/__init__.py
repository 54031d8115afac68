"""What would another rule have done on this logged run?

tokens = load(run, first=10, last=20)
own = apply(own_rule(run).rule, tokens)
other = apply(Rule("none", {}, "truncated", {"cap": 2.0}), tokens)
other.values["bias_proxy"], other.overall.intervals["bias_proxy"], other.overall.notes.get("bias_proxy")
sentence(own, other)
other.curve("clip_fraction")                        # step by step, nothing else computed
sweep(other.rule, "cap", [1.5, 2, 3, 5], tokens)

The logged tokens stay as they are: a rule that had been in force would have led to other policies and other tokens.
"""

from ratioscope.analysis.what_if.judging import decide
from ratioscope.analysis.what_if.loading import load, load_in_parts
from ratioscope.analysis.what_if.measures import MEASURES, TAILS, Measure, described, is_share
from ratioscope.analysis.what_if.numbers import Curve, Numbers
from ratioscope.analysis.what_if.outcome import Digest, Outcome, apply, combined
from ratioscope.analysis.what_if.rule import STOPPING, Own, Rule, own_rule, parse
from ratioscope.analysis.what_if.scales import rebuilt, stops, sweep_values, value_of
from ratioscope.analysis.what_if.sweeps import (
    SELECTION_CAVEAT,
    changed_most,
    evaluate,
    result_of,
    sentence,
    sweep,
    swept,
)
from ratioscope.analysis.what_if.tokens import Tokens, tokens_of

__all__ = [
    "MEASURES",
    "SELECTION_CAVEAT",
    "STOPPING",
    "TAILS",
    "Curve",
    "Digest",
    "Measure",
    "Numbers",
    "Outcome",
    "Own",
    "Rule",
    "Tokens",
    "apply",
    "changed_most",
    "combined",
    "decide",
    "described",
    "evaluate",
    "is_share",
    "load",
    "load_in_parts",
    "own_rule",
    "parse",
    "rebuilt",
    "result_of",
    "sentence",
    "stops",
    "sweep",
    "sweep_values",
    "swept",
    "tokens_of",
    "value_of",
]
