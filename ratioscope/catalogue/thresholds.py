"""Limits that findings are measured against, each with where it comes from; a project may move them (ratioscope.toml).

"chosen here" marks the few that no source gives.
"""

from ratioscope.metric import Threshold

_VERL = "verl, documented health limits of rollout correction"
_CHOSEN = "chosen here"

EPSILON = Threshold(
    "epsilon",
    "ε",
    0.2,
    "S0 summary, key parameters",
    "clip width of an update; an update may drift by ε/2",
    0.001,
    0.99,
)
EPSILON_STALE = Threshold(
    "epsilon_stale",
    "ε_stale",
    0.4,
    "S0 5.6, key parameters",
    "largest deviation of a usable ratio from 1; staleness should stay below ε_stale/2; 0.8 to 1 for strongly asynchronous systems",
    0.001,
    2,
)
_ENTRIES = (
    EPSILON,
    EPSILON_STALE,
    Threshold(
        "version_window", "W", 4, "S0 5.6, key parameters", "most policy versions that one batch should mix", 1, 1000
    ),
    Threshold(
        "staleness_growth", "", 1.5, _CHOSEN, "staleness of the last third over that of the middle third of a run", 1, 100
    ),
    Threshold("kl", "KL", 0.1, _VERL, "largest KL between sampler and policy, in nats", 0, 100),
    Threshold("mean_ratio_low", "", 0.5, _VERL, "smallest mean ratio", 0, 1),
    Threshold("mean_ratio_high", "", 2.0, _VERL, "largest mean ratio", 1, 1000),
    Threshold(
        "mean_ratio_z", "", 3.0, "usual", "standard errors from 1 above which the mean ratio counts as different from 1", 1, 100
    ),
    Threshold(
        "mean_ratio_trifle", "", 1e-3, _CHOSEN, "deviation of the mean ratio from 1 that is too small to matter: rounding causes it, many tokens make it significant", 0, 1
    ),
    Threshold("missing_mass", "", 0.05, _CHOSEN, "probability mass outside of the sampler's support that matters", 0, 1),
    Threshold(
        "mult_prob_error",
        "",
        1.05,
        "NeMo-RL, documented alert on token_mult_prob_error",
        "mean factor by which the two engines' probabilities may differ; the mismatch is half of what exceeds 1",
        1,
        10,
    ),
    Threshold(
        "engine_to_update", "", 0.5, _CHOSEN, "engine mismatch, as a share of the update drift, that is reported", 0, 100
    ),
    Threshold("dropped_share", "", 0.1, _CHOSEN, "share of tokens dropped before the loss above which a batch counts as skewed", 0, 1),
    Threshold("khat", "k̂", 0.7, "Vehtari et al., Pareto-smoothed importance sampling", "largest tail index of the ratios", 0, 10),
    Threshold(
        "tail_share", "", 0.1, _CHOSEN, "share of Σρ² in the top 1% of tokens above which a heavy tail matters", 0.01, 1
    ),
    Threshold("ess", "ESS", 0.3, _VERL, "smallest effective sample size, as a share of the sample", 0, 1),
    Threshold(
        "chi2", "χ²", 1.0, f"{_VERL} (χ² ≤ 1, standard deviation ≤ 1)", "largest variance of the ratio of a token or a response; above 1, weighting costs more than half of the sample", 0, 1e6
    ),
    Threshold("clip_saturated", "", 0.5, "chosen here, for S3 B.3", "share of clipped tokens above which the clip decides the update", 0, 1),
    Threshold("zero_signal", "", 0.5, "chosen here, for S4 5.4.2 (DAPO)", "share of prompt groups that may have zero signal", 0, 1),
    Threshold("entropy_share", "", 0.2, "chosen here, for S3 4.3", "share of the initial entropy that must be left", 0, 1),
    Threshold("reward_fall", "", 0.25, _CHOSEN, "fall from the best level, as a share of it, that counts as a collapse", 0, 10),
    Threshold("left_out", "", 0.5, _CHOSEN, "largest share of the tokens that is left out where their rows are wrong; 0 leaves none out", 0, 0.5),
    Threshold(
        "step_share", "", 0.1, _CHOSEN, "share of the steps (and at least three) that must show what a single step may show by chance", 0, 1
    ),
)  # fmt: skip
THRESHOLDS = {threshold.name: threshold for threshold in _ENTRIES}


def explain() -> str:
    """All thresholds as text, for the command line."""
    lines = [
        "Limits of findings; change them in the table [thresholds] of a ratioscope.toml beside a run or in a folder above.",
        "",
    ]
    for row in THRESHOLDS.values():
        lines.append(f"{row.name:<18} {row.value:<6g} {row.meaning}")
        lines.append(f"{'':<25} {row.lowest:g} to {row.highest:g}; source: {row.source}")
    return "\n".join(lines)
