"""Marks of a mismatch within responses: at which positions, tokens, lengths and rows sampler and trainer differ."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.finding import Example
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.findings.words import listed
from ratioscope.analysis.linter.alignment import shifted
from ratioscope.analysis.linter.check import ENGINE_COLUMNS
from ratioscope.analysis.linter.differing import (
    AT_ONCE,
    FEWEST_FRESH,
    HELD_BY,
    differing,
    engine_columns,
    levels,
    lift,
)
from ratioscope.analysis.linter.evidence import EXAMPLES, SURE, LogEvidence
from ratioscope.analysis.linter.own_token import UNCORRELATED
from ratioscope.analysis.linter.place import DIVIDED_BY, LEAST_LIFT, expected, places_of, shortfall, strata
from ratioscope.analysis.linter.stand_ins import is_one_of
from ratioscope.analysis.runs.left_out import LeftOut

_EQUAL = 1e-6
_LEAST_EQUAL = 0.05
"""Share of the unsure tokens with the very same value: of engines that differ nearly none."""
_FEWEST_RESPONSES = 50
_QUANTILES = 5
_SHARPER = 0.5
"""Share of the spread over positions in the response that is left of it where the prompt is counted."""
_NEAR_LIMIT = 8
"""Positions before the length limit."""
_SHORTEST_PERIOD, _LONGEST_PERIOD, _FEWEST_AT_ONE = 4, 1024, 30
_HELD_BY_PERIOD = 0.6
"""Sizes of blocks, tokens at a position of the response that is judged alone, and what one of a block must hold."""
_FEWEST_LENGTHS, _FEWEST_CUT, _PILE = 4, 8, 3
"""Lengths of prompts, groups with the largest one, and how much commoner it is than any other where prompts are cut."""
_SHORT_TIMES = 1.5
"""How much longer than a short prompt a long one is."""
_FAR_APART, _FEWEST_FAR, _FEWEST_SHIFTED = 0.1, 5, 10
"""Nats between values of different tokens, how many such tokens a shifted response has, and such responses a log."""
_FEWEST_GROUPS, _FAR_BELOW = 20, 0.5
"""Prompt groups on either side, and by how many of their deviations rewards differ between ranks."""
_LEFT_OVER = 0.2
"""Share of the distance that is left against the row before, and ahead of the token where a shift begins."""


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_grows_with_position(evidence: LogEvidence) -> MarkReading | None:
    """The later a token stands in its response, the larger is its mismatch."""
    frame = differing(evidence)
    if frame is None:
        return None
    rises = _by_position(frame)
    if len(rises) < _QUANTILES - 1:
        return None
    times = float(rises.iloc[-1] / rises.iloc[0]) if rises.is_monotonic_increasing and rises.iloc[0] > 0 else 1.0
    return MarkReading(
        times,
        f"the mismatch grows with the position: the last {100 // _QUANTILES}% of positions have {number(times)} × "
        "that of the first",
        evidence.all_steps,
        engine_columns(evidence),
    )


def _by_position(frame: pd.DataFrame) -> "pd.Series[float]":
    """The mismatch of each part of the positions, equal in size, as a multiple of what probabilities explain."""
    return levels(frame, pd.qcut(frame["position"], _QUANTILES, labels=False, duplicates="drop"))


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_fades_with_position(evidence: LogEvidence) -> MarkReading | None:
    """The later a token stands in its response, the smaller is its mismatch, in either half of the prompt groups."""
    frame = differing(evidence)
    if frame is None:
        return None
    # Of responses that reach the last of these positions: shorter ones may be others.
    reached = frame["last_position"].quantile(0.5)
    frame = frame[(frame["last_position"] >= reached) & (frame["position"] <= reached)]
    side = frame.groupby(["step", "group_id"], sort=False).ngroup() % 2
    halves = [frame[side == each] for each in (0, 1)]
    if min(map(len, halves)) < FEWEST_FRESH / 2 or reached < 2 * _QUANTILES:
        return None
    whole, falls = _by_position(frame), [_by_position(half) for half in halves]
    if min(map(len, (whole, *falls))) < _QUANTILES - 1:
        return None
    fades = whole.is_monotonic_decreasing
    times = min(float(each.iloc[0] / max(each.iloc[-1], 1e-3)) for each in falls) if fades else 1.0
    return MarkReading(
        times,
        f"the first {100 // _QUANTILES}% of positions have {number(times)} × the mismatch of the last",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, GROUP), limit=2.0)
def mismatch_behind_the_first(evidence: LogEvidence) -> MarkReading | None:
    """All but the first response of a group have several times its mismatch, in either half of the prompt groups."""
    frame = differing(evidence)
    if frame is None:
        return None
    group = frame.groupby(["step", "group_id"], sort=False)
    behind, side = group["seq_id"].transform("min") < frame["seq_id"], group.ngroup() % 2
    if min(behind.sum(), (~behind).sum()) < FEWEST_FRESH:
        return None
    times = min(lift(frame[side == half], behind[side == half]) for half in (0, 1))
    return MarkReading(
        times,
        f"they have {number(times)} × the mismatch of the first",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=1.5)
def mismatch_of_short_responses(evidence: LogEvidence) -> MarkReading | None:
    """At the same positions short responses have a larger mismatch than long ones."""
    frame = differing(evidence)
    if frame is None:
        return None
    length = frame["last_position"] + 1
    of_response = length.groupby([frame["step"], frame["seq_id"]]).first()
    short, long = of_response.quantile([0.25, 0.75])
    near = frame["position"] < short
    frame, length = frame[near], length[near]
    outer = (length <= short) | (length >= long)
    if long < 2 * short or outer.sum() < FEWEST_FRESH:
        return None
    times = lift(frame[outer], (length <= short)[outer])
    return MarkReading(
        times,
        f"responses of {short:.0f} tokens or less have {number(times)} × the mismatch of those of {long:.0f} or more, "
        "at the same positions",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=2.0)
def mismatch_near_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """The last positions before the longest response's end have several times the mismatch of those before them."""
    frame = differing(evidence)
    if frame is None:
        return None
    longest = int(frame["position"].max())
    frame = frame[frame["position"] > longest - 4 * _NEAR_LIMIT]
    near = frame["position"] > longest - _NEAR_LIMIT
    reached = frame.loc[near, ["step", "seq_id"]].drop_duplicates()
    if longest < 4 * _NEAR_LIMIT or len(reached) < _FEWEST_RESPONSES / 2:
        return None
    times = lift(frame, near)
    return MarkReading(
        times,
        f"positions {longest - _NEAR_LIMIT + 1} to {longest}, the last before the length limit, have {number(times)} × "
        "the mismatch of those before them",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_tokens",)), limit=2.0)
def mismatch_of_the_longest_prompts(evidence: LogEvidence) -> MarkReading | None:
    """Prompts of the largest length, which many share as if cut there, have several times the mismatch of others."""
    frame = differing(evidence)
    if frame is None:
        return None
    prompt = (frame["absolute"] - frame["position"]).dropna()
    frame = frame.loc[prompt.index]
    groups = pd.DataFrame({"length": prompt, "prompt": frame["prompt_id"]}).groupby([frame["step"], frame["group_id"]])
    lengths, prompts = groups["length"].max(), groups["prompt"].first()
    if lengths.nunique() < _FEWEST_LENGTHS:
        return None
    longest, others = lengths.max(), lengths[lengths < lengths.max()]
    shared = lengths == longest
    known = prompts[shared].dropna()
    if (len(known) and known.nunique() < _FEWEST_CUT) or min(shared.sum(), len(others)) < _FEWEST_CUT:
        return None
    if shared.sum() < _PILE * others.value_counts().max():
        return MarkReading(1.0, "")
    side = frame.groupby(["step", "group_id"], sort=False).ngroup() % 2
    # Of the others, the longer half: what grows with the length of prompts is no cut.
    near = prompt >= others.median()
    times = min(lift(frame[part], (prompt == longest)[part]) for half in (0, 1) for part in [near & (side == half)])
    return MarkReading(
        times,
        f"prompts of {longest:.0f} tokens, the longest and commonest, have {number(times)} × "
        "the mismatch of shorter ones",
        evidence.all_steps,
        engine_columns(evidence),
        place=f"prompts of {longest:.0f} tokens",
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.prompt_tokens",)), limit=1.5)
def mismatch_of_short_prompts(evidence: LogEvidence) -> MarkReading | None:
    """At the same positions responses to short prompts have a larger mismatch than those to long ones, in either half
    of the groups."""
    frame = differing(evidence)
    if frame is None:
        return None
    prompt = (frame["absolute"] - frame["position"]).dropna()
    frame = frame.loc[prompt.index]
    of_group = prompt.groupby([frame["step"], frame["group_id"]]).first()
    if of_group.nunique() < _FEWEST_LENGTHS or len(of_group) < 4 * _FEWEST_GROUPS:
        return None
    short, long = of_group.quantile([0.25, 0.75])
    if long < _SHORT_TIMES * short:
        return MarkReading(1.0, "")
    side = frame.groupby(["step", "group_id"], sort=False).ngroup() % 2
    outer = (prompt <= short) | (prompt >= long)
    times = min(lift(frame[part], (prompt <= short)[part]) for half in (0, 1) for part in [outer & (side == half)])
    return MarkReading(
        times,
        f"responses to prompts of {short:.0f} tokens or less have {number(times)} × the mismatch of those of "
        f"{long:.0f} or more",
        evidence.all_steps,
        engine_columns(evidence),
    )


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def mismatch_is_periodic(evidence: LogEvidence) -> MarkReading | None:
    """One position of each block of equal size has many times the mismatch of all others, in every block."""
    frame = differing(evidence)
    if frame is None:
        return None
    found = [_periodic(frame, frame[name]) for name in ("position", "absolute")]
    best = max((each for each in found if each is not None), key=lambda each: each[0], default=None)
    if best is None:
        return None
    times, period, at, held, counted = best
    if held < _HELD_BY_PERIOD:
        return MarkReading(1.0, "")
    return MarkReading(
        times,
        f"{percent(held)} of the mismatch is at position {at} of every {period}, counted from 0{counted}",
        evidence.all_steps,
        engine_columns(evidence),
        place=f"position {at} of every {period}",
    )


def _periodic(frame: pd.DataFrame, counted: "pd.Series") -> tuple[float, int, int, float, str] | None:
    """The least times the mismatch of the others in a block, its size, the position in it, what that holds, words.

    Args:
        counted: positions, in the response or with the prompt; missing: not known.
    """
    known = counted.notna()
    if known.sum() < FEWEST_FRESH:
        return None
    frame = frame[known]
    places, at, n = np.unique(counted[known].to_numpy(dtype=int), return_inverse=True, return_counts=True)
    distance = shortfall(frame)
    # Positions that few responses reach say nothing alone.
    enough = n >= _FEWEST_AT_ONE
    reached = places[enough]
    held, should = (np.bincount(at, of)[enough] for of in (distance, expected(distance, strata(frame))))
    best = None
    for period in range(_SHORTEST_PERIOD, min(_LONGEST_PERIOD, len(reached) // 2) + 1):
        of = reached % period
        inside = np.bincount(of, held, period)
        first = int(inside.argmax())
        chosen, others = of == first, of != first
        level = held[others].sum() / max(should[others].sum(), 1e-12)
        if chosen.sum() < 2 or not inside.sum() > 0:
            continue
        least = float((held[chosen] / np.maximum(should[chosen], 1e-12)).min() / max(level, 1e-6))
        if best is None or least > best[0]:
            best = least, period, first, float(inside[first] / inside.sum())
    if best is None:
        return None
    return *best, "" if counted.name == "position" else " with the prompt"


@mark(needs=ENGINE_COLUMNS, limit=5.0)
def mismatch_of_the_last_token_at_the_limit(evidence: LogEvidence) -> MarkReading | None:
    """The last token of the longest responses has many times the mismatch of all others, and the sampler is surer."""
    frame = differing(evidence)
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
        engine_columns(evidence),
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


@mark(needs=ENGINE_COLUMNS, limit=0.8)
def identical_then_not(evidence: LogEvidence) -> MarkReading | None:
    """Sampler and trainer give the very same values up to some position of a response, and others from there on."""
    frame = differing(evidence)
    if frame is None:
        return None
    unsure = frame[frame["logp_behavior"] < SURE]
    # Responses that agree to their end, as all do before the first update, say nothing of a boundary.
    parts = (unsure["fresh"].abs() > _EQUAL).groupby([unsure["step"], unsure["seq_id"]]).transform("any")
    unsure = unsure[parts]
    equal = (unsure["fresh"].abs() <= _EQUAL).to_numpy()
    if len(unsure) < FEWEST_FRESH:
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
    if evidence.rounding and not at_first >= AT_ONCE * after:  # what grows from below the rounding seems equal at first
        return None
    where = _boundary(begins, unsure["absolute"].where(~equal).groupby(of).min()[agrees])
    return MarkReading(
        share,
        f"values are identical up to {where}, and {percent(beyond)} are from there on",
        evidence.all_steps,
        engine_columns(evidence),
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
    frame = differing(evidence)
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
        engine_columns(evidence),
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
        engine_columns(evidence),
        place=f"rank {worst['rank']:.0f}",
        wrong_rows=LeftOut(
            f"rank {listed(far)}, whose log-probabilities belong to other tokens",
            *is_one_of("rank", far),
        ),
    )


@mark(needs=(*ENGINE_COLUMNS, ("sequences.rank",), ("sequences.reward",)), limit=4.0)
def reward_is_low_on_these_ranks(evidence: LogEvidence) -> MarkReading | None:
    """Where a few ranks hold the mismatch, their rewards are far below those of the others; standard errors."""
    place = next((each for each in places_of(evidence) if each.dimension == "rank"), None)
    if place is None or differing(evidence) is None:
        return None
    rows = evidence.frame(
        f"""
        select rank in ({", ".join(place.labels)}) as there, avg(reward::double) as reward from sequence
        where rank is not null and isfinite(reward) and dropped is null group by step, group_id, there
        """
    )
    there, elsewhere = (rows["reward"][rows["there"] == each] for each in (True, False))
    if min(len(there), len(elsewhere)) < _FEWEST_GROUPS:
        return None
    low = float(elsewhere.mean() - there.mean())
    error = float(there.var() / len(there) + elsewhere.var() / len(elsewhere)) ** 0.5
    far = low > _FAR_BELOW * float(rows["reward"].std()) and error > 0
    return MarkReading(
        low / error if far else 0.0,
        f"their mean reward is {number(float(there.mean()))}, that of the others {number(float(elsewhere.mean()))}",
        evidence.all_steps, ("reward",),
    )  # fmt: skip
