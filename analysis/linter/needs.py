"""What each check needs of a log: a check whose columns are not logged says so, once, and looks at nothing. A check
without a row here is always asked.

lacking(log, "temperature")     # "token_id is not logged." or ""
"""

from ratioscope.analysis.findings.logged import GROUP, QUESTIONS, Logged, Need
from ratioscope.analysis.linter.sample import COLUMNS

_RATIO = QUESTIONS["staleness"].needs
_ENGINE: tuple[Need, ...] = (("logp_behavior",), ("logp_behavior_train", "logp_current"))
_STATES: tuple[Need, ...] = (("token_id",), GROUP)
_TOKENS: tuple[Need, ...] = (("position",),)
_ANY: tuple[Need, ...] = (COLUMNS,)

NEEDS: dict[str, tuple[Need, ...]] = {
    "files": (),
    "footers": _TOKENS,
    "steps": (),
    "versions": QUESTIONS["age"].needs,
    "sequence_rows": _TOKENS,
    "prompts": (GROUP, ("sequences.prompt_id",)),
    "response_mask": (*_STATES, ("logp_behavior",)),
    "padding": (("token_id",),),
    "repeated": (("token_id",), *_ANY),
    "sizes": (GROUP,),
    "invalid_values": _ANY,
    "zero_filled": _ANY,
    "constant_columns": _ANY,
    "shifted": _ANY,
    "own_token": (*_STATES, *_ANY),
    "scale": _ANY,
    "precision": _ANY,
    "copied_columns": _ANY,
    "recomputed": (*_RATIO, ("logp_behavior",), *QUESTIONS["age"].needs),
    "swapped": _ANY,
    "drawn_as_logged": (*_STATES, ("logp_behavior",)),
    "entropy_agrees": (("entropy",), *_RATIO),
    "advantages": (("advantage",), ("sequences.reward",), GROUP),
    "rewards": (),
    "masks": _TOKENS,
    "temperature": (*_ENGINE, *_STATES),
    "truncated_support": _ENGINE,
    "on_policy_ratio": _ENGINE,
    "mean_ratio": _RATIO,
}
_COMPARE = ("shifted", "scale", "copied_columns", "swapped")
"""They hold log-probabilities against each other."""


def lacking(log: Logged, check: str) -> str:
    """Why a check has nothing to look at, a sentence; "" where it has."""
    for need in NEEDS.get(check, ()):
        if not log.meets(need):
            why = "no log-probability is logged" if need == COLUMNS and log.has_tokens else log.why(*need)
            return f"{why[0].upper()}{why[1:]}." if why.startswith("no ") else f"{why}."
    if check in _COMPARE and sum(map(log.has, COLUMNS)) < 2:
        return "Fewer than two log-probability columns are logged: there is nothing to hold them against."
    return ""


def needs_tokens(check: str) -> bool:
    """Whether a check looks at tokens, so that it says nothing about texts alone."""
    return any("." not in name for need in NEEDS.get(check, _TOKENS) for name in need if need != GROUP)
