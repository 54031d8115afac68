"""Are columns shifted against each other by one position, or filled where a response begins or ends.

The column to blame is the odd one out: it agrees with the others one position away while they agree in place. What a
policy has become on old data may agree with a neighbour by chance: a shift is one only where the two policies are
nearest, too, and where shared states do not rule it out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Example, Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence
from ratioscope.analysis.linter.sample import COLUMNS, Drawn, Floats, Sample
from ratioscope.analysis.runs.left_out import LeftOut

# Correlations rest on groups, not tokens; a shift must be this many standard errors (Fisher) better than no shift.
STANDARD_ERRORS = 4.0
FEWEST_GROUPS = 8
LEAST_GAIN = 0.2
# Shares of shared states in which a column is no function of the token; healthy logs have none.
MANY, FEW = 0.2, 0.05
# What no log-probability exceeds, nor minus an entropy, but for rounding.
_LARGEST_LOGP = 1e-4

MEASURED = (*COLUMNS, "entropy")
# Log-probabilities that one program gathers from its logits; the entropy needs no label, so it is a witness of its own.
_PASSES = (("logp_behavior_train", "logp_current", "logp_new"),)
_REFERENCE = COLUMNS[4]
_WORDS = {1: "one position late", -1: "one position early"}
_LABELS = (
    "Logits at position t predict token t + 1: gather log-probabilities with labels shifted once, in the sampler and "
    "in the trainer alike."
)
_ENTROPY = "Log the entropy of the distribution that the token was drawn from: that of the logits one position before."


@dataclass(frozen=True)
class Aligned:
    """How the columns lie to each other; keys are pairs (column, other)."""

    offset: Mapping[tuple[str, str], int]
    """+1: the column agrees with the other one's value one position before, so it is late; -1: early; 0: in place."""
    here: Mapping[tuple[str, str], float]
    """Correlation of the probabilities in place."""
    there: Mapping[tuple[str, str], float]
    """The best one at a neighbouring position."""
    in_place: frozenset[tuple[str, int]]
    """Columns with an offset that shared states rule out."""

    def against(self, column: str) -> dict[str, int]:
        """The offsets of a column to each other one."""
        return {other: offset for (one, other), offset in self.offset.items() if one == column}

    def is_open(self, one: str, other: str) -> bool:
        """Whether a log-probability of a pair that is off may be the shifted one."""
        ends = {one: self.offset[one, other], other: self.offset[other, one]}
        return any(end not in self.in_place for end in ends.items() if end[0] in COLUMNS)

    def odd(self) -> dict[str, int]:
        """Columns that are off against most witnesses, with their offset.

        Columns of one forward pass that are in place to each other are one witness (`_PASSES`): three columns that the
        trainer gathered with one wrong label are one voice against the sampler's and the entropy's.
        """
        names = [name for name in MEASURED if any(name == one for one, _ in self.offset)]
        found = {}
        for column in names:
            own = next((of for of in _PASSES if column in of), (column,))
            # Those of its own pass that lie as it does share its fate.
            beside = {other for other in own if other == column or self.offset.get((column, other)) == 0}
            alone = [(name,) for name in names if not any(name in of for of in _PASSES)]
            said = (self._vote(column, set(of) & set(names) - beside) for of in (*_PASSES, *alone))
            votes = [vote for vote in said if vote is not None]
            for by in (1, -1):
                if len(votes) > 1 and votes.count(by) > len(votes) / 2 and (column, by) not in self.in_place:
                    found[column] = by
        return found

    def _vote(self, column: str, witness: set[str]) -> int | None:
        """What a witness says of a column's offset; None where it says nothing, or not one thing."""
        said = {self.offset[column, other] for other in witness if (column, other) in self.offset}
        return said.pop() if len(said) == 1 else None


def aligned_of(evidence: LogEvidence) -> Aligned:
    """How the columns of a log lie to each other, found once."""
    return evidence.once("aligned", lambda: aligned(evidence.sample, evidence.drawn))


def aligned(sample: Sample, drawn: Mapping[str, Drawn]) -> Aligned:
    """The correlations of all pairs of columns, in place and one position away, over the same rows.

    Args:
        drawn: what columns say inside shared states, by name.
    """
    probabilities = {}
    for name in MEASURED:
        values = sample.column(name)
        sign = -1.0 if name == "entropy" else 1.0
        values = np.where(sign * values <= _LARGEST_LOGP, values, np.nan)
        with np.errstate(over="ignore"):
            values = np.where(np.isfinite(values), np.exp(sign * values), np.nan)
        if np.nanstd(values) > 0 if np.isfinite(values).any() else False:
            probabilities[name] = values
    position = sample.rows["position"].to_numpy()
    follows = np.zeros(len(sample), dtype=bool)
    follows[1:] = (sample.response[1:] == sample.response[:-1]) & (position[1:] == position[:-1] + 1)
    n_groups = len(np.unique(sample.group[follows])) if follows.any() else 0
    offset, here, there = {}, {}, {}
    if n_groups < FEWEST_GROUPS:
        return Aligned({}, {}, {}, frozenset())
    late = np.flatnonzero(follows)
    near = {key: _nearest(sample, late, key) for key in ("version_lag", "step")}
    now_then = {name: (values[late], values[late - 1]) for name, values in probabilities.items()}
    for one, x in probabilities.items():
        for other, y in probabilities.items():
            if one == other:
                continue
            (x_now, x_then), (y_now, y_then) = now_then[one], now_then[other]
            # Late: x at t is y at t - 1. Early: x at t - 1 is y at t.
            found = {1: _both(x_now, y_now, y_then), -1: _both(x_then, y_then, y_now)}
            if not all(np.isfinite(pair).all() for pair in found.values()):
                continue
            best = max(found, key=lambda by: found[by][1] - found[by][0])
            place, away = found[best]
            gain = (np.arctanh(_inside(away)) - np.arctanh(_inside(place))) * np.sqrt((n_groups - 3) / 2)
            off = away - place >= LEAST_GAIN and gain >= STANDARD_ERRORS
            if off:
                # Against the reference the policy is nearest at the start, whatever the age of the data.
                rows = near["step" if _REFERENCE in (one, other) else "version_lag"]
                there_too = (
                    _both(x[rows], y[rows], y[rows - 1]) if best == 1 else _both(x[rows - 1], y[rows - 1], y[rows])
                )
                off = not there_too[1] - there_too[0] < LEAST_GAIN
            offset[one, other], here[one, other], there[one, other] = best if off else 0, place, away
    # A late column does not tell the tokens of a state apart, and an early one gives a token several values there.
    in_place = {(name, 1) for name, of in drawn.items() if of.blind <= FEW}
    in_place |= {(name, -1) for name, of in drawn.items() if of.varying <= FEW}
    return Aligned(offset, here, there, frozenset(in_place))


def _nearest(sample: Sample, rows: NDArray[np.intp], key: str) -> NDArray[np.intp]:
    """Those of the rows with the smallest age or step that hold enough groups; all where it is not known."""
    of = sample.column(key)[rows]
    largest = np.sort(pd.Series(of).groupby(sample.group[rows]).min().to_numpy())[:FEWEST_GROUPS][-1]
    return rows[of <= largest] if np.isfinite(largest) else rows


def _both(x: Floats, here: Floats, there: Floats) -> tuple[float, float]:
    """Correlations with two columns over the rows that all three have; NaN without variation."""
    known = np.isfinite(x) & np.isfinite(here) & np.isfinite(there)
    if known.sum() < 3 or min(np.ptp(column[known]) for column in (x, here, there)) < 1e-6:
        return float("nan"), float("nan")
    return float(np.corrcoef(x[known], here[known])[0, 1]), float(np.corrcoef(x[known], there[known])[0, 1])


def _inside(correlation: float) -> float:
    """Away from ±1, where Fisher's transform is infinite."""
    return float(np.clip(correlation, -1 + 1e-9, 1 - 1e-9))


@check(order=140, needs=ANY, compares=True)
def shifted(evidence: LogEvidence) -> list[Finding]:
    """A column whose probabilities agree with those of the others one position away, and not at their own."""
    found = aligned_of(evidence)
    if not found.offset:
        return not_checked(f"Fewer than {FEWEST_GROUPS} prompt groups have responses of several tokens that vary.")
    odd = found.odd()
    # Of a pair whose order decides whether it agrees in place nothing is known.
    pairs = {
        tuple(sorted((one, other)))
        for (one, other), by in found.offset.items()
        if by and found.offset.get((other, one)) == -by
    }
    unexplained = {pair for pair in pairs if not {*pair} & {*odd} and found.is_open(*pair)}
    remarks = [_shift(evidence, column, by) for column, by in odd.items()]
    for one, other in sorted(unexplained):
        blamed = [column for column in (one, other) if column in COLUMNS and is_off(evidence.drawn[column])]
        if len(blamed) == 1:
            remarks.append(_shift(evidence, blamed[0], found.offset[blamed[0], one if blamed[0] == other else other]))
        else:
            by = found.offset[one, other]
            remarks.append(_undecided(evidence, one, other, by))
    if remarks:
        return remarks
    weakest = min(found.here, key=lambda pair: found.here[pair])
    number = estimated(f"correlation of {weakest[0]} with {weakest[1]}, in place", found.here[weakest])
    return passed(f"All columns agree best in place{_sampled(evidence)}.", number)


def is_off(drawn: Drawn) -> bool:
    """Whether a column is no function of state and token."""
    return drawn.varying > MANY or drawn.blind > 0.5


def _sampled(evidence: LogEvidence) -> str:
    return f" (in one of {evidence.sampled} groups)" if evidence.sampled > 1 else ""


def _shift(evidence: LogEvidence, column: str, by: int) -> Finding:
    found = aligned_of(evidence)
    others = [other for other, offset in found.against(column).items() if offset == by]
    best = max(others, key=lambda other: found.there[column, other])
    return Finding(
        f"{column} is logged {_WORDS[by]}: its probabilities correlate {found.there[column, best]:.2f} with those of "
        f"{best} at the neighbouring position and {found.here[column, best]:.2f} at their own{_sampled(evidence)}.",
        Severity.WARNING if column in BESIDE else Severity.CRITICAL,
        _ENTROPY if column == "entropy" else _LABELS,
        (
            estimated("correlation with the neighbour", found.there[column, best]),
            estimated("correlation in place", found.here[column, best]),
        ),
        evidence.all_steps,
        (column,),
        _examples(evidence, column, best),
    )


def _undecided(evidence: LogEvidence, one: str, other: str, by: int) -> Finding:
    found = aligned_of(evidence)
    return Finding(
        f"{one} is {_WORDS[by]} or {other} {_WORDS[-by]}, and no third column tells which of the two. Their "
        f"probabilities correlate {found.there[one, other]:.2f} one position apart and {found.here[one, other]:.2f} in "
        f"place{_sampled(evidence)}.",
        Severity.CRITICAL,
        _LABELS,
        (
            estimated("correlation with the neighbour", found.there[one, other]),
            estimated("correlation in place", found.here[one, other]),
        ),
        evidence.all_steps,
        (one, other),
        _examples(evidence, one, other),
    )


def _examples(evidence: LogEvidence, one: str, other: str) -> tuple[Example, ...]:
    if "entropy" in (one, other):
        return ()
    return evidence.rows_where(f"invalid is null and abs({one} - {other}) > 0.1")


@check(order=145, needs=ANY)
def placeholders(evidence: LogEvidence) -> list[Finding]:
    """One value at the first or the last token of many responses, where another column varies."""
    sample = evidence.sample
    position = sample.column("position")
    size = np.bincount(sample.response)[sample.response]
    last = pd.Series(position).groupby(sample.response).transform("max").to_numpy()
    places = {"first": (position == 0) & (size > 1), "last": (position == last) & (size > 1)}
    moved = {name for remark in evidence.remarks(shifted) if remark.is_problem for name in remark.columns}
    remarks = []
    for column in COLUMNS:
        values, others = sample.column(column), [sample.column(name) for name in COLUMNS if name != column]
        for place, here in places.items():
            here = here & np.isfinite(values)
            if column in moved or here.sum() < FEWEST_PLACED:
                continue
            found, counts = np.unique(values[here], return_counts=True)
            value, share = float(found[counts.argmax()]), float(counts.max() / here.sum())
            here &= values == value
            elsewhere = float((values == value).sum() - here.sum()) / max(len(values) - here.sum(), 1)
            spread = max(
                (float(np.nanstd(other[here])) for other in others if np.isfinite(other[here]).any()), default=0.0
            )
            # Where a 0 stands for a missing value is for `zero_filled` to say.
            if value > -1e-3 or share < MANY_PLACED or elsewhere > SOME_ELSEWHERE or spread < LEAST_SPREAD:
                continue
            remarks.append(
                Finding(
                    f"{column} is {value:.4g} at the {place} token of {percent(share)} of the responses, where other "
                    "columns vary: a placeholder.",
                    Severity.WARNING,
                    f"Log the probability with which the {place} token was drawn, or leave it empty.",
                    (estimated("value", value), estimated("share of the rows", here.sum() / len(values))),
                    evidence.all_steps,
                    (column,),
                    tuple(
                        Example(*map(int, row))
                        for row in sample.rows[here][["step", "seq_id", "position"]].head(EXAMPLES).to_numpy()
                    ),
                    wrong_rows=LeftOut(
                        f"{place} tokens, whose {column} is {value:.4g}, a placeholder",
                        f"{column} = {value!r}::float and position = "
                        + ("0" if place == "first" else "max(position) over (partition by step, seq_id)"),
                        values=True,
                    ),
                )
            )
    return remarks or passed("No column has one and the same value at the first or the last token of the responses.")


# Responses with one value at a place, of those with any there, and other tokens that happen to have it; and how far
# another column has to spread in them.
FEWEST_PLACED, MANY_PLACED, SOME_ELSEWHERE, LEAST_SPREAD = 40, 0.3, 0.01, 0.1

# What no ratio of sampler and policy is made of.
BESIDE = ("logp_reference", "entropy")
