"""What could not be looked at: a run without a usable token, one that diverged, files left out, absent columns.

Silence is no health: whatever keeps the other rules from looking is a finding, or is said beside them.
"""

from math import nan

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis.evidence import RunEvidence, StepTuple
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import capital, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.runs.scalars import flags_of_scalars, unusable
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary

_LOST_SHARE = 0.5
"""Of a step's rows: with more of them unusable, the step's numbers are those of a remainder."""
_LONGEST_REASON = 300
"""Characters of a manifest that are quoted."""
_TOKENS, _REWARD = "log-probabilities or advantages of most tokens", "the reward"
_SCALARS = {"loss": "the loss", "grad_norm": "the gradient norm"}


@rule("nothing_to_judge", order=10, page="linter", group=None, absence=True, of_the_log=True, cause=False)
def nothing_to_judge(evidence: RunEvidence) -> Finding | None:
    """No step has a usable token; of a run that is being written, although there are rows."""
    values, run = evidence.values, evidence.run
    rows = values["n_invalid"].sum()
    if (values["n_tokens"] > 0).any():
        return _nothing_asked(evidence)
    if run is not None and run.status == "running" and not rows:
        return None
    if not rows and not (run is not None and run.problems) and values[[*_ASKED[_LEARNS]]].notna().any(axis=None):
        return None  # a log of responses alone: what no rule could look at is said beside the findings
    if rows:
        which = f"None of {len(values)} steps" if len(values) > 1 else "No step"
        what = f"{which} has a usable token: {_causes(values)}"
        do = "Find out when the values were lost (ratioscope check names the columns), and log them finite."
    elif run is not None and run.problems:
        what = f"No token is left: {len(run.problems)} of the run's files cannot be read"
        do = "Write the files again; ratioscope check names them."
    elif len(values):
        what = f"The run has {len(values)} step{'s' * (len(values) != 1)} and not one token on disk"
        do = "Log the tokens: without log-probabilities there is nothing to diagnose."
    else:
        what, do = (
            "The run holds no step",
            _reason(run) or "Look at the trainer's own log: it ended before its first update.",
        )
    return _finding(
        evidence,
        f"{what}. Nothing can be said of its health.",
        tuple(values.index),
        "Every rule needs tokens: that none of them found anything says nothing about the run.",
        do,
        Number("rows that cannot be used", float(rows)),
    )


def _reason(run: Run | None) -> str:
    """What a run's manifest says of its end, a sentence; or empty."""
    said = " ".join(run.manifest.status_reason.split()) if run is not None else ""
    if len(said) > _LONGEST_REASON:
        said = f"{said[:_LONGEST_REASON]}…"
    return f'run.json says why it ended: "{said}".' if said else ""


def _nothing_asked(evidence: RunEvidence) -> Finding | None:
    """There are tokens, and no step has any number that a rule looks at."""
    values = evidence.values
    if values[[key for keys in _ASKED.values() for key in keys]].notna().any(axis=None):
        return None
    return _finding(
        evidence,
        "No step has a number that a rule looks at. Nothing can be said of the run's health.",
        tuple(values.index),
        "Rules look at ratios, ages, masks, advantages, entropies and rewards, and none of these is logged. No finding "
        "does not mean a healthy run.",
        f"Log {_log_probs(evidence)}, or at least the rewards.",
        Number("tokens", float(values["n_tokens"].sum())),
    )


def _log_probs(evidence: RunEvidence) -> str:
    """The log-probabilities without which no ratio is known, by whether the log has the others."""
    if evidence.log.has("logp_behavior"):
        return "the trainer's log-probabilities beside the sampler's"
    if evidence.log.has("logp_current"):
        return "the sampler's log-probabilities beside the trainer's"
    return "the log-probabilities of sampler and trainer"


@rule("diverged", order=20, page="overview", group=None, absence=True, outcome=True, cause=False)
def run_has_diverged(evidence: RunEvidence) -> Finding | None:
    """From some step to the end loss or gradient norm are not finite, or most rows unusable, and were not before."""
    lost: dict[str, StepTuple] = {}
    for name, bad in _bad(evidence).items():
        since = _since(bad)
        if since:
            lost[name] = since
    if not lost or not (evidence.values["n_tokens"] > 0).any():
        return None
    steps = max(lost.values(), key=len)
    n, first = len(steps), steps[0]
    verb = "are" if len(lost) > 1 or _TOKENS in lost else "is"
    if [*lost] == [_REWARD]:
        return _finding(
            evidence,
            f"The reward is not finite, or missing, from step {first} to the end ({n} step{'s' * (n > 1)}), while the "
            "policy's numbers are there. Responses are no longer scored.",
            steps,
            "A reward comes from outside of the policy: its function or its judge fails, and without it nothing is "
            "learned.",
            "Find out why responses cannot be scored since that step.",
            Number("first step without finite values", float(first)),
        )
    if _TOKENS not in lost and evidence.values.loc[first:, "n_tokens"].gt(0).all():
        return _finding(
            evidence,
            f"{_joined(list(lost))} {verb} not finite, or missing, from step {first} to the end "
            f"({n} step{'s' * (n > 1)}), while log-probabilities stay finite.",
            steps,
            _weights_last(evidence, first),
            "Look for what overflows (loss scale, a response of extreme weight), and at what the trainer does then.",
            Number("first step without finite values", float(first)),
        )
    return _finding(
        evidence,
        f"{_joined(list(lost))} {verb} not finite, or missing, from step {first} to the end "
        f"({n} step{'s' * (n > 1)}): the run has diverged.",
        steps,
        "After one update that is not finite every weight is lost, and with it whatever is computed later. If the "
        "training went on, its log is broken from there on.",
        "Go back to the last checkpoint before that step; look at update drift and gradient norm before it.",
        Number("first step without finite values", float(first)),
    )


def _weights_last(evidence: RunEvidence, first: int) -> str:
    """What became of the policy, whose log-probabilities are finite behind the step."""
    moved = evidence.values["u_k"].loc[first + 1 :].dropna()
    if len(moved) and not moved.any():
        return "logp_new equals logp_current from there on: these updates are skipped, and the policy stands still."
    last = int(evidence.values.index[-1])
    return (
        "Only the last step is not finite: whether its update was applied, the next one would show."
        if first == last
        else "Weights that are not finite would give such log-probabilities: the updates are skipped, or only these "
        "numbers are lost."
    )


@rule("files_left_out", order=30, page="linter", group=None, absence=True, cause=False)
def files_are_left_out(evidence: RunEvidence) -> Finding | None:
    """Files of the run that could not be read."""
    problems = evidence.run.problems if evidence.run else ()
    if not problems or evidence.run is None:
        return None
    n = len(problems) + sum(map(len, evidence.run.files.values()))
    one = len(problems) == 1
    return _finding(
        evidence,
        f"{len(problems)} of {n} files {'is' if one else 'are'} left out because {'it' if one else 'they'} cannot be "
        "read: what they hold is missing from every number.",
        (),
        "An interrupted copy or a full disk leaves such files; without them the run looks shorter than it was.",
        "ratioscope check names them. Write them again, or remove them.",
        Number("files left out", float(len(problems))),
        severity=Severity.WARNING,
    )


@rule("ended_badly", order=40, page="overview", group=None, absence=True, cause=False)
def run_ended_badly(evidence: RunEvidence) -> Finding | None:
    """The run failed, or its writer is gone without having ended it; the user's own end is none."""
    run = evidence.run
    if run is None or run.last_step < 0:
        return None
    if run.manifest.status == "failed":
        what = f"The run failed after step {run.last_step}"
        why = "An error ended the training or its recording: what is on disk is as far as it came."
    elif run.manifest.status == "running" and run.status == "interrupted":
        what = f"The run broke off after step {run.last_step}: its writer is gone and has not ended it"
        why = "A process that is killed, for its memory or its time, cannot say so. Its last seconds may be missing."
    else:
        return None
    return _finding(
        evidence,
        f"{what}.",
        (run.last_step,),
        why,
        f"{_reason(run)} Read the end of the trainer's own log, and resume the run.".lstrip(),
        Number("last step on disk", float(run.last_step)),
        severity=Severity.WARNING,
    )


_LEARNS = "whether the policy learns"
# What rules ask, and the metrics that answer: without any of them in any step no rule can look at it.
_ASKED = {
    "how far the policy is from its data": ("s_k_bounded",),
    "how far updates moved the policy": ("u_k",),
    "how old the data are": ("version_lag",),
    "what the gate did": ("clip_fraction",),
    "whether prompt groups have a signal": ("zero_advantage_group_fraction",),
    "the entropy": ("entropy",),
    _LEARNS: ("reward", "eval_accuracy"),
}


def not_seen(summary: StepSummary, facts: Facts) -> list[str]:
    """What no rule could look at, because no step has its numbers: a clause for each thing that is not logged."""
    if not len(summary.values):
        return []
    found: dict[str, list[str]] = {}
    if facts.staleness.n_known and not facts.split:
        whose = "whether staleness is the engine's or the age's" if facts.engine_in_ratios else "the engine's part"
        found["logp_behavior_train" if facts.engine_in_ratios else "logp_behavior"] = [whose]
    for words, keys in _ASKED.items():
        if summary.values[list(keys)].isna().all(axis=None):
            found.setdefault(_absent(summary.why_unknown(keys[0])), []).append(words)
    return [f"{listed(words)} ({column})" if column else listed(words) for column, words in found.items()]


def _absent(reason: str) -> str:
    """The columns that a reason names: "logp_new is not logged" is "logp_new"."""
    if reason.endswith(" is not logged"):
        return reason.removesuffix(" is not logged")
    if reason.startswith("neither ") and reason.endswith(" is logged"):
        return reason.removeprefix("neither ").removesuffix(" is logged").replace(" nor ", " or ")
    return "tokens" if reason in ("no tokens are logged", "no step has a token on disk") else ""


def _bad(evidence: RunEvidence) -> dict[str, "pd.Series[bool]"]:
    """By quantity: the steps in which it was logged and is not finite."""
    values = evidence.values
    rows = values["n_tokens"] + values["n_invalid"]
    bad = {_TOKENS: (values["n_invalid"] > _LOST_SHARE * rows)[rows > 0]}
    scalars = pd.DataFrame() if evidence.run is None else flags_of_scalars(evidence.run, list(_SCALARS))
    bad |= {words: unusable(scalars[name]) for name, words in _SCALARS.items() if name in scalars}
    reward = values["reward"][rows > 0]
    return bad | {_REWARD: unusable(reward.isna().where(reward.notna()))}


def _since(bad: "pd.Series[bool]") -> StepTuple:
    """The steps of the last stretch, where it is bad up to the end and there is a good step before it.

    From a stretch as long as the last one it recovered before: a scaled loss that overflows skips single updates.
    """
    good = np.flatnonzero(~bad.to_numpy(dtype=bool))
    if not len(good):
        return ()
    last, recovered = len(bad) - 1 - int(good[-1]), int(np.diff(good, prepend=-1).max()) - 1
    return tuple(int(step) for step in bad.index[good[-1] + 1 :]) if last > recovered else ()


def _causes(values: pd.DataFrame) -> str:
    rows = values["n_invalid"].sum()
    words = {
        "n_invalid_nan": "are NaN or missing in a log-probability",
        "n_invalid_infinite": "have an infinite log-probability",
        "n_invalid_positive": "have a log-probability above 0",
        "n_invalid_advantage": "have an advantage that is not finite",
    }
    counts = {name: float(values[name].sum()) for name in words}
    cause = max(counts, key=lambda name: counts[name])
    return f"{percent(counts[cause] / rows)} of the rows {words[cause]}"


def _joined(names: list[str]) -> str:
    text = listed(names)
    return capital(text)


def _finding(
    evidence: RunEvidence, sentence: str, steps: StepTuple, why: str, do: str, *numbers: Number,
    severity: Severity = Severity.CRITICAL,
) -> Finding:  # fmt: skip
    return Finding(
        severity=severity,
        sentence=sentence,
        metric=evidence.facts.staleness.key,
        steps=tuple(int(step) for step in steps),
        numbers=numbers,
        why=why,
        do=do,
        source="docs/metrics.md, bad numbers",
        limit=nan,
    )
