"""What is done to logs of the trainer, each with what the linter must say of it."""

from typing import NamedTuple

import pandas as pd

from ratioscope.analysis.diagnosis import Severity
from tests.making.faults import Change, at, duplicated, every, everywhere, shifted, versions_off_by_one, without


class Fault(NamedTuple):
    """What is done to a stale log of the trainer, and what the linter must say of it."""

    table: str
    change: Change
    check: str
    severity: Severity | None
    """A warning where rows that are wrong are left out; None: whether they are depends on how sure the policy became,
    which is not the same on every processor."""
    consequences: frozenset[str] = frozenset()
    """Further checks that must find the same fault, because it makes them untrue as well."""
    run: str = "stale"
    words: str = ""
    """How its shape is described."""


NAN, INFINITE = float("nan"), float("inf")
CRITICAL, WARNING, NOTICE = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE
RATIOS = frozenset({"on_policy_ratio"})


def position_one(frame: pd.DataFrame) -> "pd.Series[bool]":
    return frame["position"] == 1


def some_sequences(frame: pd.DataFrame) -> "pd.Series[bool]":
    return frame["seq_id"] % 6 == 0


def one_sequence(frame: pd.DataFrame) -> "pd.Series[bool]":
    return (frame["step"] == 3) & (frame["seq_id"] == 5)


def one_token(frame: pd.DataFrame) -> "pd.Series[bool]":
    return one_sequence(frame) & (frame["position"] == 0)


FAULTS: dict[str, Fault] = {
    "NaN": Fault("tokens", at(every(50), logp_current=NAN), "invalid_values", CRITICAL),
    "infinite": Fault("tokens", at(every(50), logp_behavior=-INFINITE), "invalid_values", CRITICAL),
    "above zero": Fault("tokens", at(every(50), logp_new=0.5), "invalid_values", CRITICAL),
    "advantage": Fault("tokens", at(every(50), advantage=INFINITE), "invalid_values", CRITICAL),
    "ratio of zero": Fault("tokens", at(every(50), logp_current=-INFINITE), "invalid_values", NOTICE),
    "zeros at a position": Fault(
        "tokens", at(position_one, logp_behavior=0.0), "zero_filled", CRITICAL, RATIOS, words="always at position 1"
    ),
    "zeros in sequences": Fault(
        "tokens", at(some_sequences, logp_current=0.0), "zero_filled", None, words="whole responses"
    ),
    "zeros in a column": Fault(
        "tokens", at(everywhere, logp_new=0.0), "zero_filled", CRITICAL, words="the whole column"
    ),
    "constant": Fault("tokens", at(everywhere, logp_behavior=-1.5), "constant_columns", CRITICAL, RATIOS),
    "behavior copied": Fault("tokens", at(everywhere, logp_behavior="logp_current"), "copied_columns", CRITICAL),
    "new copied": Fault("tokens", at(everywhere, logp_new="logp_current"), "copied_columns", CRITICAL),
    "behavior late": Fault(
        "tokens", shifted("logp_behavior", 1), "shifted", CRITICAL, RATIOS,
        words="logp_behavior is logged one position late",
    ),
    "behavior early": Fault(
        "tokens", shifted("logp_behavior", -1), "shifted", CRITICAL, RATIOS,
        words="logp_behavior is logged one position early",
    ),
    "current late": Fault(
        "tokens", shifted("logp_current", 1), "shifted", CRITICAL, RATIOS,
        words="logp_current is logged one position late",
    ),
    "duplicates": Fault("tokens", duplicated, "sequence_rows", WARNING),
    "a token lost": Fault("tokens", without(one_token), "sequence_rows", WARNING),
    "a sequence's tokens lost": Fault("tokens", without(one_sequence), "sequence_rows", WARNING),
    "a sequence lost": Fault("sequences", without(one_sequence), "sequence_rows", WARNING),
    "padding counted": Fault("sequences", at(one_sequence, n_tokens=1), "sequence_rows", CRITICAL),
    "a sequence between groups": Fault("tokens", at(one_token, group_id=3), "sequence_rows", CRITICAL),
    "another group": Fault(
        "sequences", at(one_sequence, group_id=0), "sequence_rows", CRITICAL, frozenset({"prompts"})
    ),
    "another prompt": Fault("sequences", at(one_sequence, prompt_id=99), "prompts", CRITICAL),
    "one prompt a step": Fault(
        "sequences", at(everywhere, prompt_id="step"), "prompts", WARNING, words="All groups of a step are of one"
    ),
    "a step lost": Fault("steps", without(lambda frame: frame["step"] == 4), "steps", WARNING),
    "from the future": Fault("tokens", at(one_sequence, behavior_version=9), "versions", CRITICAL),
    "versions off by one": Fault("tokens", versions_off_by_one, "versions", WARNING, run="on-policy"),
    "clip masks disagree": Fault("tokens", at(every(20), clip_side=1), "masks", WARNING),
    "a gate above one": Fault("tokens", at(every(20), gate=1.5), "masks", WARNING),
    "clipped with a gradient": Fault(
        "tokens", at(every(20), clipped=True, clip_side=1, gradient_weight=0.5), "masks", WARNING
    ),
    "rejected with a gradient": Fault(
        "tokens", at(every(20), rejected="too old", clipped=False, clip_side=0, gradient_weight=0.5), "masks", WARNING,
        words="are rejected by a mask",
    ),
    "no gradient": Fault(
        "tokens", at(everywhere, gradient_weight=0.0), "masks", WARNING, words="No token has a gradient",
    ),
}  # fmt: skip
