"""Why sampler and trainer differ at one version: the marks of the mismatch, and the causes that they tell apart.

The engine's part of a token is known where the trainer recomputed the sampling version, or the policy's own version
sampled (`LogEvidence.fresh`). What is at one server, one prompt, one turn is found by `place`; what begins at nothing
and stays, or falls at a restart, by the mismatch of each step over what the probabilities of its tokens explain.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.cause import Family, Suspect, cause, findings_of
from ratioscope.analysis.findings.finding import Example, Finding, Severity, not_checked, passed
from ratioscope.analysis.findings.mark import Mark, MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.frameworks.remedies import framework_of
from ratioscope.analysis.linter.alignment import UNCORRELATED, shifted
from ratioscope.analysis.linter.check import ENGINE_COLUMNS, check
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence
from ratioscope.analysis.linter.noise_floor import FLOAT32_FLOOR, HEALTHY_TV
from ratioscope.analysis.linter.place import DIVIDED_BY, LEAST_LIFT, expected, places_of, shortfall, strata
from ratioscope.analysis.linter.values import is_one_of
from ratioscope.analysis.runs.left_out import LeftOut

_FEWEST_STEPS, _FEWEST_TOKENS = 6, 1000
# Log-probability above which both engines give 0 or nearly so, whatever they differ in.
_SURE = -1e-3
_EQUAL = 1e-6
_FEWEST_BEFORE = 2
"""Steps before a jump."""
# Of a mismatch that begins at a boundary or a step: at its first place, this share of what it is beyond.
_AT_ONCE = 0.5
_LEAST_EQUAL = 0.05
"""Share of the unsure tokens with the very same value: of engines that differ nearly none."""
_FEWEST_RESPONSES, _FEWEST_PROMPTS = 50, 5
_QUANTILES = 5
_LEAST_MOVED = 1e-3
"""Nats by which a policy that learns changes the first token of a prompt."""
_SUDDEN = 10
"""Times the usual distance: more than data grow older within a step."""
_SHARPER = 0.5
"""Share of the spread over positions in the response that is left of it where the prompt is counted."""
_NEAR_LIMIT = 8
"""Positions before the length limit."""
_FAR_APART, _FEWEST_FAR, _FEWEST_SHIFTED = 0.1, 5, 10
"""Nats between values of different tokens, how many such tokens a shifted response has, and such responses a log."""
_LEFT_OVER = 0.2
"""Share of the distance that is left against the row before, and ahead of the token where a shift begins."""


def _differing(evidence: LogEvidence) -> pd.DataFrame | None:
    """`LogEvidence.fresh`; None where its tokens are few, or both engines agree to float32 rounding."""
    frame = evidence.fresh
    enough = len(frame) >= _FEWEST_TOKENS
    level = evidence.once("mismatch", lambda: float(shortfall(frame).mean()) if enough else 0.0)
    return frame if level > max(FLOAT32_FLOOR, evidence.rounding / 2) else None


def _held_by(dimension: str) -> Mark:
    """The mark of a place: its lift, 1 where the dimension holds no more than it should."""

    def look(evidence: LogEvidence) -> MarkReading | None:
        frame = _differing(evidence)
        if frame is None or DIVIDED_BY[dimension].levels(frame).nunique() < 2:
            return None
        place = next((each for each in places_of(evidence) if each.dimension == dimension), None)
        if place is None:
            return MarkReading(1.0, "")
        return MarkReading(place.lift, place.clause, evidence.all_steps, _columns(evidence), place=place.words)

    look.__name__ = f"mismatch_by_{dimension}"
    look.__doc__ = f"One part by {DIVIDED_BY[dimension].title.rstrip(':')} holds more of the mismatch than it should"
    return mark(needs=(*ENGINE_COLUMNS, *DIVIDED_BY[dimension].needs), limit=LEAST_LIFT)(look)


def _columns(evidence: LogEvidence) -> tuple[str, ...]:
    return "logp_behavior", "logp_behavior_train" if evidence.total("n_train") else "logp_current"


HELD_BY = {dimension: _held_by(dimension) for dimension in DIVIDED_BY}


def _by_step(evidence: LogEvidence) -> "pd.Series[float]":
    """`_apart_by_step` where it is the mismatch alone; where no age is known, nothing."""
    return _apart_by_step(evidence) if evidence.knows_age else pd.Series(dtype=float)


def _apart_by_step(evidence: LogEvidence) -> "pd.Series[float]":
    """The mismatch of each step, as a multiple of what the probabilities of its tokens explain."""

    def make() -> "pd.Series[float]":
        frame = _differing(evidence)
        if frame is None:
            return pd.Series(dtype=float)
        distance = shortfall(frame)
        sums = pd.DataFrame({"is": distance, "should": expected(distance, strata(frame))})
        sums = sums.groupby(frame["step"].to_numpy()).sum()
        return (sums["is"] / sums["should"].where(sums["should"] > 0)).dropna()

    return evidence.once("mismatch by step", make)


@mark(needs=ENGINE_COLUMNS, limit=2.5)
def mismatch_starts_small(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch of the first step is a small part of the later one: what differs came with the updates."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS or evidence.begins_unseen(evidence.all_steps):
        return None
    first, later = float(level.iloc[0]), level.iloc[len(level) // 2 :]
    times = float(later.median()) / max(first, 1e-3)
    return MarkReading(
        times,
        f"the mismatch is {number(times)} × as large in the second half of the run as in step {level.index[0]}",
        tuple(map(int, later.index)),
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=0.2)
def mismatch_varies(evidence: LogEvidence) -> MarkReading | None:
    """In the second half of the run the mismatch differs from step to step, as that of rounding does not."""
    later = _by_step(evidence).iloc[len(_by_step(evidence)) // 2 :]
    if len(later) < _FEWEST_STEPS // 2 or not later.mean() > 0:
        return None
    spread = float(later.std() / later.mean())
    return MarkReading(spread, f"the mismatch varies by {percent(spread)} between later steps")


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_keeps_growing(evidence: LogEvidence) -> MarkReading | None:
    """The last third of the run has a larger mismatch than the middle third, in nearly all of its steps."""
    level = _by_step(evidence)
    third = len(level) // 3
    if third < _FEWEST_STEPS // 2:
        return None
    middle, last = level.iloc[third : 2 * third], level.iloc[-third:]
    # Half of the last third beyond all of the middle one but its largest value: no run of noise.
    grows = last.median() / middle.median() if last.median() > middle.quantile(0.9) and middle.median() > 0 else 1.0
    return MarkReading(
        float(grows),
        f"the mismatch of the last third of the run is {number(float(grows))} × that of the middle third",
        tuple(map(int, last.index)),
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def mismatch_steps_up(evidence: LogEvidence) -> MarkReading | None:
    """From one step on every step has many times the mismatch of those before, and it stays as it began."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    values, at, times = level.to_numpy(), 0, 1.0
    # Updates that do not arrive begin at a step, too: later than that, and flat behind, is no growth with them.
    for each in range(_FEWEST_BEFORE, len(values) - _FEWEST_STEPS // 2 + 1):
        before, behind = max(values[:each].max(), 1e-3), values[each:]
        flat = behind[: _FEWEST_STEPS // 2].min() > _AT_ONCE * np.median(behind)
        if flat and behind.min() / before > times and _updated_before(evidence, int(level.index[each])):
            at, times = each, float(behind.min() / before)
    return MarkReading(
        times,
        f"the mismatch is at least {number(times)} × as large from step {level.index[at]} on as in every step before, "
        "at once",
        tuple(map(int, level.index[at:])),
        _columns(evidence),
    )


def _updated_before(evidence: LogEvidence, step: int) -> bool:
    """Whether some update had come to the sampler before a step, as far as versions are logged.

    Labels that are too young are right as long as all data are of the first version.
    """
    versions = evidence.once(
        "versions by step",
        lambda: evidence.frame(
            "select step, min(behavior_version) as low, max(behavior_version) as high from examined group by step"
        ).set_index("step").sort_index(),
    )  # fmt: skip
    known = versions[versions.index < step].dropna()
    return len(known) == 0 or bool(known["high"].max() > known["low"].iloc[0])


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_falls_back(evidence: LogEvidence) -> MarkReading | None:
    """The mismatch rises over several steps and falls back to its start within one, as after a restart."""
    level = _by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    values = level.to_numpy()
    before = pd.Series(values).rolling(3).min().shift(1).to_numpy()
    after = pd.Series(values[::-1]).rolling(3).max().to_numpy()[::-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        fall = np.nan_to_num(before / after)
    at = int(np.argmax(fall))
    return MarkReading(
        float(fall[at]),
        f"the mismatch falls to 1/{number(float(fall[at]))} at step {level.index[at]} and stays low",
        (int(level.index[at]),),
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=3.0)
def mismatch_in_some_steps(evidence: LogEvidence) -> MarkReading | None:
    """A stretch of a few steps has several times the mismatch of all others, before it and after it."""
    level = _apart_by_step(evidence)
    if len(level) < _FEWEST_STEPS:
        return None
    usual = float(level.median())
    high = level[level > 3 * usual]
    calm = level.drop(high.index).max() <= 2 * usual
    if not evidence.knows_age and len(high):  # age goes up and down, step by step
        calm &= high.min() > _SUDDEN * usual and high.max() < 3 * high.min()
    stretch = calm and len(high) > 1 and high.index[-1] - high.index[0] < 2 * len(high) and len(high) < len(level) / 3
    if not stretch or usual <= 0:
        return MarkReading(1.0, "")
    times = float(high.median()) / usual
    return MarkReading(
        times,
        f"the mismatch is {number(times)} × the usual one in steps {high.index[0]}–{high.index[-1]} alone",
        tuple(map(int, high.index)),
        _columns(evidence),
    )


def _lift(frame: pd.DataFrame, inside: "pd.Series[bool]") -> float:
    """The mismatch of some tokens over that of the others, each over what the probability of its tokens explains."""
    distance = shortfall(frame)
    sums = pd.DataFrame({"is": distance, "should": expected(distance, strata(frame))}).groupby(inside.to_numpy()).sum()
    if len(sums) < 2 or not (sums > 0).all(axis=None):
        return float("nan")
    level = sums["is"] / sums["should"]
    return float(level.loc[True] / level.loc[False])


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_id",)), limit=2.2)
def mismatch_of_repeats(evidence: LogEvidence) -> MarkReading | None:
    """Prompts have a larger mismatch when they come again than when they came first."""
    frame = _differing(evidence)
    if frame is None:
        return None
    frame = frame[frame.groupby("prompt_id")["step"].transform("nunique") > 1]
    first = frame.groupby("prompt_id")["step"].transform("min") == frame["step"]
    if len(frame) < _FEWEST_TOKENS or frame["prompt_id"].nunique() < _FEWEST_PROMPTS:
        return None
    times = _lift(frame, ~first)
    return MarkReading(
        times,
        f"prompts that come again have {number(times)} × the mismatch of their first time",
        evidence.all_steps,
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_grows_with_position(evidence: LogEvidence) -> MarkReading | None:
    """The later a token stands in its response, the larger is its mismatch."""
    frame = _differing(evidence)
    if frame is None:
        return None
    distance = shortfall(frame)
    sums = pd.DataFrame({"is": distance, "should": expected(distance, strata(frame))})
    level = sums.groupby(pd.qcut(frame["position"], _QUANTILES, labels=False, duplicates="drop").to_numpy()).sum()
    rises = (level["is"] / level["should"].where(level["should"] > 0)).dropna()
    if len(rises) < _QUANTILES - 1:
        return None
    times = float(rises.iloc[-1] / rises.iloc[0]) if rises.is_monotonic_increasing and rises.iloc[0] > 0 else 1.0
    return MarkReading(
        times,
        f"the mismatch grows with the position: the last {100 // _QUANTILES}% of positions have {number(times)} × "
        "that of the first",
        evidence.all_steps,
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_of_short_responses(evidence: LogEvidence) -> MarkReading | None:
    """At the same positions short responses have a larger mismatch than long ones."""
    frame = _differing(evidence)
    if frame is None:
        return None
    length = frame["last_position"] + 1
    of_response = length.groupby([frame["step"], frame["seq_id"]]).first()
    short, long = of_response.quantile([0.25, 0.75])
    near = frame["position"] < short
    frame, length = frame[near], length[near]
    outer = (length <= short) | (length >= long)
    if long < 2 * short or outer.sum() < _FEWEST_TOKENS:
        return None
    times = _lift(frame[outer], (length <= short)[outer])
    return MarkReading(
        times,
        f"responses of {short:.0f} tokens or less have {number(times)} × the mismatch of those of {long:.0f} or more, "
        "at the same positions",
        evidence.all_steps,
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_near_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """The last positions before the longest response's end have several times the mismatch of those before them."""
    frame = _differing(evidence)
    if frame is None:
        return None
    longest = int(frame["position"].max())
    frame = frame[frame["position"] > longest - 4 * _NEAR_LIMIT]
    near = frame["position"] > longest - _NEAR_LIMIT
    reached = frame.loc[near, ["step", "seq_id"]].drop_duplicates()
    if longest < 4 * _NEAR_LIMIT or len(reached) < _FEWEST_RESPONSES / 2:
        return None
    times = _lift(frame, near)
    return MarkReading(
        times,
        f"positions {longest - _NEAR_LIMIT + 1} to {longest}, the last before the length limit, have {number(times)} × "
        "the mismatch of those before them",
        evidence.all_steps,
        _columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def mismatch_of_the_last_token_at_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """The last token of the longest responses has many times the mismatch of all others, and the sampler is surer."""
    frame = _differing(evidence)
    if frame is None:
        return None
    longest = frame["last_position"].max()
    at_it = (frame["position"] == longest) & (frame["last_position"] == longest)
    if longest < 2 * _NEAR_LIMIT or at_it.sum() < _FEWEST_RESPONSES / 2:
        return None
    if not frame.loc[at_it, "fresh"].median() < -1:  # a factor e less likely to the trainer
        return MarkReading(1.0, "")
    distance = shortfall(frame)
    held = float(distance[at_it.to_numpy()].sum() / distance.sum())
    times = held / float(at_it.mean())
    return MarkReading(
        times if held > 0.3 else 1.0,
        f"{percent(held)} of the mismatch is in the last token of the {int(at_it.sum()):,} responses of "
        f"{longest + 1:.0f} tokens, which the trainer finds unlikely",
        evidence.all_steps,
        _columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, ("token_id",)), limit=LEAST_LIFT)
def sampler_avoids_repeats(evidence: LogEvidence) -> MarkReading | None:
    """The sampler gives less to tokens written before in their response, and more to new ones."""
    sign = HELD_BY["written"](evidence)
    if not sign.known:
        return None
    if not sign.present:
        return MarkReading(1.0, "")
    again = DIVIDED_BY["written"].levels(evidence.fresh) == "written before"
    signed, others = (float(evidence.fresh["fresh"][which].mean()) for which in (again, ~again))
    if not signed > 0 > others:
        return MarkReading(1.0, "")
    return replace(
        sign.reading,
        clause=f"the trainer gives tokens written before {number(signed)} nats more than the sampler, new ones less",
    )


@mark(needs=ENGINE_COLUMNS, limit=LEAST_LIFT)
def mismatch_at_first_tokens(evidence: LogEvidence) -> MarkReading | None:
    """The first tokens of the responses hold more of the mismatch than they should."""
    sign = HELD_BY["position"](evidence)
    if not sign.known:
        return None
    begins = sign.present and sign.reading.place.startswith("position 0")
    return sign.reading if begins else MarkReading(1.0, "")


@mark(needs=(*ENGINE_COLUMNS, ("token_id",)), limit=2.0)
def mismatch_of_some_tokens(evidence: LogEvidence) -> MarkReading | None:
    """A few tokens of the vocabulary hold several times the mismatch that they should."""
    sign = HELD_BY["token"](evidence)
    return sign.reading if sign.known else None


@mark(needs=(*ENGINE_COLUMNS, ("behavior_version",)), limit=LEAST_LIFT)
def mismatch_behind_a_change(evidence: LogEvidence) -> MarkReading | None:
    """The first tokens behind a change of version within a response hold more of the mismatch than they should."""
    sign = HELD_BY["version_change"](evidence)
    if not sign.known:
        return None
    begins = sign.present and sign.reading.place.partition(": ")[2].startswith("0")
    return sign.reading if begins else MarkReading(1.0, "")


@mark(needs=ENGINE_COLUMNS, limit=0.8)
def identical_then_not(evidence: LogEvidence) -> MarkReading | None:
    """Sampler and trainer give the very same values up to some position of a response, and others from there on."""
    frame = _differing(evidence)
    if frame is None:
        return None
    unsure = frame[frame["logp_behavior"] < _SURE]
    # Responses that agree to their end, as all do before the first update, say nothing of a boundary.
    parts = (unsure["fresh"].abs() > _EQUAL).groupby([unsure["step"], unsure["seq_id"]]).transform("any")
    unsure = unsure[parts]
    equal = (unsure["fresh"].abs() <= _EQUAL).to_numpy()
    if len(unsure) < _FEWEST_TOKENS:
        return None
    if equal.mean() < _LEAST_EQUAL:
        return MarkReading(0.0, "")
    of = [unsure["step"], unsure["seq_id"]]
    differs = unsure["position"].where(~equal)
    first = differs.groupby(of).transform("min")
    ahead = equal & (unsure["position"] < first).to_numpy()
    begins = differs.groupby(of).min()
    if len(begins) < _FEWEST_RESPONSES:
        return MarkReading(0.0, "")
    share = float(ahead.sum() / equal.sum())
    beyond = float(equal[(unsure["position"] > first).to_numpy()].mean())
    if beyond > _LEAST_EQUAL:  # engines that mostly agree part somewhere
        return MarkReading(0.0, "")
    agrees = pd.Series(ahead, index=unsure.index).groupby(of).any()
    distance = unsure["fresh"].abs()
    at_first, after = (
        distance[which.to_numpy()].median() for which in (unsure["position"] == first, unsure["position"] > first)
    )
    if (
        evidence.rounding and not at_first >= _AT_ONCE * after
    ):  # what grows from below the rounding seems equal at first
        return None
    where = _boundary(begins, unsure["absolute"].where(~equal).groupby(of).min()[agrees])
    return MarkReading(
        share,
        f"values are identical up to {where}, and {percent(beyond)} are from there on",
        evidence.all_steps,
        _columns(evidence),
    )


def _boundary(begins: "pd.Series[float]", absolute: "pd.Series[float]") -> str:
    """Where responses begin to differ, counted with the prompt where that is sharper.

    Args:
        begins: first position that differs, by response.
        absolute: the same with the prompt, of the responses that agree before it; missing: not known.
    """
    ends = [(each.quantile(0.1), each.quantile(0.9)) for each in (begins, begins[absolute.index], absolute)]
    known = len(absolute) >= _FEWEST_RESPONSES and absolute.notna().all()
    with_prompt = known and ends[2][1] - ends[2][0] < _SHARPER * (ends[1][1] - ends[1][0])
    found, (low, high) = (absolute, ends[2]) if with_prompt else (begins, ends[0])
    counted = "of prompt and response" if with_prompt else "of a response"
    return f"position {found.median():.0f} {counted} (median; {low:.0f} to {high:.0f})"


@mark(needs=ENGINE_COLUMNS, limit=0.02)
def shifted_from_a_token_on(evidence: LogEvidence) -> MarkReading | None:
    """In some responses the sampler's values are those of the trainer's neighbouring row from one token on."""
    frame = _differing(evidence)
    if frame is None or evidence.found(shifted):  # whole columns
        return None
    found = {by: _shifted_responses(frame, by) for by in (1, -1)}
    by = max(found, key=lambda each: len(found[each][0]))
    inside, n_responses = found[by]
    if n_responses < _FEWEST_RESPONSES or len(inside) < _FEWEST_SHIFTED:
        return MarkReading(0.0, "")
    share, begins = len(inside) / n_responses, inside["position"].median()
    return MarkReading(
        share,
        f"in at least {percent(share)} of the responses logp_behavior is the trainer's value of the row "
        f"{'before' if by == 1 else 'behind'} from position {begins:.0f} (median) to the end",
        tuple(sorted({*map(int, inside["step"])})),
        _columns(evidence),
        tuple(Example(*map(int, row)) for row in inside.head(EXAMPLES).to_numpy()),
    )


def _shifted_responses(frame: pd.DataFrame, by: int) -> tuple[pd.DataFrame, int]:
    """Responses whose values are another row's from one token on, and how many responses there are.

    Args:
        by: 1 for the row before, -1 for that behind.
    """
    response = frame.groupby(["step", "seq_id"], sort=False).ngroup().to_numpy()
    position, ours = frame["position"].to_numpy(), frame["logp_behavior"].to_numpy(dtype=float)
    trainers = ours + frame["fresh"].to_numpy(dtype=float)
    follows = (np.roll(response, by) == response) & (np.roll(position, by) == position - by)
    # Bounded: one token that was nearly impossible is no sign of a shift.
    here = np.minimum(np.abs(ours - trainers), 1.0)
    there = np.where(follows, np.minimum(np.abs(ours - np.roll(trainers, by)), 1.0), here)
    tokens = pd.DataFrame({"response": response, "here": here, "there": there, "far": here > _FAR_APART})
    # The token from which on the neighbour explains most.
    gain = (tokens["here"] - tokens["there"])[::-1].groupby(response[::-1]).cumsum()[::-1]
    begins = gain.groupby(response).idxmax().to_numpy()
    behind = np.arange(len(tokens)) >= begins[response]
    after = tokens[behind].groupby("response").agg({"here": "mean", "there": "mean", "far": "sum"})
    ahead = tokens[~behind].groupby("response")["here"].mean().reindex(after.index)
    least = _LEFT_OVER * after["here"]
    inside = (after["far"] >= _FEWEST_FAR) & (after["there"] < least) & (ahead < least)
    return frame.iloc[begins[inside.to_numpy()]][["step", "seq_id", "position"]], len(after)


@mark(needs=(*ENGINE_COLUMNS, ("logp_new",)), limit=0.2)
def mismatch_follows_updates(evidence: LogEvidence) -> MarkReading | None:
    """The trainer is beyond the sampler where the next update goes on to move it: the sampler has older weights.

    Rounding and other kernels know nothing of the next update.
    """
    found = evidence.frame(
        f"""
        select count(*) as n, corr(fresh, (logp_new - logp_current)::double) as together
        from examined
        where invalid is null and isfinite(fresh) and isfinite(logp_new) and abs(fresh) < 1
            and abs(logp_new - logp_current) < 1 and logp_behavior < {_SURE}
        """
    ).iloc[0]
    if found["n"] < _FEWEST_TOKENS or pd.isna(found["together"]):
        return None
    together = float(found["together"])
    return MarkReading(
        together,
        f"the mismatch and the next update move tokens the same way (correlation {number(together)})",
        evidence.all_steps,
        ("behavior_version",),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.rank",)), limit=UNCORRELATED)
def one_rank_is_uncorrelated(evidence: LogEvidence) -> MarkReading | None:
    """Sampler and trainer agree on which tokens are likely, but for one rank: its values belong to other tokens."""
    found = evidence.frame(
        """
        select rank, count(*) as n, corr(exp(logp_behavior::double), exp(logp_same_engine)) as together
        from examined join (select distinct on (step, seq_id) step, seq_id, rank from sequence) using (step, seq_id)
        where isfinite(logp_behavior) and isfinite(logp_same_engine) and rank is not null
        group by rank having count(*) >= 100 order by rank
        """
    ).dropna()
    if len(found) < 2:
        return None
    worst = found.iloc[int(found["together"].argmin())]
    apart = float(found["together"].median() - worst["together"])
    far = [f"{rank:.0f}" for rank in found["rank"][found["together"].median() - found["together"] > UNCORRELATED]]
    return MarkReading(
        apart,
        f"on rank {worst['rank']:.0f} the probabilities of sampler and trainer correlate {worst['together']:.2f}, on "
        f"the others {found['together'].median():.2f}",
        evidence.all_steps,
        _columns(evidence),
        place=f"rank {worst['rank']:.0f}",
        wrong_rows=LeftOut(
            f"rank {listed(far)}, whose log-probabilities belong to other tokens",
            *is_one_of("rank", far),
        ),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_id",), ("token_id",)), limit=0.9)
def sampler_is_frozen(evidence: LogEvidence) -> MarkReading | None:
    """The sampler gives the first token of a prompt the same probability in all steps, and the trainer does not."""
    found = evidence.frame(
        """
        with first as (
            select step, prompt_id, token_id, logp_behavior, logp_current
            from examined join (select distinct on (step, seq_id) step, seq_id, prompt_id from sequence)
                using (step, seq_id)
            where position = 0 and invalid is null and isfinite(logp_behavior) and isfinite(logp_current)
        )
        select stddev_pop(logp_behavior) as sampler, stddev_pop(logp_current) as trainer
        from first where prompt_id is not null group by prompt_id, token_id having count(distinct step) > 2
        """
    )
    moved = float(found["trainer"].mean()) if len(found) >= _FEWEST_PROMPTS else 0.0
    if moved < _LEAST_MOVED:
        return None
    still = 1 - float(found["sampler"].mean()) / moved
    return MarkReading(
        still,
        f"the sampler's log-probabilities of a prompt's first token vary by {number(found['sampler'].mean())} nats "
        f"over the run, the trainer's by {number(moved)}",
        evidence.all_steps,
        _columns(evidence),
    )


_AT_A_PLACE = tuple(
    HELD_BY[name] for name in DIVIDED_BY if name not in ("age", "position", "absolute", "end", "token", "written")
)
_TAILS = ("sampler_not_following", "engine_mismatch", "heavy_tail", "ess_collapse", "variance_regime", "length_trap")
_INPUTS = "Compare the token ids and inputs that both engines see there."

cause(
    "prefix_cache", Family.MISMATCH, "The sampler reuses a prefix cache of old weights",
    requires=(mismatch_of_repeats, mismatch_at_first_tokens),
    supports={HELD_BY["repeated"]: 1.0, mismatch_falls_back: 1.0},
    refutes=(HELD_BY["prompt"],),
    do="Reset the prefix cache after each weight push.",
    settings={"verl": "actor_rollout_ref.rollout.enable_prefix_caching=False"},
    reports=("NeMo-RL #4018", "NeMo-RL #3152", "prime-rl #1650", "prime-rl #2270"), explains=_TAILS,
)  # fmt: skip
cause(
    "some_prompts", Family.MISMATCH, "Particular prompts are computed differently in sampler and trainer",
    requires=(HELD_BY["prompt"],), refutes=(mismatch_in_some_steps,),
    do=f"Recompute the same few prompts in both engines. {_INPUTS}",
    reports=("NeMo-RL #2100", "NeMo-RL #2141", "NeMo-RL #4243"), explains=_TAILS,
)  # fmt: skip
cause(
    "one_environment", Family.MISMATCH, "One environment is computed differently in sampler and trainer",
    requires=(HELD_BY["environment"],), supports={mismatch_at_first_tokens: 1.0}, do=_INPUTS,
    reports=("TRL #6294", "TRL #6401", "OpenRLHF #1220"), explains=_TAILS,
)  # fmt: skip
cause(
    "one_server", Family.MISMATCH, "One inference server differs from the others",
    requires=(HELD_BY["engine"],), do="Compare the weight checksum and launch flags of this server with the others'.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "one_rank", Family.MISMATCH, "One rank of the trainer differs from the others",
    requires=(HELD_BY["rank"],), do="Compare how this rank packs and gathers log-probabilities with the others.",
    reports=("AReno #511",), explains=_TAILS,
)  # fmt: skip
cause(
    "rank_of_other_tokens", Family.MISMATCH, "The values of one rank of the trainer belong to other tokens",
    requires=(HELD_BY["rank"], one_rank_is_uncorrelated),
    do="Look at the order in which this rank packs and unpacks responses.",
    reports=("AReno #511",), explains=(*_TAILS, "own_token", "denominator_wrong"),
)  # fmt: skip
cause(
    "one_adapter", Family.MISMATCH, "One adapter differs in sampler and trainer",
    requires=(HELD_BY["adapter"],), do="Compare the adapter weights that the sampler has loaded with the trainer's.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "turns_rendered_anew", Family.MISMATCH, "Turns begin in another context in the trainer than in the sampler",
    requires=(HELD_BY["turn_start"],), do="Train on the sampled token ids; do not render the conversation again.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "old_behind_a_change", Family.MISMATCH,
    "Behind a change of version in a response, tokens are in part of older weights",
    requires=(mismatch_behind_a_change,),
    do="Compute the KV cache anew when new weights arrive within a response, or label tokens by what computed them.",
    reports=("SkyRL #2246", "SkyRL #1798", "SkyRL #979"), explains=_TAILS,
)  # fmt: skip
cause(
    "expert_routing", Family.MISMATCH, "Sampler and trainer choose other experts",
    requires=(HELD_BY["routing"],), do="Replay the sampler's expert routing in the trainer.",
    settings={"verl": "actor_rollout_ref.actor.megatron.router_replay.mode=R3",
              "prime_rl": "trainer.enable_router_replay = true", "slime": "--use-rollout-routing-replay"},
    explains=(*_TAILS, "own_token"),
)  # fmt: skip
cause(
    "some_tokens", Family.MISMATCH, "Particular tokens of the vocabulary are computed differently",
    requires=(mismatch_of_some_tokens,),
    refutes=(*_AT_A_PLACE, sampler_avoids_repeats, mismatch_of_the_last_token_at_the_limit),
    do="Compare the rows of these tokens in embedding and output layer of both engines: added tokens, a resized "
    "vocabulary.",
    explains=_TAILS,
)  # fmt: skip
cause(
    "late_from_a_token_on", Family.MISMATCH, "From one token on, values of some responses belong to other tokens",
    requires=(shifted_from_a_token_on,),
    do="Train on the sampled token ids, with their log-probabilities: ids that are made anew from the text differ.",
    reports=("rllm #816", "rllm #898", "eval-protocol #457"), explains=(*_TAILS, "mean_ratio"),
)  # fmt: skip
cause(
    "kernel_boundary", Family.MISMATCH, "Both engines compute the same up to one position and differ from there on",
    requires=(identical_then_not,), do="Look for a block, window or kernel limit there: KV cache, attention, chunks.",
    reports=("SGLang #25790", "vLLM #54035"),
)  # fmt: skip
cause(
    "rounded_update", Family.MISMATCH, "The sampler follows in part: each update is rounded on its way",
    requires=(mismatch_starts_small,),
    refutes=(*_AT_A_PLACE, mismatch_varies, mismatch_at_first_tokens, mismatch_falls_back, mismatch_keeps_growing,
             mismatch_follows_updates, mismatch_steps_up),
    do="Send the update in float32, or merge the adapter in float32 before it is rounded.",
    reports=("NeMo-RL #3696", "TRL #6688", "miles_diffusion #129"), explains=("sampler_not_following",),
)  # fmt: skip
cause(
    "labels_too_young", Family.MISMATCH, "Version labels are too young: tokens are older than labelled",
    requires=(mismatch_starts_small,),
    supports={mismatch_at_first_tokens: 0.5, mismatch_follows_updates: 2.0, HELD_BY["age"]: 0.5},
    refutes=(*_AT_A_PLACE, mismatch_keeps_growing, mismatch_falls_back, mismatch_steps_up),
    do="Label each token with the version that sampled it, when it was sampled.", columns=("behavior_version",),
    reports=("AReaL #1736", "verl #7568", "verl #7569", "miles #3334"),
    explains=("sampler_not_following", "engine_mismatch"),
)  # fmt: skip
cause(
    "weights_never_arrive", Family.MISMATCH, "New weights never arrive at the sampler",
    requires=(sampler_is_frozen,), supports={mismatch_starts_small: 1.0, mismatch_keeps_growing: 1.0},
    refutes=_AT_A_PLACE, do="Compare a checksum of the sampler's weights with the trainer's after a push.",
    reports=("verl #7495", "verl #4248"), explains=_TAILS, severity=Severity.CRITICAL,
)  # fmt: skip
cause(
    "part_not_sent", Family.MISMATCH, "Updates are not synced to the sampler, all of them or some tensors",
    requires=(mismatch_starts_small, mismatch_keeps_growing), supports={mismatch_follows_updates: 1.5},
    refutes=(*_AT_A_PLACE, mismatch_falls_back, sampler_is_frozen),
    do="Compare checksums of single tensors in sampler and trainer after a push.", explains=_TAILS,
)  # fmt: skip
cause(
    "engines_drift_apart", Family.MISMATCH, "The mismatch of the engines grows with training",
    requires=(mismatch_keeps_growing,), supports={mismatch_starts_small: 1.0},
    refutes=(*_AT_A_PLACE, mismatch_falls_back, mismatch_follows_updates, sampler_is_frozen),
    do="Compare both engines on the weights of the last step: number format of the last layer, kernels.",
    reports=("verl #6780", "verl #7519"), explains=_TAILS,
)  # fmt: skip
cause(
    "other_from_a_step", Family.MISMATCH, "From one step on sampler and trainer compute differently",
    requires=(mismatch_steps_up,), refutes=(*_AT_A_PLACE, mismatch_follows_updates, sampler_is_frozen),
    do="Look at what happened to the sampler before this step: a restart, waking from sleep, a reload, a new setting.",
    reports=("NeMo-RL #2631", "vLLM #29341", "TRL #5312"), explains=_TAILS,
)  # fmt: skip
cause(
    "older_weights_for_some_steps", Family.MISMATCH, "The sampler had other, older weights in a few steps",
    requires=(mismatch_in_some_steps,), refutes=tuple(each for each in _AT_A_PLACE if each is not HELD_BY["prompt"]),
    do="Push the weights before the first rollout after a start or a restart.", explains=_TAILS,
)  # fmt: skip
cause(
    "long_contexts", Family.MISMATCH, "Kernels of sampler and trainer differ more in long contexts",
    requires=(mismatch_grows_with_position,), supports={HELD_BY["absolute"]: 1.0},
    refutes=(*_AT_A_PLACE, HELD_BY["turn"], identical_then_not, mismatch_near_the_limit),
    do="Compare attention kernels and the number format of the KV cache.", reports=("Megatron-LM #76",),
)  # fmt: skip
cause(
    "padding", Family.MISMATCH, "Padding reaches the log-probabilities: short responses of a batch differ more",
    requires=(mismatch_of_short_responses,),
    refutes=(*_AT_A_PLACE, identical_then_not, mismatch_near_the_limit, shifted_from_a_token_on),
    do="Compare a short response alone with the same one in a padded batch: attention mask and position ids.",
    reports=("NeMo-Aligner #68", "trlx #509"), explains=_TAILS,
)  # fmt: skip
cause(
    "end_forced", Family.MISMATCH, "The token that ends a response is forced at the length limit, and not drawn",
    requires=(mismatch_of_the_last_token_at_the_limit,),
    do="Leave the forced token out of the loss.",
    explains=(*_TAILS, "mean_ratio", "truncated_support"),
)  # fmt: skip
cause(
    "near_the_limit", Family.MISMATCH, "The engine is wrong near the length limit",
    requires=(mismatch_near_the_limit,),
    refutes=(*_AT_A_PLACE, identical_then_not, mismatch_of_the_last_token_at_the_limit),
    do="Raise the context length of the server above the length limit, or leave these positions out.",
    reports=("vLLM #38711", "vLLM #53488"), explains=_TAILS,
)  # fmt: skip
cause(
    "repetition_penalty", Family.MISMATCH, "The sampler punishes tokens that it has written before",
    requires=(sampler_avoids_repeats,),
    do="Turn off repetition, presence and frequency penalties of the sampler.", explains=_TAILS,
)  # fmt: skip


@check(order=275, needs=ENGINE_COLUMNS, page="engine", of_the_run=True)
def mismatch_cause(evidence: LogEvidence) -> list[Finding]:
    """Why sampler and trainer differ at one version: a server, prompts, a cache, an update that was rounded."""
    if len(evidence.fresh) < _FEWEST_TOKENS:
        return not_checked(f"The engine's part is known of fewer than {_FEWEST_TOKENS:,} tokens.")
    if _differing(evidence) is None:
        return passed("With the same weights both engines agree to rounding.")
    found = findings_of(
        Family.MISMATCH, evidence, framework_of(evidence.run.manifest), lambda one: _cost(evidence, one)
    )
    placed = "".join(f" {place.clause}." for place in places_of(evidence)[:1])
    return found or passed(f"No known cause of a mismatch shows its signs.{placed}")


def _cost(evidence: LogEvidence, suspect: Suspect) -> Severity:
    """A notice where the mismatch is that of healthy engines, in its steps and place."""
    level = float(shortfall(evidence.fresh).mean())
    dense = next((sign.reading.value for sign in suspect.speaking if sign.mark in _AT_A_PLACE), 1.0)
    return suspect.cause.severity if level * dense > HEALTHY_TV else Severity.NOTICE
