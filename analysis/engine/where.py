"""Where the engine's distance sits: the smallest part of the tokens that holds half of it.

found = where_engine_differs(run, first, last)
found.smallest.words, found.smallest.share_expected        # "environment image", 0.51

Each dimension divides the tokens in its own way; of its strata the densest are taken until they hold half. A
difference of logits moves open tokens more than sure ones: a part is dense only beyond what the probability of its
tokens explains.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratioscope.analysis.linter.place import named_tokens, quoted_tokens
from ratioscope.analysis.runs.database import query
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.run_format.schema import SEQUENCES, TOKENS

HALF = 0.5
# Half of the distance where half is expected is nowhere in particular; where so much less is, it sits somewhere.
DENSE = 1.5
_MOST_VALUES = 200
_MOST_NAMED = 3


def _doubling(first: str, last: str) -> str:
    low, high = int(float(first)), int(float(last))
    high = high if high < 2 else 2 * high - 1
    return str(low) if low == high else f"{low} to {high}"


def _double(column: str) -> str:
    return f"case when {column} < 2 then {column} else (2 ** floor(log2({column})))::bigint end"


_LIMITS = (0.001, 0.01, 0.1, 0.5, 0.9, 1.0)


def _probability(first: str, last: str) -> str:
    """Strata go from sure to unsure."""
    high, low = 1 - (0.0, *_LIMITS)[int(first)], 1 - _LIMITS[int(last)]
    return f"above {low:g}" if high == 1 else f"below {high:g}" if low == 0 else f"{low:g} to {high:g}"


_ROUTING = {"0": "all choices alike", "1": "90% and more alike", "2": "less than 90% alike"}


@dataclass(frozen=True)
class Dimension:
    """A way to divide tokens."""

    title: str
    value: str
    """SQL over the columns of `engine_token` and of its response; null: in no stratum."""
    label: Callable[[str, str], str] | None = None
    """Of neighbouring strata in one, from the first and the last value; None: they have no order."""


DIMENSIONS: dict[str, Dimension] = {
    "probability": Dimension(
        "probability of the token",
        "case " + " ".join(f"when 1 - exp(logp_behavior) < {at} then {n}" for n, at in enumerate(_LIMITS[:-1]))
        + f" else {len(_LIMITS) - 1} end",
        _probability,
    ),
    "position": Dimension("position in the response", _double("position"), _doubling),
    "end": Dimension("tokens before the end", _double("(last_position - position)"), _doubling),
    "turn": Dimension("turn", "turn"),
    "turn_start": Dimension(
        "place in the turn",
        "case when n_turns > 1 then if(position - turn_start < 4, 'its first 4 tokens', 'later') end",
    ),
    "engine": Dimension("inference server", "engine"),
    "rank": Dimension("rank of the trainer", "rank"),
    "environment": Dimension("environment", "environment"),
    "adapter": Dimension("adapter", "adapter"),
    "routing": Dimension(
        "agreement of the experts' routing",
        "case when routing_agreement is null then null when routing_agreement = 1 then 0 "
        "when routing_agreement >= 0.9 then 1 else 2 end",
        lambda first, last: _ROUTING[first] if first == last else f"{_ROUTING[first]}, {_ROUTING[last]}",
    ),
    "kept_mass": Dimension(
        "support of the sampler",
        "case when kept_mass is null then null when kept_mass < 1 then 'truncated there' else 'whole there' end",
    ),
    "advantage": Dimension(
        "sign of the advantage", "case sign(advantage) when -1 then 'A < 0' when 0 then 'A = 0' when 1 then 'A > 0' end"
    ),
    "token": Dimension("token of the vocabulary", "token_id"),
}  # fmt: skip


@dataclass(frozen=True)
class Holding:
    """The densest strata of a dimension that hold half of the distance together."""

    dimension: str
    labels: tuple[str, ...]
    n_strata: int
    share_of_tokens: float
    share_of_distance: float
    share_expected: float
    """Of the distance, by the probability of its tokens alone."""

    @property
    def title(self) -> str:
        return DIMENSIONS[self.dimension].title

    @property
    def lift(self) -> float:
        """What it holds, as a multiple of what the probability of its tokens explains."""
        return self.share_of_distance / self.share_expected

    @property
    def dense(self) -> bool:
        """Whether the distance sits there, beyond what the probability of its tokens explains."""
        return self.lift >= DENSE

    @property
    def words(self) -> str:
        """The strata, in words; the text of a log may be among them."""
        if self.dimension == "token":
            if all(label.startswith(("'", '"')) for label in self.labels):
                return named_tokens(self.labels, self.n_strata)
            return f"{len(self.labels)} of {self.n_strata} token ids"
        named = ", ".join(self.labels[:_MOST_NAMED])
        more = len(self.labels) - _MOST_NAMED
        return f"{self.title} {named}" + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Where:
    """Where it sits, by every dimension that divides these tokens."""

    holdings: tuple[Holding, ...]
    """The smallest first."""
    strata: pd.DataFrame
    """One row a stratum: dimension, value, label, n, tv (its mean), share_of_tokens, share_of_distance, share_expected,
    equal (share of tokens with the very same log-probability), apart (mean |log-ratio|), signed (its mean), uncertainty
    (mean 1 - p)."""

    @property
    def smallest(self) -> Holding | None:
        return next((holding for holding in self.holdings if holding.dense), None)

    def of(self, dimension: str) -> pd.DataFrame:
        """Its strata in their order."""
        return self.strata[self.strata["dimension"] == dimension].reset_index(drop=True)


def where_engine_differs(run: Run, first: int | None = None, last: int | None = None) -> Where | None:
    """None where nothing is known of the engine, or it is the trainer's to the last digit.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    with relations(run, first, last, tables=(SEQUENCES, TOKENS)) as connection:
        connection.execute(query("engine/tokens"))
        connection.execute(query("engine/placed"))
        rows = pd.concat([connection.execute(_grouped(name)).df() for name in DIMENSIONS], ignore_index=True)
    texts = quoted_tokens(run)
    total = rows[rows["dimension"] == "probability"][["n", "shortfall"]].sum()
    if not total["n"] or not total["shortfall"] > 0:
        return None
    rows = rows[rows.groupby("dimension")["value"].transform("size") > 1]
    strata = pd.DataFrame(
        {
            "dimension": rows["dimension"],
            "value": rows["value"],
            "label": [
                texts.get(value, value) if name == "token" else _label(name, value, value)
                for name, value in zip(rows["dimension"], rows["value"], strict=True)
            ],
            "n": rows["n"].astype(int),
            "tv": rows["shortfall"] / rows["n"],
            "share_of_tokens": rows["n"] / total["n"],
            "share_of_distance": rows["shortfall"] / total["shortfall"],
            "share_expected": rows["should"] / total["shortfall"],
            **{name: rows[name] / rows["n"] for name in ("equal", "apart", "signed", "uncertainty")},
        }
    ).reset_index(drop=True)
    names = [name for name in DIMENSIONS if (strata["dimension"] == name).any()]
    found = [holding for name in names if (holding := _holding(strata[strata["dimension"] == name])) is not None]
    return Where(tuple(sorted(found, key=lambda holding: holding.share_of_tokens)), strata)


def _grouped(name: str) -> str:
    """Its strata in the order of their values; of many values those that hold the most."""
    return (
        f"select * from (select * from (select '{name}' as dimension, ({DIMENSIONS[name].value})::varchar as value, "
        f"min({DIMENSIONS[name].value})::varchar as place, count(*) as n, "
        "sum(shortfall) as shortfall, sum(should) as should, "
        "count(*) filter (log_apart = 0) as equal, sum(abs(log_apart)) as apart, sum(log_apart) as signed, "
        "sum(1 - exp(logp_behavior)) as uncertainty from placed group by value) where value is not null "
        f"order by shortfall desc, value limit {_MOST_VALUES}) order by try_cast(place as double), place"
    )


def _holding(strata: pd.DataFrame) -> Holding | None:
    """The densest strata first; of token ids, of which some are dense by chance, those that hold the most."""
    name = str(strata["dimension"].iloc[0])
    dense = strata["share_of_distance"] if name == "token" else strata["share_of_distance"] / strata["share_expected"]
    dense = strata["tv"] if name == "probability" else dense
    ordered = strata.loc[dense.sort_values(ascending=False, kind="stable").index]
    held = ordered["share_of_distance"].cumsum().to_numpy()
    if held[-1] < HALF:
        return None  # too many have no place in it
    kept = ordered.iloc[: int(np.argmax(held >= HALF)) + 1].sort_index()
    return Holding(
        name,
        _joined(name, kept),
        len(strata),
        float(kept["share_of_tokens"].sum()),
        float(kept["share_of_distance"].sum()),
        float(kept["share_expected"].sum()),
    )


def _joined(name: str, kept: pd.DataFrame) -> tuple[str, ...]:
    """The labels of these strata, neighbours in one."""
    if DIMENSIONS[name].label is None:
        return tuple(kept["label"])
    places = kept.index.to_numpy()
    runs = np.split(np.arange(len(kept)), np.flatnonzero(np.diff(places) > 1) + 1)
    values = kept["value"].to_numpy()
    return tuple(_label(name, values[run[0]], values[run[-1]]) for run in runs)


def _label(name: str, first: str, last: str) -> str:
    label = DIMENSIONS[name].label
    return label(first, last) if label else first
