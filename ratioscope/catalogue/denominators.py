"""What metrics are averaged over, and why one is missing where there is nothing to average.

A metric names its denominator, which says what must be
logged and which note stands where it is not.
"""

from dataclasses import replace

from ratioscope.metric import ALL_TOKENS, RATIOS, SAMPLED, Denominator, Grain, not_logged
from ratioscope.notes import Kind, Note
from ratioscope.terms import (
    LOG_ENGINE,
    LOG_REFERENCE,
    LOG_RHO,
    LOG_RHO_NEW,
    LOG_TEACHER,
    column,
    constant,
    finite,
    known,
)

_ADVANTAGE, _CLIPPED, _GATE = map(column, ("advantage", "clipped", "gate"))
_TV, _TV_NEW = map(column, ("tv_current_behavior", "tv_new_current"))


def _undefined(text: str) -> Note:
    return Note(Kind.UNDEFINED, text)


# What several columns are needed for is within what some of them are needed for: the outermost one that is missing is
# the reason that is given. Two denominators with one count differ in what they are within.
_OF_SAMPLER = Denominator("n_sampled", not_logged(*SAMPLED), known(column("logp_sampled")), SAMPLED, ALL_TOKENS)
NEW = Denominator("n_new", not_logged("logp_new"), known(LOG_RHO_NEW), ("logp_new",), _OF_SAMPLER)
UPDATE = Denominator("n_update", not_logged("logp_new"), known(LOG_RHO_NEW) & known(LOG_RHO), ("logp_new",), RATIOS)
BEHAVIOR = Denominator(
    "n_behavior", not_logged("logp_behavior"), known(column("logp_behavior")), ("logp_behavior",), ALL_TOKENS
)
ENGINE = Denominator(
    "n_engine",
    not_logged("logp_behavior_train"),
    finite(LOG_ENGINE),
    ("logp_behavior_train",),
    BEHAVIOR,
    apart=True,
)
AGE = Denominator(
    "n_age",
    not_logged("logp_behavior_train"),
    finite(LOG_ENGINE) & known(LOG_RHO),
    ("logp_behavior_train",),
    replace(BEHAVIOR, within=RATIOS),
    apart=True,
)
REFERENCE = Denominator(
    "n_reference",
    not_logged("logp_reference"),
    finite(LOG_REFERENCE) & known(LOG_RHO),
    ("logp_reference",),
    RATIOS,
    apart=True,
)
TEACHER = Denominator(
    "n_teacher",
    not_logged("logp_teacher"),
    finite(LOG_TEACHER) & known(LOG_RHO),
    ("logp_teacher",),
    RATIOS,
    apart=True,
)
ENTROPY = Denominator(
    "n_entropy", not_logged("entropy"), finite(column("entropy")), ("entropy",), ALL_TOKENS, apart=True
)

CLIP = Denominator("n_clip", not_logged("clipped", "clip_side"), known(_CLIPPED), ("clipped", "clip_side"), ALL_TOKENS)
SIDE = Denominator("n_side", not_logged("clip_side"), known(column("clip_side")), ("clip_side",), ALL_TOKENS)
ADVANTAGE = Denominator("n_advantage", not_logged("advantage"), known(_ADVANTAGE), ("advantage",), ALL_TOKENS)
_CLIP_OF_SIGNED = replace(CLIP, within=ADVANTAGE)
POSITIVE = Denominator(
    "n_positive",
    _undefined("no token with positive advantage"),
    (_ADVANTAGE > 0) & known(_CLIPPED),
    within=_CLIP_OF_SIGNED,
)
NEGATIVE = Denominator(
    "n_negative",
    _undefined("no token with negative advantage"),
    (_ADVANTAGE < 0) & known(_CLIPPED),
    within=_CLIP_OF_SIGNED,
)
GATE = Denominator("n_gate", not_logged("gate"), finite(_GATE), ("gate",), ALL_TOKENS, apart=True)
EFFECTIVE = Denominator(
    "n_effective", not_logged("gate"), finite(_GATE) & known(_ADVANTAGE), ("gate",), ADVANTAGE, apart=True
)
LAG = Denominator(
    "n_lag", not_logged("behavior_version"), known(column("version_lag")), ("behavior_version",), ALL_TOKENS
)

_EXACT = Note(Kind.NOT_LOGGED, "the exact per-state columns are not logged")
_ONLY_EXACT = Note(Kind.NOT_LOGGED, f"not estimable from samples, and {_EXACT}")
EXACT = Denominator("n_exact", _ONLY_EXACT, finite(_TV), ("tv_current_behavior",), ALL_TOKENS, apart=True)
EXACT_CHI2 = Denominator(
    "n_exact_chi2",
    _ONLY_EXACT,
    constant(column("chi2_current_behavior")),  # infinite where the sampler's support is truncated
    ("chi2_current_behavior",),
    ALL_TOKENS,
    apart=True,
)
EXACT_OF_RATIOS = Denominator(
    "n_exact_of_ratios",
    _ONLY_EXACT,
    finite(_TV) & known(LOG_RHO) & known(column("logp_behavior")),
    ("tv_current_behavior",),
    replace(BEHAVIOR, within=RATIOS),
    apart=True,
)
EXACT_NEW = Denominator("n_exact_new", _EXACT, finite(_TV_NEW), ("tv_new_current",), ALL_TOKENS, apart=True)
EXACT_OF_NEW = Denominator(
    "n_exact_of_new",
    _EXACT,
    finite(_TV_NEW) & known(LOG_RHO_NEW) & known(LOG_RHO),
    ("tv_new_current",),
    UPDATE,
    apart=True,
)

RESPONSES = Denominator(
    "n_sequences", _undefined("the sequences table has no rows for this step"), grain=Grain.RESPONSE
)
LENGTHS = Denominator(
    "n_lengths", not_logged("n_tokens"), known(column("n_tokens")), ("n_tokens",), RESPONSES, grain=Grain.RESPONSE
)
_SCORED = Denominator(
    "n_scored", not_logged("reward"), known(column("reward")), ("reward",), RESPONSES, grain=Grain.RESPONSE
)
REWARDED = Denominator(
    "n_reward", _undefined("no finite reward"), finite(column("reward")), within=_SCORED, grain=Grain.RESPONSE
)
SEQUENCE_WEIGHTS = Denominator(
    "n_weights", _undefined("every response has a token without a usable ratio"), within=RATIOS
)
