"""What the sections of the Drift page say, in words: path, triangle, exact against sampled, certificate, feasibility.

path_sentence(measure(run, 100, 120))       # of the pairs' metrics (`analysis.drift.pairs`)
certificate_sentence(certificate(run))      # (`analysis.drift.certificate`)
"""

from math import isnan

import numpy as np
import pandas as pd

from ratioscope.analysis.drift.certificate import Certificate
from ratioscope.analysis.drift.feasibility import LOWER_BOUND, UNKNOWN, Recommendation
from ratioscope.analysis.summary.summary import StepSummary

# The step of the path in the order in which it is gone: pair, and what makes it.
PATH = {
    "behavior_train/behavior": "the engine",
    "current/behavior_train": "the age of the data",
    "current/behavior": "engine and age together",
    "new/current": "the update",
    "new/behavior": "what PPO clips",
}


def distances(frame: pd.DataFrame, metric: str) -> "pd.Series[float]":
    """One metric of `analysis.drift.pairs.measure` (not by step), by pair."""
    return frame[frame["metric"] == metric].set_index("pair")["value"].astype(float)


def distance_metric(frame: pd.DataFrame) -> str:
    """`tv`, or its bounded form where the mean ratio is significantly below 1 (truncated support)."""
    of = frame[(frame["pair"] == "current/behavior") & (frame["metric"] == "ratio_mean")]
    return "tv_bounded" if (of["high"].astype(float) < 1).any() else "tv"


def path_sentence(frame: pd.DataFrame) -> str:
    """Which step of the path from the sampler to the new policy is the longest."""
    metric = distance_metric(frame)
    tv = distances(frame, metric)
    parts = ["behavior_train/behavior", "current/behavior_train", "new/current"]
    if isnan(tv["behavior_train/behavior"]):
        parts = ["current/behavior", "new/current"]
    known = tv[parts].dropna()
    if not len(known):
        return "No step of the path can be measured here."
    longest = str(known.idxmax())
    what = "staleness" if longest == "current/behavior" else PATH[longest]
    text = f"The longest step of the path is {what}, with a total variation of {known[longest]:.2g}"
    text += f" of {known.sum():.2g} in sum." if len(known) > 1 and known.sum() > 0 else "."
    if not isnan(tv["new/behavior"]):
        text += f" As the crow flies the new policy is {tv['new/behavior']:.2g} from the sampler."
    if metric == "tv_bounded":
        text += " In bounded form, because the mean ratio is below 1: the sampler leaves out what the policy may do."
    if isnan(tv["behavior_train/behavior"]):
        text += " The sampling version is not recomputed in this log, so engine and age cannot be told apart."
    if isnan(tv["new/current"]):
        text += " The new policy's log-probs are not logged, so the update is unknown."
    return text


def triangle_sentence(summary: StepSummary) -> str:
    """How much of U + S is left in the distance that PPO clips."""
    columns = summary.values[["u_k", "s_k", "tv_new_behavior"]]
    known = columns[np.isfinite(columns).all(axis=1)]
    if not len(known):
        return "The new policy's log-probs are not logged, so the triangle of U, S and PPO's distance is unknown."
    both, ppo = known["u_k"].mean() + known["s_k"].mean(), known["tv_new_behavior"].mean()
    if both == 0:
        return "Neither the data nor the update have moved the policy."
    text = f"PPO's distance is {ppo / both:.0%} of U + S on average, and never more than all of it"
    share = known["s_k"].mean() / both
    return f"{text}; staleness, which no update of this step can undo, makes up {share:.0%} of U + S."


def exact_sentence(summary: StepSummary) -> str:
    """Whether the sampled distances agree with those from full distributions; empty where there are none."""
    parts = []
    for key, name in (("s_k", "staleness"), ("u_k", "update drift")):
        distance = summary.values[f"{key}_exact_z"].dropna()
        if not len(distance):
            continue
        beyond = int((distance.abs() > 3).sum())
        if beyond:
            side = "below" if distance.median() < 0 else "above"
            parts.append(
                f"the sampled {name} is more than 3 standard errors off in {beyond} of {len(distance)} steps, mostly "
                f"{side} the exact one"
            )
        else:
            parts.append(f"the sampled {name} is within 3 standard errors in all {len(distance)} steps")
    if not parts:
        return ""
    text = "; ".join(parts) + "."
    values = summary.values[["s_k", "s_k_exact"]].median()
    if (summary.values["s_k_exact_z"] < -3).mean() > 0.5 and values["s_k"] < values["s_k_exact"]:
        text += (
            f" The samples show too little ({values['s_k']:.2g} against {values['s_k_exact']:.2g}): the sampler leaves "
            "out a part of the support, or a heavy tail has not been seen."
        )
    return text[0].upper() + text[1:]


def certificate_sentence(found: Certificate) -> str:
    """What theory promises of these updates, and which term stands against it."""
    terms = found.terms
    bound = terms["improvement_bound"].astype(float)
    known = terms[bound.notna()]
    if not len(known):
        reasons = terms["note"][terms["note"] != ""]
        return f"The bound cannot be computed: {reasons.iloc[-1] if len(reasons) else 'nothing is logged for it'}."
    vacuous, negative = (int((known["mark"] == mark).sum()) for mark in ("vacuous", "negative"))
    certified = len(known) - vacuous - negative
    of = f"of {len(known)} steps"
    if certified:
        text = f"Theory certifies an improvement in {certified} {of}"
    else:
        text = f"Theory certifies no update in {len(known)} steps"
    marks = [f"it is vacuous in {vacuous}" if vacuous else "", f"negative in {negative}" if negative else ""]
    text += "".join(f"; {reason}" for reason in marks if reason) + "."
    update, stale = (float(known[key].astype(float).median()) for key in ("update_penalty", "staleness_penalty"))
    gain, gap = (float(known[key].astype(float).median()) for key in ("surrogate", "largest_gap"))
    text += (
        f" In the median step the surrogate promises {gain:.2g}, the update costs {update:.2g} and staleness "
        f"{stale:.2g}, in units of reward; returns differ by at most {gap:.2g}."
    )
    if update + stale > 0:
        name, share = ("staleness", stale) if stale > update else ("the update", update)
        text += f" The larger penalty is that of {name} ({share / (update + stale):.0%})."
    return text


def feasibility_sentence(found: pd.DataFrame, epsilon: float) -> str:
    """Whether a clip of width epsilon around 1 can be met in these steps; `found` of `analysis.drift.feasibility`."""
    if not len(found):
        return "No usable token lies in these steps."
    judged = found[found["kind"] != UNKNOWN]
    if not len(judged):
        return f"Cannot tell whether a clip around 1 can be met: {found['note'].iloc[-1]}."
    several = judged[judged["n_versions"].astype(float) > 1]
    steps = len(judged)
    text = ""
    if not len(several):
        text = f"All data of {steps} steps come from one behavior version each: a clip around 1 can be met everywhere."
    else:
        share, spread = (several[key].astype(float) for key in ("infeasible_share", "version_spread_max"))
        at_least = "at least " if (several["kind"] == LOWER_BOUND).any() else ""
        if share.max() > 0:
            text = (
                f"In {at_least}{share.mean():.1%} of the states two behavior versions are more than ε = {epsilon:g} "
                f"apart (mean of {len(several)} steps, most {share.max():.1%}; largest distance {spread.max():.2g}): "
                f"no policy is within ε/2 of both, and a clip around 1 asks for the impossible there."
            )
        else:
            text = (
                f"In no state that can be judged two behavior versions are more than ε = {epsilon:g} apart (largest "
                f"distance {spread.max():.2g}, {len(several)} steps)."
            )
    unknown = len(found) - steps
    return text + (f" In {unknown} more steps it cannot be told." if unknown else "")


def feasibility_caveat(found: pd.DataFrame) -> str:
    """Why the share is a lower bound; empty where it is not one."""
    bounds = found[found["kind"] == LOWER_BOUND]
    if not len(bounds):
        return ""
    return f"A lower bound, which underestimates share and distance alike: {bounds['note'].iloc[-1]}."


def advice_sentence(advice: Recommendation | None) -> str:
    """The clip to use, where something decides it."""
    return f"{advice.method} ({advice.algorithm}). {advice.sentence}" if advice else ""
