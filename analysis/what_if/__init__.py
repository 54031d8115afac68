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
from ratioscope.analysis.what_if.loading import load_in_parts, load_tokens
from ratioscope.analysis.what_if.measures import MEASURES, TAILS, Measure, described, is_measure_share
from ratioscope.analysis.what_if.numbers import MeasureCurve, Numbers
from ratioscope.analysis.what_if.outcome import Digest, RuleOutcome, apply, combined_outcome
from ratioscope.analysis.what_if.rule import STOPPING, Own, Rule, own_rule, parse
from ratioscope.analysis.what_if.scales import rebuilt, stops, sweep_values, value_of
from ratioscope.analysis.what_if.sweeps import (
    SELECTION_CAVEAT,
    change_sentence,
    changed_most,
    evaluate_rule,
    result_of,
    sweep,
    swept,
)
from ratioscope.analysis.what_if.tokens import Tokens, tokens_of

__all__ = [
    "MEASURES",
    "SELECTION_CAVEAT",
    "STOPPING",
    "TAILS",
    "Digest",
    "Measure",
    "MeasureCurve",
    "Numbers",
    "Own",
    "Rule",
    "RuleOutcome",
    "Tokens",
    "apply",
    "change_sentence",
    "changed_most",
    "combined_outcome",
    "decide",
    "described",
    "evaluate_rule",
    "is_measure_share",
    "load_in_parts",
    "load_tokens",
    "own_rule",
    "parse",
    "rebuilt",
    "result_of",
    "stops",
    "sweep",
    "sweep_values",
    "swept",
    "tokens_of",
    "value_of",
]
