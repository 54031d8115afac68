"""What every number means: one entry a metric, read by tooltips, `ratioscope explain`, findings and axis titles.

Keys are those of the step summary. `source` names section or equation of one of `SOURCES`; "usual" is textbook
knowledge. `moment` says which moment of the ratio an estimate needs, and with that
when its sample value can be trusted (`KHAT_LIMIT`).
"""

from dataclasses import dataclass
from enum import Enum
from math import log10

SOURCES = {
    "S0": '"Off-Policy Training in Large Language Model Reinforcement Learning: From Theory to Practice" (2025)',
    "S1": 'Yingru Li, Jiacai Liu: "Why Off-Policy Breaks RL: An SGA Analysis Framework" (2025)',
    "S3": '"Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm" (2025)',
    "S4": '"Reinforcement Learning for LLM Alignment" (draft)',
}


class Moment(Enum):
    """Which moment of the ratio the estimator is built on."""

    BOUNDED = "bounded"
    """Bounded terms: always estimable."""
    FIRST = "first"
    """Means of rho or |rho - 1|: unreliable from k-hat 0.7 on."""
    SECOND = "second"
    """Means of rho squared: unreliable from k-hat 0.35 on, because the tail index of a square is twice as large."""


KHAT_LIMIT = {Moment.FIRST: 0.7, Moment.SECOND: 0.35}


@dataclass(frozen=True)
class Metric:
    """One catalogue entry; texts are plain sentences, `symbol` and `formula` are LaTeX."""

    key: str
    title: str
    symbol: str
    formula: str
    definition: str
    source: str
    reading: str
    remedy: str = ""
    unit: str = ""
    better: str = ""
    moment: Moment = Moment.BOUNDED
    khat: tuple[str, ...] = ("khat_token",)
    """Tail indices that decide whether it can be trusted."""
    short: str = ""
    """A name for tiles and legends, where the title is too long for them."""

    @property
    def label(self) -> str:
        return self.short or self.title


_KHAT_NEW = ("khat_token", "khat_token_new")
_FRESHER = "Push weights to the sampler more often, buffer fewer batches, or drop tokens beyond epsilon_stale (S0 5.6)."
_SMALLER = "Lower the learning rate, take fewer passes, or use a clip centred at rho_k (Method One or Two, S0 5.3)."
_TRUNCATE = "Truncate or mask the ratio, or make the data fresher; do not believe means of rho squared until then."

_ENTRIES = (
    Metric(
        key="u_k",
        title="Update drift",
        symbol="U_k",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_{k+1}-\rho_k|",
        definition="Half the mean distance between the ratios of the new and the current policy to the behavior policy.",
        source="S0 5.2",
        reading="How far this update moved the policy, in total variation. A clip of width ε on the difference allows ε/2.",
        remedy=_SMALLER,
        better="lower",
        moment=Moment.FIRST,
        khat=_KHAT_NEW,
    ),
    Metric(
        key="s_k",
        short="Staleness",
        title="Sampling staleness",
        symbol="S_k",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_k-1|",
        definition="Half the mean distance of the current policy's ratio from 1: total variation between sampler and policy.",
        source="S0 4.6, 7.2",
        reading="How far the data are from the policy before the update starts: version lag and engine mismatch together.",
        remedy=_FRESHER,
        better="lower",
        moment=Moment.FIRST,
    ),
    Metric(
        key="s_k_bounded",
        short="Staleness, bounded",
        title="Sampling staleness, bounded form",
        symbol=r"S_k^{+}",
        formula=r"\mathrm{mean}\,(1-\rho_k)^{+}",
        definition="The same total variation from ratios below 1 only: each term lies in [0, 1], so no heavy tail can spoil it.",
        source="identity 1 of the metric definitions",
        reading="Equal to S_k when the mean ratio is 1. The primary number where that mean is significantly below 1.",
        remedy=_FRESHER,
        better="lower",
    ),
    Metric(
        key="tv_new_behavior",
        short="New policy to data",
        title="Distance of the new policy from the data",
        symbol=r"\mathrm{TV}(\pi_{k+1},\hat\pi)",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_{k+1}-1|",
        definition="What standard PPO clips: total variation between the policy after the update and the sampler.",
        source="S0 5.5",
        reading="At most U_k + S_k. When it sits near ε/2 before the update, PPO's clip leaves no room to learn.",
        remedy="Reduce staleness first; if it is unavoidable, centre the clip at rho_k (Method One or Two).",
        better="lower",
        moment=Moment.FIRST,
        khat=("khat_token_new",),
    ),
    Metric(
        key="tv_new_behavior_bounded",
        short="New policy to data, bounded",
        title="Distance of the new policy from the data, bounded form",
        symbol=r"\mathrm{TV}^{+}(\pi_{k+1},\hat\pi)",
        formula=r"\mathrm{mean}\,(1-\rho_{k+1})^{+}",
        definition="The same distance from ratios below 1 only.",
        source="identity 1 of the metric definitions",
        reading="Equal to the plain form when the mean ratio is 1, and immune to heavy tails.",
        better="lower",
    ),
    Metric(
        key="ratio_mean",
        title="Mean ratio",
        symbol=r"\overline{\rho}_k",
        formula=r"\mathrm{mean}\,\rho_k",
        definition="Mean of the current policy's ratio to the sampler; 1 in expectation when the supports cover each other.",
        source="S0 7.3",
        reading="A significant departure from 1: truncated support, a wrong denominator, selection, or an unseen tail.",
        remedy="Check the sampler's log-probs (temperature, top-p), then selection after sampling.",
        better="1",
        moment=Moment.FIRST,
    ),
    Metric(
        key="chi2_token",
        short="Token χ²",
        title="Token chi-square",
        symbol=r"\chi^2_{\mathrm{token}}",
        formula=r"\mathrm{mean}\,(\rho_k-1)^2",
        definition="Variance of the token ratio: what importance weights cost in variance. Centred form.",
        source="S1 4.2",
        reading="Small total variation with a huge chi-square means rare, large ratios: variance, not bias, is the trouble.",
        remedy=_TRUNCATE,
        better="lower",
        moment=Moment.SECOND,
    ),
    Metric(
        key="chi2_token_raw",
        short="Token χ², raw",
        title="Token chi-square, raw form",
        symbol=r"\chi^2_{\mathrm{raw}}",
        formula=r"\mathrm{mean}\,\rho_k^2-1",
        definition="Kept for comparison with other tools; equal in expectation to the centred form, much noisier near on-policy.",
        source="S1 4.2",
        reading="May be negative; prefer the centred form.",
        moment=Moment.SECOND,
    ),
    Metric(
        key="chi2_seq",
        short="Sequence χ²",
        title="Sequence chi-square",
        symbol=r"\chi^2_{\mathrm{seq}}",
        formula=r"\mathrm{mean}\,(W_k-1)^2",
        definition="Variance of the sequence ratio W, the product of its token ratios; computed in log space.",
        source="S1 4.2",
        reading="Grows exponentially with the length: (1 + token chi-square)^T - 1 for independent tokens.",
        remedy="Use token or geometric-mean ratios instead of sequence products, or truncate.",
        better="lower",
        moment=Moment.SECOND,
        khat=("khat_seq",),
    ),
    Metric(
        key="log1p_chi2_seq",
        short="Sequence χ², log",
        title="Sequence chi-square, log form",
        symbol=r"\log(1+\chi^2_{\mathrm{seq}})",
        formula=r"\log\left(1+\mathrm{mean}\,(W_k-1)^2\right)",
        definition="The form that is plotted: it never overflows.",
        source="S1 4.2",
        reading="Divide by the mean length for the growth rate a token.",
        remedy="Use token or geometric-mean ratios instead of sequence products, or truncate.",
        better="lower",
        unit="nats",
        moment=Moment.SECOND,
        khat=("khat_seq",),
    ),
    Metric(
        key="kl_k1",
        short="k1",
        title="KL, estimator k1",
        symbol=r"\mathrm{KL}_{k1}",
        formula=r"\mathrm{mean}\,(-\ell),\ \ell=\log\rho_k",
        definition="KL(behavior || current) by the mean log-ratio: unbiased, may be negative.",
        source="usual",
        reading="Compare with k3: they agree when the mean ratio is 1 (k1 = k3 + 1 - mean ratio).",
        unit="nats",
        better="lower",
    ),
    Metric(
        key="kl_k2",
        short="k2",
        title="KL, estimator k2",
        symbol=r"\mathrm{KL}_{k2}",
        formula=r"\mathrm{mean}\,\ell^2/2",
        definition="KL(behavior || current) to second order: biased, never negative.",
        source="usual",
        reading="Good near on-policy only.",
        unit="nats",
        better="lower",
    ),
    Metric(
        key="kl_k3",
        short="k3",
        title="KL, estimator k3",
        symbol=r"\mathrm{KL}_{k3}",
        formula=r"\mathrm{mean}\,(e^{\ell}-1-\ell)",
        definition="KL(behavior || current): unbiased and never negative, term by term.",
        source="usual",
        reading="The estimator to look at first.",
        remedy=_FRESHER,
        unit="nats",
        better="lower",
        moment=Moment.FIRST,
    ),
    Metric(
        key="kl_reverse",
        title="Reverse KL",
        symbol=r"\mathrm{KL}(\pi_k\Vert\hat\pi)",
        formula=r"\mathrm{mean}\,(\rho\ell-\rho+1)",
        definition="KL(current || behavior), importance-weighted.",
        source="usual",
        reading="Larger than the forward KL when the policy has put mass where the sampler rarely goes.",
        unit="nats",
        better="lower",
        moment=Moment.FIRST,
    ),
    Metric(
        key="ess_token",
        short="ESS, tokens",
        title="Effective sample size, tokens",
        symbol=r"\mathrm{ESS}_{\mathrm{token}}",
        formula=r"\frac{(\sum\rho)^2}{n\sum\rho^2}",
        definition="Share of the tokens that importance weighting leaves effective.",
        source="Kish",
        reading="1 is on-policy; 1/ESS - 1 is the self-normalised chi-square.",
        remedy=_TRUNCATE,
        better="higher",
        moment=Moment.SECOND,
    ),
    Metric(
        key="ess_seq",
        short="ESS, sequences",
        title="Effective sample size, sequences",
        symbol=r"\mathrm{ESS}_{\mathrm{seq}}",
        formula=r"\frac{(\sum W)^2}{n\sum W^2}",
        definition="Share of the sequences that sequence importance weighting leaves effective.",
        source="Kish",
        reading="Near 1/n: one sequence decides the gradient.",
        remedy="Use token or geometric-mean ratios instead of sequence products, or truncate.",
        better="higher",
        moment=Moment.SECOND,
        khat=("khat_seq",),
    ),
    *(
        Metric(
            key=f"ratio_{name}",
            title=f"Ratio, {words}",
            symbol=rf"\rho_{{{symbol}}}",
            formula=rf"{symbol}\text{{ of }}\rho_k",
            definition=f"The {words} of the token ratio, exact.",
            source="usual",
            reading="Symmetric widening is drift; a long upper tail is what importance weights suffer from.",
        )
        for name, words, symbol in (
            ("min", "minimum", r"\min"),
            ("p01", "1 % quantile", r"1\%"),
            ("p50", "median", r"50\%"),
            ("p90", "90 % quantile", r"90\%"),
            ("p99", "99 % quantile", r"99\%"),
            ("p999", "99.9 % quantile", r"99.9\%"),
            ("max", "maximum", r"\max"),
        )
    ),
    *(
        Metric(
            key=key,
            title=title,
            symbol=symbol,
            formula=r"\hat k\text{ of a generalised Pareto fit to the largest weights}",
            definition=f"Tail index of the {what}: moments up to 1/k exist.",
            source="Vehtari et al., Pareto-smoothed importance sampling",
            reading="Below 0.5 good, 0.5 to 0.7 usable, 0.7 to 1 unreliable, above 1 meaningless for means of the ratio; "
            "means of its square are unreliable from 0.35.",
            remedy=_TRUNCATE,
            better="lower",
        )
        for key, title, symbol, what in (
            ("khat_token", "Tail index, tokens", r"\hat k_{\mathrm{token}}", "token ratios, current against behavior"),
            (
                "khat_token_new",
                "Tail index, tokens, new policy",
                r"\hat k_{\mathrm{new}}",
                "token ratios, new against behavior",
            ),
            (
                "khat_seq",
                "Tail index, sequences",
                r"\hat k_{\mathrm{seq}}",
                "sequence ratios, current against behavior",
            ),
        )
    ),
    Metric(
        key="top1pct_share",
        title="Weight of the top 1 %",
        symbol=r"\mathrm{share}_{1\%}",
        formula=r"\sum_{\text{top }1\%}\rho^2\,/\,\sum\rho^2",
        definition="Share of the sum of squared token ratios carried by the largest 1 % of tokens.",
        source="usual",
        reading="0.01 on-policy; above a half, a few tokens own the variance.",
        remedy=_TRUNCATE,
        better="lower",
    ),
    Metric(
        key="clip_fraction",
        title="Clip fraction",
        symbol="f_{clip}",
        formula=r"\mathrm{mean}\,[\text{clipped}]",
        definition="Share of tokens whose policy gradient the gate removed at the last pass, as the loss logged it.",
        source="S3 B.3, S0 5.5",
        reading="A clip removes gradients, it does not pull ratios back. A sawtooth follows the weight syncs.",
        remedy="Saturated: fresher data or wider bounds. Always zero: the gate cannot bind (one pass, on-policy data).",
    ),
    Metric(
        key="clip_fraction_low",
        short="lower bound",
        title="Clip fraction, lower bound",
        symbol="f_{low}",
        formula=r"\mathrm{mean}\,[\text{side}=-1]",
        definition="Share of tokens clipped below the lower bound.",
        source="S3 eq. 8",
        reading="Under one-sided gates: tokens of bad answers that are already less likely than when sampled.",
    ),
    Metric(
        key="clip_fraction_high",
        short="upper bound",
        title="Clip fraction, upper bound",
        symbol="f_{high}",
        formula=r"\mathrm{mean}\,[\text{side}=+1]",
        definition="Share of tokens clipped above the upper bound.",
        source="S3 eq. 8",
        reading="Under one-sided gates: tokens of good answers that are already more likely than when sampled.",
    ),
    Metric(
        key="clip_fraction_positive",
        short="Clipped if A > 0",
        title="Clip fraction among positive advantages",
        symbol="f_{clip|A>0}",
        formula=r"\mathrm{mean}\,[\text{clipped}\mid A>0]",
        definition="Share of the tokens with positive advantage that were clipped.",
        source="S3 eq. 8",
        reading="High: good answers stop teaching; raise the upper bound.",
    ),
    Metric(
        key="clip_fraction_negative",
        short="Clipped if A < 0",
        title="Clip fraction among negative advantages",
        symbol="f_{clip|A<0}",
        formula=r"\mathrm{mean}\,[\text{clipped}\mid A<0]",
        definition="Share of the tokens with negative advantage that were clipped.",
        source="S3 eq. 8",
        reading="This is the brake that keeps REINFORCE from collapsing on stale data.",
    ),
    Metric(
        key="gate_mean",
        title="Mean gate",
        symbol=r"\overline{M}",
        formula=r"\mathrm{mean}\,M",
        definition="Mean of the gate in [0, 1] that the loss applied.",
        source="S4 eq. 120 for soft gates",
        reading="1 minus the clip fraction for hard gates.",
    ),
    Metric(
        key="effective_token_fraction",
        title="Effective tokens",
        symbol="f_{eff}",
        formula=r"\mathrm{mean}\,M\,[A\neq0]",
        definition="Share of the tokens that taught anything: mean gate times non-zero advantage.",
        source="S4 5.4.2",
        reading="What is left of the batch after clipping and zero-signal groups.",
        better="higher",
    ),
    Metric(
        key="zero_advantage_group_fraction",
        title="Zero-signal groups",
        symbol="f_{A=0}",
        formula=r"\mathrm{mean}_g\,[A_g\equiv0]",
        definition="Share of prompt groups in which every advantage is 0.",
        source="S4 5.4.2 (DAPO)",
        reading="All answers right or all wrong: the group teaches nothing.",
        remedy="Prompts of fitting difficulty, more samples a prompt, or dynamic sampling.",
        better="lower",
    ),
    Metric(
        key="entropy",
        title="Entropy",
        symbol="H",
        formula=r"\mathrm{mean}\,H(\pi_k(\cdot|s))",
        definition="Mean entropy of the current policy in the visited states, as logged.",
        source="S3 figures 7, 9",
        reading="A fall to 0 ends exploration; a rise with falling reward is a collapse under way.",
        unit="nats",
    ),
    Metric(
        key="reward",
        title="Training reward",
        symbol="r",
        formula=r"\mathrm{mean}\,r_i",
        definition="Mean reward of the batch's responses: the behavior policy's performance, not the current one's.",
        source="S3 figure 3",
        reading="Lags behind the evaluation accuracy by the staleness of the data.",
        better="higher",
    ),
    Metric(
        key="response_length",
        title="Response length",
        symbol=r"\overline{T}",
        formula=r"\mathrm{mean}\,|y_i|",
        definition="Mean number of tokens of a response.",
        source="S3 figure 9",
        reading="Sequence ratios get worse exponentially with it.",
        unit="tokens",
    ),
    Metric(
        key="version_lag",
        title="Version lag",
        symbol=r"\overline{k-i}",
        formula=r"\mathrm{mean}\,(k-i)",
        definition="Mean number of updates between the policy that sampled a token and the one being updated.",
        source="S3 B.2",
        reading="Under sync_interval m it climbs from 0 to m - 1 and falls back.",
        remedy=_FRESHER,
        unit="updates",
        better="lower",
    ),
    Metric(
        key="eval_accuracy",
        title="Evaluation accuracy",
        symbol=r"\mathrm{acc}",
        formula=r"\mathrm{mean}\,[\text{right}]",
        definition="Accuracy on held-out prompts, as the trainer logged it.",
        source="S3 figure 3",
        reading="The number the run is for.",
        better="higher",
    ),
    Metric(
        key="kl_to_initial",
        short="KL to initial",
        title="KL to the initial policy",
        symbol=r"\mathrm{KL}(\pi_k\Vert\pi_0)",
        formula=r"\mathrm{mean}\,(e^{\ell}-1-\ell),\ \ell=\log\pi_0/\pi_k",
        definition="Distance travelled since the start, as the trainer logged it.",
        source="S3 figures 7, 9",
        reading="Reward that costs less of it is the better bargain.",
        unit="nats",
    ),
    Metric(
        key="grad_norm",
        title="Gradient norm",
        symbol=r"\lVert g\rVert",
        formula=r"\lVert g\rVert_2",
        definition="Norm of the gradient before clipping, last pass, as the trainer logged it.",
        source="usual",
        reading="Spikes that coincide with a heavy ratio tail are that tail.",
    ),
)

CATALOGUE: dict[str, Metric] = {entry.key: entry for entry in _ENTRIES}


@dataclass(frozen=True)
class Threshold:
    """A limit that findings are measured against."""

    name: str
    symbol: str
    value: float
    source: str
    meaning: str


EPSILON = Threshold(
    "epsilon", "ε", 0.2, "S0 summary, key parameters", "clip width of an update; an update may drift by ε/2"
)
EPSILON_STALE = Threshold(
    "epsilon_stale",
    "ε_stale",
    0.4,
    "S0 5.6, key parameters",
    "largest deviation of a usable ratio from 1; staleness should stay below ε_stale/2",
)
THRESHOLDS = {threshold.name: threshold for threshold in (EPSILON, EPSILON_STALE)}


def khat_limit(moment: Moment, n: int) -> float | None:
    """From which k-hat on an estimate built on `moment` is unreliable with n samples; None: never.

    The sample-size rule min(1 - 1/log10 n, 0.7) is for means of the ratio (Vehtari et al.); its square halves it.
    """
    if moment is Moment.BOUNDED:
        return None
    by_size = 1 - 1 / log10(n) if n > 10 else 0.0
    return min(KHAT_LIMIT[moment], by_size if moment is Moment.FIRST else by_size / 2)


def explain(key: str) -> str:
    """A catalogue entry as text, for the command line."""
    entry = CATALOGUE[key]
    lines = [
        f"{entry.title} ({entry.key})",
        "",
        entry.definition,
        f"  formula   {entry.formula}",
        f"  source    {entry.source}",
    ]
    for label, text in (("unit", entry.unit), ("better", entry.better), ("read", entry.reading), ("do", entry.remedy)):
        if text:
            lines.append(f"  {label:<9} {text}")
    if entry.moment is not Moment.BOUNDED:
        lines.append(f"  trust     unreliable when {' or '.join(entry.khat)} exceeds {KHAT_LIMIT[entry.moment]:g}")
    lines += [f"  {name}        {title}" for name, title in SOURCES.items() if name in entry.source]
    return "\n".join(lines)
