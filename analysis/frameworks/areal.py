"""AReaL: ppo_actor/update/*."""

import numpy as np

from ratioscope.analysis.frameworks.definition import Dialect, TheirNumber, clipped_high, clipped_low, exp_of, k3, mean
from ratioscope.analysis.frameworks.sources import FRAMEWORKS

_PROXIMAL = "Against the proximal policy (the start of the update), not the sampler; min and max are over tokens."
_RAW = "The same, before rejection, which is off by default; with it, only what it keeps is averaged."
_LAST_PASS = "Against the sampler, of the policy at each pass, where ours is of the one at the start of the update."
_VERSION = "Per token, as ours; without the tokens that rejection removed."

DIALECT = Dialect(
    framework=FRAMEWORKS["areal"],
    settings="use_decoupled_loss with recomputed proximal log-probs, no rejection, eps_clip 0.2; by default the loss "
    "is not decoupled and behave_* are not logged; each name has /avg, /min, /max",
    rows=(
        TheirNumber(
            "importance_weight/avg", "token mean of current over proximal", _PROXIMAL,
            lambda t, p: mean(exp_of(t.log_r)), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "importance_weight/min", "smallest current over proximal", _PROXIMAL,
            lambda t, p: float(exp_of(t.log_r).min()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "importance_weight/max", "largest current over proximal", _PROXIMAL,
            lambda t, p: float(exp_of(t.log_r).max()), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "approx_kl/avg", "token mean of log current - log proximal",
            "The opposite sign of verl's ppo_kl, and not clamped. Negative is normal where the KL is positive.",
            lambda t, p: mean(t.log_r), needs=("gate",), instead="u_k",
        ),
        TheirNumber(
            "new_logp/avg", "token mean of log current", "A level, not a distance.", lambda t, p: mean(t.gate),
            needs=("gate",), instead="entropy",
        ),
        TheirNumber(
            "old_logp/avg", "token mean of log behavior",
            "A level, not a distance; 'old' is the sampler here, where verl means the start of the update.",
            lambda t, p: mean(t.behavior), instead="entropy",
        ),
        TheirNumber(
            "entropy/avg", "token mean of the entropy",
            "The same; theirs is of the policy at each pass, ours of the one at the start of the update.",
            lambda t, p: float(np.nanmean(t.entropy)), ours="entropy", same=True, needs=("entropy",),
        ),
        TheirNumber(
            "clip_ratio/avg", "share of tokens where the clipped branch strictly wins, by the advantage's sign",
            "The ratio is current over proximal, with their bounds; ours is what the run's own gate did.",
            lambda t, p: mean(clipped_low(t, t.log_r, p["eps_clip"]) | clipped_high(t, t.log_r, p["eps_clip"])),
            ours="clip_fraction", needs=("gate",),
        ),
        TheirNumber(
            "behave_imp_weight/avg", "token mean of proximal over behavior", _RAW,
            lambda t, p: mean(exp_of(t.log_rho)), ours="ratio_mean", same=True,
        ),
        TheirNumber(
            "behave_imp_weight/min", "smallest proximal over behavior", _RAW,
            lambda t, p: float(exp_of(t.log_rho).min()), ours="ratio_min", same=True,
        ),
        TheirNumber(
            "behave_imp_weight/max", "largest proximal over behavior", _RAW,
            lambda t, p: float(exp_of(t.log_rho).max()), ours="ratio_max", same=True,
        ),
        TheirNumber(
            "behave_approx_kl/avg", "token mean of log proximal - log behavior",
            "Minus our k1: the sign of an estimate of KL(behavior || current) is turned round.",
            lambda t, p: mean(t.log_rho), ours="kl_k1",
        ),
        TheirNumber(
            "compute_logp/kl_div_direct/avg", "token mean of log behavior - log current", _LAST_PASS,
            lambda t, p: mean(t.behavior - t.gate), ours="kl_k1", needs=("gate",),
        ),
        TheirNumber(
            "compute_logp/kl_div_taylor/avg", "token mean of half the squared log-ratio to behavior", _LAST_PASS,
            lambda t, p: mean((t.gate - t.behavior) ** 2) / 2, ours="kl_k2", needs=("gate",),
        ),
        TheirNumber(
            "compute_logp/kl_div_dual/avg", "token mean of ρ - log ρ - 1, of current over behavior", _LAST_PASS,
            lambda t, p: mean(k3(t.gate - t.behavior)), ours="kl_k3", needs=("gate",),
        ),
        TheirNumber(
            "version_stats/sample_staleness_proximal_avg", "token mean of the proximal version - the sampling version",
            _VERSION, lambda t, p: mean(t.lag), ours="version_lag", same=True,
        ),
        TheirNumber(
            "version_stats/sample_staleness_theta_avg",
            "token mean of the version being trained - the sampling version",
            f"{_VERSION} The version being trained is one ahead of the proximal one.",
            lambda t, p: mean(t.lag + 1), ours="version_lag",
        ),
    ),
    not_reproducible={
        "dual_clip_ratio": "needs c_clip, which is not set by default",
        "behave_filtered_ratio, rs_filtered_fraction, n_masked_tokens, masked_token_ratio": "describe their rejection",
        "clipped_new_logp, clipped_old_logp": "log-probs with zeros outside the clip mask, averaged by micro-batch",
        "compute_logp/prox_logp_gt*, compute_logp/*approx_logp*, compute_logp/*_weight*, compute_logp/*_error*": "of "
        "their log-linear approximation of the proximal policy, which no log of ours has",
        "sapo_*": "belong to another loss than the assumed one",
    },
)  # fmt: skip
