"""What would another rule have done on this logged run?

tokens = load(run, first=10, last=20)
own = apply(own_rule(run).rule, tokens)
other = apply(Rule("none", {}, "truncated", {"cap": 2.0}), tokens)
other.values["bias_proxy"], other.overall.intervals["bias_proxy"], other.overall.notes.get("bias_proxy")
sentence(own, other)
sweep(other.rule, "cap", [1.5, 2, 3, 5], tokens)

The logged tokens stay as they are: a rule that had been in force would have led to other policies and other tokens.
"""

from analysis.what_if.measures import MEASURES, TAILS, Measure
from analysis.what_if.outcome import Numbers, Outcome, apply, decide
from analysis.what_if.rule import STOPPING, Own, Rule, own_rule, parse
from analysis.what_if.sweeps import SELECTION_CAVEAT, sentence, sweep
from analysis.what_if.tokens import Tokens, load, tokens_of

__all__ = [
    "MEASURES",
    "SELECTION_CAVEAT",
    "STOPPING",
    "TAILS",
    "Measure",
    "Numbers",
    "Outcome",
    "Own",
    "Rule",
    "Tokens",
    "apply",
    "decide",
    "load",
    "own_rule",
    "parse",
    "sentence",
    "sweep",
    "tokens_of",
]
