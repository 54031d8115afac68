"""Total variation: how far sampler, current and new policy are from each other, and the parts of the path between them.

It has two forms. The bounded form, mean (q/b - p/b)+ of tokens drawn from b, is what staleness, PPO's
distance and the parts of the path between them are headlined in: with q = b its terms lie in [0, 1], and it is exact
whatever tokens b excludes. One token at a time (x - z)+ <= (x - y)+ + (y - z)+, so that parts in this form add up to at
least the whole. The plain form, half the mean distance, stays beside it as S0 has it.

The update is headlined in its plain form. Neither policy of it is the sampler, so that the same form of it bounds
nothing (its terms go up to rho_k: it is called one-sided) and has no exactness to offer: tokens that b excludes may gain or lose by an update.
Inside of b's support the total variation is at least what tokens lose and at least what they gain; the plain form is
the mean of the two, the one-sided form one of them. It also has the smaller variance, and is what a clip of width epsilon
holds below epsilon/2 on every sample. In sums with staleness the update takes the one-sided form, like with like.
"""

from ratioscope.catalogue.denominators import AGE, ENGINE, EXACT, EXACT_NEW, EXACT_OF_NEW, EXACT_OF_RATIOS, NEW, UPDATE
from ratioscope.catalogue.remedies import FRESHER, SMALLER
from ratioscope.metric import Mean, Metric, Moment
from ratioscope.notes import Kind, Note
from ratioscope.terms import (
    DEVIATION,
    DEVIATION_ENGINE,
    DEVIATION_NEW,
    LOG_ENGINE,
    LOG_RHO,
    LOG_RHO_NEW,
    Term,
    case,
    column,
    expm1,
    finite,
    greatest,
    negative_part,
    ratio_distance,
)


def _apart(y: Term, x: Term) -> Term:
    """|e^y - e^x|: the difference of their rho - 1, which is computed once, where it is finite."""
    difference = expm1(y) - expm1(x)
    return case(finite(difference), abs(difference), ratio_distance(y, x))


def _lost(y: Term, x: Term) -> Term:
    """The positive part of e^y - e^x: what the first policy gives a token and the second one takes away."""
    difference = expm1(y) - expm1(x)
    return case(finite(difference), greatest(difference, 0), case(x >= y, 0, ratio_distance(y, x)))


ENTRIES = (
    Metric(
        key="u_k",
        title="Update drift",
        symbol="U_k",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_{k+1}-\rho_k|",
        definition="Half the mean distance between the ratios of the new and the current policy to the behavior policy.",
        source="S0 5.2",
        reading="How far this update moved the policy, in total variation. A clip of width ε on the difference allows ε/2. "
        "Of a sampler that excludes tokens, at least this far.",
        remedy=SMALLER,
        better="lower",
        moment=Moment.FIRST,
        colour="vermilion",
        order=4,
        over=UPDATE,
        mean=Mean(_apart(LOG_RHO_NEW, LOG_RHO), factor=0.5),
        lowest=0.0,
    ),
    Metric(
        key="u_k_bounded",
        short="Update, as a part",
        title="Update drift, one-sided form",
        symbol=r"U_k^{+}",
        formula=r"\mathrm{mean}\,(\rho_k-\rho_{k+1})^{+}",
        definition="How much probability the update takes from tokens that the sampler can give out. Its terms go up to ρ_k: "
        "a sample can exceed the total variation, and 1.",
        source="docs/metrics.md, identities",
        reading="The update's part of the path from the sampler to the new policy, in the form of the other parts. As "
        "a number of its own read U_k, which has less noise and is equal to it when the mean ratio stays what it was.",
        remedy=SMALLER,
        better="lower",
        moment=Moment.FIRST,
        colour="vermilion",
        over=UPDATE,
        mean=Mean(_lost(LOG_RHO, LOG_RHO_NEW)),
        lowest=0.0,
    ),
    Metric(
        key="s_k_bounded",
        short="Staleness",
        title="Sampling staleness",
        symbol=r"S_k^{+}",
        formula=r"\mathrm{mean}\,(1-\rho_k)^{+}",
        definition="Total variation between sampler and current policy, from ratios below 1: each term lies in [0, 1].",
        source="S0 4.6, 7.2; docs/metrics.md, identities",
        reading="How far the data are from the policy before the update starts: version lag and engine mismatch together. "
        "Exact where the sampler excludes tokens, and no heavy tail can distort it.",
        remedy=FRESHER,
        better="lower",
        order=3,
        mean=Mean(negative_part(DEVIATION), sum="shortfall"),
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="s_k",
        short="Staleness, plain form",
        title="Sampling staleness, plain form",
        symbol="S_k",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_k-1|",
        definition="Half the mean distance of the current policy's ratio from 1, as S0 has it.",
        source="S0 4.6, 7.2",
        reading="Equal to the bounded form when the mean ratio is 1. Half of what the mean ratio lacks is missing here; a "
        "heavy tail can carry it beyond 1, which no total variation is.",
        remedy=FRESHER,
        better="lower",
        moment=Moment.FIRST,
        colour="sky",
        mean=Mean(abs(DEVIATION), sum="deviation", factor=0.5),
        lowest=0.0,
    ),
    Metric(
        key="s_k_version_bounded",
        short="Version staleness",
        title="Staleness from old weights",
        symbol=r"S_k^{\mathrm{version}+}",
        formula=r"\mathrm{mean}\,(e^{b'-b}-\rho_k)^{+}",
        definition="Total variation between the current policy and the sampling version as the training engine computes it, "
        "from tokens that have lost probability since.",
        source="S0 7.2; docs/metrics.md, identities",
        reading="The part of staleness that comes from updates since sampling. With the engine mismatch, at least staleness.",
        remedy=FRESHER,
        better="lower",
        moment=Moment.FIRST,
        over=AGE,
        mean=Mean(_lost(LOG_ENGINE, LOG_RHO)),
        lowest=0.0,
    ),
    Metric(
        key="s_k_version",
        short="Version staleness, plain form",
        title="Staleness from old weights, plain form",
        symbol=r"S_k^{\mathrm{version}}",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_k-e^{b'-b}|",
        definition="Half the mean distance of the ratios of the current policy and of the sampling version as the training "
        "engine computes it.",
        source="S0 7.2",
        reading="With the plain engine mismatch, at least the plain staleness.",
        remedy=FRESHER,
        better="lower",
        moment=Moment.FIRST,
        over=AGE,
        mean=Mean(_apart(LOG_RHO, LOG_ENGINE), factor=0.5),
        lowest=0.0,
    ),
    Metric(
        key="s_k_engine_bounded",
        short="Engine mismatch",
        title="Engine mismatch",
        symbol=r"S_k^{\mathrm{engine}+}",
        formula=r"\mathrm{mean}\,(1-e^{b'-b})^{+}",
        definition="Total variation between the sampling version as the training engine computes it and as the sampler drew "
        "from it, from ratios below 1: each term lies in [0, 1].",
        source="S0 7.2; docs/metrics.md, identities",
        reading="The part of staleness that fresher weights cannot remove: precision, kernels, decoding transforms.",
        remedy="Align precision and decoding of both engines, or take the sampler's log-probs as the denominator.",
        better="lower",
        over=ENGINE,
        mean=Mean(negative_part(DEVIATION_ENGINE)),
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="s_k_engine",
        short="Engine mismatch, plain form",
        title="Engine mismatch, plain form",
        symbol=r"S_k^{\mathrm{engine}}",
        formula=r"\tfrac12\,\mathrm{mean}\,|e^{b'-b}-1|",
        definition="Half the mean distance of the ratio of the two engines from 1, as S0 has it.",
        source="S0 7.2",
        reading="Half of what NeMo-RL's token_mult_prob_error exceeds 1 by, where that is measured. It misses half of the "
        "probability that the sampler excludes.",
        remedy="Align precision and decoding of both engines, or take the sampler's log-probs as the denominator.",
        better="lower",
        moment=Moment.FIRST,
        over=ENGINE,
        mean=Mean(abs(DEVIATION_ENGINE), factor=0.5),
        lowest=0.0,
    ),
    Metric(
        key="s_k_exact",
        short="Staleness, exact",
        title="Sampling staleness, from full distributions",
        symbol=r"S_k^{\mathrm{exact}}",
        formula=r"\mathrm{mean}_s\,\mathrm{TV}(\pi_k,\hat\pi;s)",
        definition="Mean over the visited states of the exact total variation between current policy and sampler.",
        source="S0 4.6; Rao-Blackwell",
        reading="What S_k estimates from samples, without its noise; where the two differ much, do not trust the sampled one.",
        remedy=FRESHER,
        better="lower",
        over=EXACT,
        mean=Mean(column("tv_current_behavior")),
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="u_k_exact",
        short="Update drift, exact",
        title="Update drift, from full distributions",
        symbol=r"U_k^{\mathrm{exact}}",
        formula=r"\mathrm{mean}_s\,\mathrm{TV}(\pi_{k+1},\pi_k;s)",
        definition="Mean over the visited states of the exact total variation between new and current policy.",
        source="S0 5.2; Rao-Blackwell",
        reading="What U_k estimates from samples, without its noise.",
        remedy=SMALLER,
        better="lower",
        over=EXACT_NEW,
        mean=Mean(column("tv_new_current")),
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="s_k_exact_z",
        short="Staleness, sampled against exact",
        title="Staleness, distance of the sampled from the exact value in standard errors",
        symbol=r"z(S_k)",
        formula=r"(S_k^{+}-S_k^{\mathrm{exact}})/\mathrm{se}",
        definition="How many cluster-robust standard errors of their difference the sampled staleness lies from the exact one.",
        source="S0 4.6; Rao-Blackwell",
        reading="A check of the log: beyond ±3 in many steps, the logged tokens are not a sample of the logged sampler.",
        comparable=False,
        over=EXACT_OF_RATIOS,
        undefined=Note(Kind.UNDEFINED, "the difference has no standard error here"),
    ),
    Metric(
        key="u_k_exact_z",
        short="Update drift, sampled against exact",
        title="Update drift, distance of the sampled from the exact value in standard errors",
        symbol=r"z(U_k)",
        formula=r"(U_k-U_k^{\mathrm{exact}})/\mathrm{se}",
        definition="How many cluster-robust standard errors of their difference the sampled update drift lies from the exact one.",
        source="S0 5.2; Rao-Blackwell",
        reading="A check of the log: beyond ±3 in many steps, tokens were selected after sampling.",
        moment=Moment.FIRST,
        comparable=False,
        over=EXACT_OF_NEW,
        undefined=Note(Kind.UNDEFINED, "the difference has no standard error here"),
    ),
    Metric(
        key="delta_max",
        short="Largest TV of a state",
        title="Largest total variation of a state",
        symbol=r"\Delta_{\max}",
        formula=r"\max_s\,\mathrm{TV}(\pi_k,\hat\pi;s)",
        definition="The largest exact total variation among the visited states: a lower bound of the maximum over all states.",
        source="S1 4.1",
        reading="What trust-region theory bounds; a single state decides it. It cannot be estimated from samples.",
        better="lower",
        over=EXACT,
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="tv_new_behavior_bounded",
        short="New policy to data",
        title="Distance of the new policy from the data",
        symbol=r"\mathrm{TV}^{+}(\pi_{k+1},\hat\pi)",
        formula=r"\mathrm{mean}\,(1-\rho_{k+1})^{+}",
        definition="What standard PPO clips: total variation between the policy after the update and the sampler, from ratios "
        "below 1.",
        source="S0 5.5; docs/metrics.md, identities",
        reading="At most staleness and update together, all in the bounded form. When it sits near ε/2 before the update, "
        "PPO's clip leaves no room to learn.",
        remedy="Reduce staleness first; if it is unavoidable, centre the clip at rho_k (Method One or Two).",
        better="lower",
        colour="violet",
        over=NEW,
        mean=Mean(negative_part(DEVIATION_NEW), sum="shortfall_new"),
        lowest=0.0,
        highest=1.0,
    ),
    Metric(
        key="tv_new_behavior",
        short="New policy to data, plain form",
        title="Distance of the new policy from the data, plain form",
        symbol=r"\mathrm{TV}(\pi_{k+1},\hat\pi)",
        formula=r"\tfrac12\,\mathrm{mean}\,|\rho_{k+1}-1|",
        definition="Half the mean distance of the new policy's ratio from 1, as S0 has it.",
        source="S0 5.5",
        reading="At most U_k and the plain S_k together. Equal to the bounded form when the mean ratio is 1.",
        remedy="Reduce staleness first; if it is unavoidable, centre the clip at rho_k (Method One or Two).",
        better="lower",
        moment=Moment.FIRST,
        colour="violet",
        over=NEW,
        mean=Mean(abs(DEVIATION_NEW), sum="deviation_new", factor=0.5),
        lowest=0.0,
    ),
)

DISTANCES = frozenset(entry.key for entry in ENTRIES if not entry.key.endswith("_z"))
"""Those that are total variations: above 1 an estimate is of a tail too heavy for it, and is not quoted."""
