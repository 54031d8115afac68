"""Where a mismatch sits, beyond what the probability of tokens alone explains: which server, prompt, turn, position.

for place in places_of(evidence):                     # the one that explains most first
    place.words, place.held, place.expected           # "environment image", 0.98, 0.51

A difference of logits moves a sure token less than an open one, so each token is expected to differ as its stratum of
probability does. Of a dimension those levels are taken that hold half of the distance in one half of the prompt groups;
what they hold in the other half, over what is expected there, is the lift: 1 where chance chose them. Further places
are looked for beyond those found before, so that a server is not blamed for its prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.logged import Need
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import listed, named_part
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.sample import Floats
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.what_if.tokens import starts_of
from ratioscope.errors import RatioscopeError

# 1 - p: strata in which tokens are alike.
_STRATA = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.97, 1.0)
LEAST_LIFT = 1.25
"""Healthy logs come to 0.98 to 1.03, whatever the dimension."""
_LEAST_RATIO = 1.2
_FEWEST_TOKENS, _FEWEST_GROUPS = 1000, 8
# What is expected of a level with few tokens is drawn towards the whole, by this share of the distance a level.
_SHRINK = 0.01
_ALIKE_LIFT = 0.97
_MOST_PLACES, _MOST_NAMED = 3, 3
_MOST_TOKENS, _LONGEST_TOKEN = 4, 20
"""Tokens that are named by their texts, and signs of one."""
_FIRST_TOKENS = 4
_LEAST_APART = 0.25
"""How far prompts must differ in length, as a share of how far positions do, for their sum to be another dimension."""
_ALIKE = 0.9
"""Agreement of the experts' routing from which on it is nearly complete."""


@dataclass(frozen=True)
class Place:
    """A part of the tokens that holds more of the mismatch than it should."""

    dimension: str
    labels: tuple[str, ...]
    """Its levels, as text of the log."""
    n_levels: int
    lift: float
    held: float
    """Share of the mismatch that it holds."""
    expected: float
    """Share that the probability of its tokens explains."""
    held_of_log: float
    """Share of Σ|log ρ| that it holds, which is not bounded."""
    named: bool = False
    """Whether the levels are token ids and their labels texts of tokens."""
    in_a_row: bool = False
    """Whether the levels are neighbours in their order, with none between them left out."""

    @property
    def words(self) -> str:
        """The part, as a subject."""
        if self.named:
            return named_tokens(self.labels, self.n_levels)
        divided = DIVIDED_BY[self.dimension]
        if self.in_a_row and len(self.labels) > 2:
            return f"{divided.plural} {self.labels[0]} to {self.labels[-1]}"
        if len(self.labels) > _MOST_NAMED:
            return f"{len(self.labels)} of {self.n_levels} {divided.plural}"
        return named_part(divided.title, self.labels)

    def holds(self, frame: pd.DataFrame) -> NDArray[np.bool_]:
        """Which tokens of `LogEvidence.fresh` are in it, (n_rows,); of a dimension whose levels are not joined."""
        codes, levels = pd.factorize(DIVIDED_BY[self.dimension].levels(frame))
        inside = np.isin(_labels(DIVIDED_BY[self.dimension], levels), self.labels)
        return np.asarray((codes >= 0) & inside[codes])

    @property
    def clause(self) -> str:
        """The part with what it holds."""
        shares = f"{percent(self.expected)} expected from token probability; {percent(self.held_of_log)} of |log ρ|"
        return f"{percent(self.held)} of the mismatch is in {self.words} ({shares})"


@dataclass(frozen=True)
class Divided:
    """A dimension of `DIVIDED_BY`."""

    title: str
    needs: tuple[Need, ...]
    levels: "Callable[[pd.DataFrame], pd.Series]"
    """Of the frame `LogEvidence.fresh`; missing: in no level. Numbers are in order, and neighbours are named as one."""
    doubling: bool = False
    """Whether a level n stands for n to 2n - 1."""
    ordered: bool = False
    """Whether levels that are neighbours are named by the first and the last of them."""
    many: str = ""

    @property
    def plural(self) -> str:
        """The title of several levels."""
        return self.many or f"{self.title.rstrip(':')}{'' if self.title.endswith(('s', ':')) else 's'}"


def _doubling(values: "pd.Series[int]") -> "pd.Series":
    """Levels of a count that double: 0, 1, 2 to 3, 4 to 7."""
    counts = values.to_numpy(dtype=np.int64)
    low = np.where(counts > 0, 2 ** np.floor(np.log2(np.maximum(counts, 1))).astype(np.int64), 0)
    return pd.Series(low, index=values.index)


def _recurring(frame: pd.DataFrame) -> "pd.Series":
    """Prompts that three updates or more asked."""
    return frame["prompt_id"].where(frame.groupby("prompt_id")["step"].transform("nunique") > 2)


def _asked_before(frame: pd.DataFrame) -> "pd.Series":
    return frame["visit"].gt(0).map({True: "sampled before", False: "sampled for the first time"}).where(
        frame["visit"].notna()
    )  # fmt: skip


def _written_before(frame: pd.DataFrame) -> "pd.Series":
    again = frame.groupby(["step", "seq_id", "token_id"]).cumcount() > 0
    return again.map({True: "written before", False: "new in the response"}).where(frame["token_id"].notna())


def _turn_starts(frame: pd.DataFrame) -> "pd.Series":
    response = [frame["step"], frame["seq_id"]]
    begins = frame.groupby([*response, frame["turn"]])["position"].transform("min")
    several = frame.groupby(response)["turn"].transform("nunique") > 1
    near = frame["position"] - begins < _FIRST_TOKENS
    return near.map({True: f"first {_FIRST_TOKENS} tokens", False: "later tokens"}).where(several)


def _routing(frame: pd.DataFrame) -> "pd.Series":
    agreement = frame["routing_agreement"]
    return agreement.ge(_ALIKE).map({True: "alike", False: "different"}).where(agreement.notna())


def _absolute(frame: pd.DataFrame) -> "pd.Series":
    """Positions with the prompt before them, where prompts differ in length: elsewhere they say nothing more."""
    absolute = frame["absolute"].dropna().astype(float)
    position = frame["position"][absolute.index].astype(float)
    spreads = [each.quantile(0.9) - each.quantile(0.1) for each in (absolute - position, position)]
    counted = absolute if spreads[0] > _LEAST_APART * spreads[1] else absolute[:0]
    return _doubling(counted.astype(int)).reindex(frame.index)


def _behind_change(frame: pd.DataFrame) -> "pd.Series":
    behind = frame["behind_change"].dropna().astype(int)
    return _doubling(behind).reindex(frame.index)


def _before_change(frame: pd.DataFrame) -> "pd.Series":
    ahead = frame["before_change"].dropna().astype(int)
    return _doubling(ahead).reindex(frame.index)


def _halves(frame: pd.DataFrame) -> "pd.Series":
    return frame["later_half"].map({True: "later half of their responses", False: "earlier half of their responses"})


def _segments(frame: pd.DataFrame) -> "pd.Series":
    later = "after the first" + frame["history_break"].map(" ({})".format, na_action="ignore").fillna("")
    return later.where(frame["segment_id"] > 0, "the first").where(frame["segment_id"].notna())


def _of_response(column: str) -> Divided:
    return Divided({"engine": "server"}.get(column, column), ((f"sequences.{column}",),), lambda frame: frame[column])


_PROMPTS: tuple[Need, ...] = (("sequences.prompt_id",),)
DIVIDED_BY: dict[str, Divided] = {
    **{column: _of_response(column) for column in ("engine", "rank", "environment", "adapter")},
    "prompt": Divided("prompt", _PROMPTS, _recurring),
    "repeated": Divided("prompts", _PROMPTS, _asked_before),
    "turn": Divided("turn", (("turn",),), lambda frame: frame["turn"], ordered=True),
    "segment": Divided("segments:", (("segment_id",),), _segments),
    "turn_start": Divided("turns:", (("turn",),), _turn_starts),
    "version_change": Divided(
        "tokens behind a change of version:", (("behavior_version",),), _behind_change, doubling=True
    ),
    "version_ahead": Divided(
        "tokens before a change of version:", (("behavior_version",),), _before_change, doubling=True
    ),
    "age": Divided(
        "age in versions",
        (("behavior_version",), ("logp_behavior_train",)),
        lambda frame: frame["version_lag"],
        ordered=True,
        many="ages",
    ),
    "position": Divided("position", (), lambda frame: _doubling(frame["position"]), doubling=True),
    "absolute": Divided(
        "position with the prompt",
        (("sequences.prompt_tokens",),),
        _absolute,
        doubling=True,
        many="positions with the prompt",
    ),
    "end": Divided(
        "tokens before the end:", (), lambda frame: _doubling(frame["last_position"] - frame["position"]), doubling=True
    ),
    "packed": Divided("micro-batches:", (("sequences.micro_batch",), ("sequences.rank",)), _halves),
    "routing": Divided("expert routing", (("routing_agreement",),), _routing),
    "written": Divided("tokens", (("token_id",),), _written_before),
    "token": Divided("token id", (("token_id",),), lambda frame: frame["token_id"]),
}


def named_tokens(texts: Sequence[str], n: int) -> str:
    """Some of a vocabulary's n tokens by their texts, as a subject."""
    if len(texts) == 1:
        return f"token {texts[0]}"
    if len(texts) <= _MOST_TOKENS:
        return f"tokens {listed(list(texts))}"
    return f"{len(texts)} of {n} tokens ({', '.join(texts[:_MOST_NAMED])}, …)"


def quoted_tokens(run: Run | None) -> dict[str, str]:
    """By token id, as text, the quoted text of a token; empty where the run has no vocabulary that can be read."""
    try:
        known = run.vocabulary() if run is not None else {}
    except RatioscopeError:  # other checks say so
        return {}
    return {str(token): repr(text[:_LONGEST_TOKEN]) for token, text in known.items()}


def shortfall(frame: pd.DataFrame) -> Floats:
    """The bounded distance of each token of `LogEvidence.fresh`, (1 - ρ)+, (n_rows,)."""
    with np.errstate(over="ignore"):
        return np.maximum(-np.expm1(frame["fresh"].to_numpy(dtype=float)), 0.0)


def strata(frame: pd.DataFrame) -> NDArray[np.int64]:
    """The stratum of probability of each token, (n_rows,)."""
    unsure = -np.expm1(np.minimum(frame["logp_behavior"].to_numpy(dtype=float), 0.0))
    return np.searchsorted(_STRATA, unsure).astype(np.int64)


def expected(distance: Floats, stratum: NDArray[np.int64]) -> Floats:
    """What each token should contribute: the mean of its stratum, (n_rows,)."""
    size = np.bincount(stratum)
    return np.asarray((np.bincount(stratum, distance) / np.maximum(size, 1))[stratum])


def places_of(evidence: LogEvidence) -> tuple[Place, ...]:
    """The places of the engine's part, found once; the one that explains most first."""
    return evidence.once("places", lambda: _with_texts(places(evidence.fresh), evidence.run))


def _with_texts(found: tuple[Place, ...], run: Run | None) -> tuple[Place, ...]:
    """Token ids by the texts of their tokens, where the run has all of them."""
    texts = quoted_tokens(run) if any(place.dimension == "token" for place in found) else {}
    return tuple(
        replace(place, labels=tuple(texts[label] for label in place.labels), named=True)
        if place.dimension == "token" and texts.keys() >= {*place.labels}
        else place
        for place in found
    )


def places(frame: pd.DataFrame) -> tuple[Place, ...]:
    """Where the distance of some tokens sits.

    Args:
        frame: as `LogEvidence.fresh`.
    """
    if len(frame) < _FEWEST_TOKENS:
        return ()
    distance, stratum = shortfall(frame), strata(frame)
    apart = np.abs(frame["fresh"].to_numpy(dtype=float))
    group = frame.groupby(["step", "group_id"], sort=False).ngroup().to_numpy().astype(np.int64)
    if not distance.sum() > 0 or group[-1] + 1 < _FEWEST_GROUPS:
        return ()
    left = {}
    for name, dimension in DIVIDED_BY.items():
        codes, labels = pd.factorize(dimension.levels(frame))
        if len(labels) > 1:
            left[name] = codes.astype(np.int64), labels
    found: list[Place] = []
    while left and len(found) < _MOST_PLACES:
        should = expected(distance, stratum)
        looks = [look for name, of in left.items()
                 if (look := _looked_at(name, *of, distance, apart, should, group)) is not None]  # fmt: skip
        largest = max((look[0].lift for look in looks), default=0.0)
        if largest <= LEAST_LIFT:
            break
        # Of dimensions that explain it alike the one that is declared first: a turn begins at a position, too.
        place, inside = next(look for look in looks if look[0].lift >= _ALIKE_LIFT * largest)
        found.append(place)
        del left[place.dimension]
        stratum = (2 * stratum + inside).astype(np.int64)
    return tuple(found)


def _looked_at(
    name: str, codes: NDArray[np.int64], labels: "pd.Index", distance: Floats, apart: Floats, should: Floats,
    group: NDArray[np.int64],
) -> "tuple[Place, NDArray[np.int64]] | None":  # fmt: skip
    """What a dimension holds, and which tokens are in its place."""
    known = codes >= 0
    if known.sum() < _FEWEST_TOKENS:
        return None
    n = len(labels)
    fold = _folds(codes[known], group[known])
    held = [np.bincount(codes[known][fold == side], distance[known][fold == side], n) for side in (0, 1)]
    fair = [np.bincount(codes[known][fold == side], should[known][fold == side], n) for side in (0, 1)]
    both = (fair[0] > 0) & (fair[1] > 0)
    if both.sum() < 2 or not min(held[0][both].sum(), held[1][both].sum()) > 0:
        return None
    lifts = []
    for one, other in ((0, 1), (1, 0)):
        few = _SHRINK * fair[one].sum() / n
        density = np.where(both, (held[one] + few) / (fair[one] + few), -1.0)
        order = np.argsort(-density)
        chosen = order[: int(np.searchsorted(np.cumsum(held[one][order]), held[one][both].sum() / 2)) + 1]
        chosen = chosen[both[chosen]]
        lifts.append(
            (held[other][chosen].sum() / held[other][both].sum())
            / (fair[other][chosen].sum() / fair[other][both].sum())
        )
    lift = min(lifts)
    total, share = held[0] + held[1], fair[0] + fair[1]
    dense = both & (total > max(_LEAST_RATIO, lift / 2) * share)
    if not dense.any():
        return None
    order = np.flatnonzero(dense)
    order = order[np.argsort(-total[order])]
    in_a_row = False
    if DIVIDED_BY[name].ordered:
        order = order[np.argsort(labels[order])]
        in_a_row = int(((labels >= labels[order[0]]) & (labels <= labels[order[-1]])).sum()) == len(order)
    inside = dense[np.maximum(codes, 0)] & known
    place = Place(
        name,
        _labels(DIVIDED_BY[name], labels[order]),
        n,
        float(lift),
        float(total[dense].sum() / total.sum()),
        float(share[dense].sum() / share.sum()),
        float(apart[inside].sum() / apart[known].sum()),
        in_a_row=in_a_row,
    )
    return place, inside.astype(np.int64)


def _labels(dimension: Divided, levels: "pd.Index") -> tuple[str, ...]:
    """The levels as text; of those that double, neighbours as one range."""
    if not dimension.doubling:
        return tuple(f"{level:g}" if isinstance(level, float) else str(level) for level in levels)
    ranges: list[tuple[int, int]] = []
    for level in sorted(map(int, levels)):
        last = max(2 * level - 1, level)
        if ranges and ranges[-1][1] == level - 1:
            ranges[-1] = ranges[-1][0], last
        else:
            ranges.append((level, last))
    return tuple(f"{low}" if low == high else f"{low} to {high}" for low, high in ranges)


def _folds(codes: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 or 1 for each token: the groups that a level is seen in, divided alternately."""
    first = np.flatnonzero(~pd.Index(codes * (group.max() + 1) + group).duplicated())
    code, of = codes[first], group[first]
    order = np.argsort(code, kind="stable")
    starts = starts_of(code[order])
    fold = np.empty(len(first), dtype=np.int64)
    fold[order] = (np.arange(len(first)) - np.repeat(starts, np.diff(starts, append=len(first)))) % 2
    # A group is on one side, whatever levels it has: that of its first, which is the last to be written.
    side = np.empty(group.max() + 1, dtype=np.int64)
    side[of[::-1]] = fold[::-1]
    return side[group]
