"""What metrics are averaged over, and why one is missing where there is nothing to average.

Terms and conditions are SQL (`analysis/summary/sums.py`); a metric names its denominator, which says what must be
logged and which note stands where it is not.
"""

from ratioscope.metric import TOKENS, Denominator, not_logged
from ratioscope.notes import Kind, Note


def _undefined(text: str) -> Note:
    return Note(Kind.UNDEFINED, text)


NEW = Denominator("n_new", not_logged("logp_new"), "log_rho_new is not null", ("logp_new",), TOKENS)
ENGINE = Denominator(
    "n_engine",
    not_logged("logp_behavior_train"),
    "isfinite(log_engine)",
    ("logp_behavior_train",),
    TOKENS,
    apart=True,
)
REFERENCE = Denominator(
    "n_reference",
    not_logged("logp_reference"),
    "isfinite(log_reference)",
    ("logp_reference",),
    TOKENS,
    apart=True,
)
ENTROPY = Denominator("n_entropy", not_logged("entropy"), "isfinite(entropy)", ("entropy",), TOKENS, apart=True)

CLIP = Denominator(
    "n_clip", not_logged("clipped", "clip_side"), "clipped is not null", ("clipped", "clip_side"), TOKENS
)
SIDE = Denominator("n_side", not_logged("clip_side"), "clip_side is not null", ("clip_side",), TOKENS)
POSITIVE = Denominator(
    "n_positive", _undefined("no token with positive advantage"), "advantage > 0 and clipped is not null", within=CLIP
)
NEGATIVE = Denominator(
    "n_negative", _undefined("no token with negative advantage"), "advantage < 0 and clipped is not null", within=CLIP
)
GATE = Denominator("n_gate", not_logged("gate"), "gate is not null", ("gate",), TOKENS, apart=True)

_EXACT = Note(Kind.NOT_LOGGED, "the exact per-state columns are not logged")
_ONLY_EXACT = Note(Kind.NOT_LOGGED, f"not estimable from samples, and {_EXACT}")
EXACT = Denominator(
    "n_exact", _ONLY_EXACT, "isfinite(tv_current_behavior)", ("tv_current_behavior",), TOKENS, apart=True
)
EXACT_CHI2 = Denominator(
    "n_exact_chi2",
    _ONLY_EXACT,
    "not isnan(chi2_current_behavior)",  # infinite where the sampler's support is truncated
    ("chi2_current_behavior",),
    TOKENS,
    apart=True,
)
EXACT_NEW = Denominator("n_exact_new", _EXACT, "isfinite(tv_new_current)", ("tv_new_current",), TOKENS, apart=True)
EXACT_OF_NEW = Denominator(
    "n_exact_of_new",
    _EXACT,
    "isfinite(tv_new_current) and log_rho_new is not null",
    ("tv_new_current",),
    NEW,
    apart=True,
)

RESPONSES = Denominator("n_sequences", _undefined("the sequences table has no rows for this step"))
REWARDED = Denominator("n_reward", _undefined("no finite reward"), "isfinite(reward)")
WEIGHTS = Denominator("n_weights", _undefined("every response has an unusable token"), within=TOKENS)
