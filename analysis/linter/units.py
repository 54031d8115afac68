"""Are the columns natural logarithms of single tokens' probabilities, in full precision."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.alignment import BESIDE, FEW, MANY, shifted
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.sample import COLUMNS, Floats
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.zeros import zero_filled

# Tokens of a log-probability nearer to 0 than this say nothing of a factor.
_UNCERTAIN = -0.05
FEWEST_ROWS = 50
# In this share of the tokens the factor is the same, to this precision; another policy's factors scatter.
SAME_SHARE, SAME_FACTOR = 0.8, 0.1
LEAST_FACTOR = 0.15
_BASES = {"base 2": 1 / np.log(2), "base 10": 1 / np.log(10)}
# What a log-probability may be rounded to: an even lattice of 2 to the minus so many bits (float16 of values up to 1 is
# one of 2^-11 and finer), or so many bits of a mantissa.
_LATTICES = range(9)
_MANTISSAS = {"float8 (e5m2)": 2, "float8 (e4m3)": 3, "bfloat16": 7, "float16": 10}
# Half the mean rounding error that is more than float32 makes of a ratio; see noise_floor.
COARSE = 1e-4


@check(order=160, needs=ANY, compares=True)
def scale(evidence: LogEvidence) -> list[Finding]:
    """A column that is a multiple of the others: another base of the logarithm, or divided by the length."""
    sample = evidence.sample
    logged = [column for column in COLUMNS if sample.logged(column)]
    length = sample.rows.groupby(sample.response)["step"].transform("size").to_numpy(float)
    # Of another age a policy's factors scatter.
    fresh = sample.column("version_lag") == 0
    rows = fresh if fresh.sum() >= 4 * FEWEST_ROWS else np.ones(len(sample), dtype=bool)
    factors = {
        (one, other): _factor(sample.column(one)[rows], sample.column(other)[rows], length[rows])
        for one in logged
        for other in logged
        if one != other
    }
    crowded = [column for column in logged if evidence.drawn[column].crowded > MANY]
    odd = {pair: each for pair, each in factors.items() if each is not None and not each.is_one}
    score = {
        column: sum(
            (one == column) * (1 if pair in odd else -1) for pair in factors if factors[pair] for one in pair[:1]
        )
        for column in logged
    }
    most = max(score.values(), default=0)
    worst = [column for column in logged if score[column] == most and any(column in pair for pair in odd)]
    off = {worst[0]: next(odd[pair] for pair in odd if pair[0] == worst[0])} if len(worst) == 1 else {}
    pairs = [(one, other, each) for (one, other), each in odd.items() if one < other and not {one, other} & {*off}]
    remarks = [_scaled(evidence, (column,), *each) for column, each in off.items()]
    for one, other, each in pairs:
        blamed = [column for column in (one, other) if column in crowded]
        remarks.append(_scaled(evidence, tuple(blamed) if len(blamed) == 1 else (one, other), *each))
    known = {
        column
        for check in (zero_filled, constant_columns, shifted, own_token)
        for remark in evidence.remarks(check)
        if remark.is_problem or check is own_token  # several values of one token add up to anything
        for column in remark.columns
    }
    known |= {column for remark in remarks for column in remark.columns}
    left = [column for column in crowded if column not in known]
    if left:
        remarks.append(_crowded(evidence, left, everything=len(left) == len(logged), coherent=_coherent(evidence)))
    if remarks:
        return remarks
    if len(logged) < 2:
        return not_checked("Fewer than two log-probability columns are logged.")
    return passed("No column is a multiple of another, and no state's probabilities add up to more than 1.")


class Factor(NamedTuple):
    """What one column is of another, token by token."""

    value: float
    by_length: bool = False

    @property
    def is_one(self) -> bool:
        return not self.by_length and abs(np.log(self.value)) <= LEAST_FACTOR


def _factor(one: Floats, other: Floats, length: Floats) -> Factor | None:
    """The factor between two columns where it is one and the same, or 1 / length; None where it scatters."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = one / other
    known = np.isfinite(ratio) & (one < 0) & (other < _UNCERTAIN)
    if known.sum() < FEWEST_ROWS:
        return None
    # Multiplied by the length, what was divided by it is 1.
    for by_length, found in ((False, ratio[known]), (True, ratio[known] * length[known])):
        value = float(np.median(found))
        if not value > 0 or not np.mean(np.abs(found / value - 1) < SAME_FACTOR) > SAME_SHARE:
            continue
        if by_length == (abs(value - 1) < SAME_FACTOR) or (not by_length and abs(value - 1) < SAME_FACTOR):
            constant = np.ptp(length[known]) == 0 and abs(value * length[known][0] - 1) < SAME_FACTOR
            return Factor(value, by_length or bool(constant and length[known][0] > 1))
    return None


def _scaled(evidence: LogEvidence, columns: tuple[str, ...], factor: float, by_length: bool) -> Finding:
    if by_length:
        said = f"{columns[0]} is divided by the number of tokens of its response"
    else:
        base = next((words for words, value in _BASES.items() if abs(factor / value - 1) < SAME_FACTOR), "")
        said = f"{columns[0]} is {number(factor)} × the other log-probabilities, token by token"
        said += f": a logarithm to {base}" if base else ""
    if len(columns) > 1:
        said = f"{columns[0]} and {columns[1]} differ by a factor of {number(factor)} in every token; cannot tell "
        said += "which of the two is wrong"
    return Finding(
        f"{said}.",
        Severity.WARNING if {*columns} <= {*BESIDE} else Severity.CRITICAL,
        "Log natural logarithms of single tokens' probabilities, neither normalised nor in another base.",
        (estimated("factor", factor),),
        evidence.all_steps,
        columns,
    )


def _coherent(evidence: LogEvidence) -> bool:
    """Whether repeated tokens of a state have one value in every column, so that states are what they seem."""
    return all(drawn.varying <= FEW for drawn in evidence.drawn.values())


def _crowded(evidence: LogEvidence, columns: list[str], *, everything: bool, coherent: bool) -> Finding:
    shares = tuple(
        estimated(f"share of states with more than 1, {column}", evidence.drawn[column].crowded) for column in columns
    )
    return Finding(
        f"The probabilities of different tokens in one state add up to more than 1 in {', '.join(columns)} "
        f"({percent(shares[0].value)} of the states)"
        + (
            "."
            if not everything
            else ": a logarithm to base 10."
            if coherent
            else ": group_id or token_id may be wrong."
        ),
        Severity.WARNING if everything > coherent or {*columns} <= {*BESIDE} else Severity.CRITICAL,
        "Log natural logarithms of single tokens' probabilities, and one prompt a group.",
        shares,
        evidence.all_steps,
        (*columns, *(("group_id",) if everything > coherent else ())),
    )


@check(order=170, needs=ANY)
def precision(evidence: LogEvidence) -> list[Finding]:
    """A column that was rounded to half precision or to a few decimals on its way."""
    remarks = []
    logged = [column for column in COLUMNS if evidence.sample.logged(column)]
    decimals = evidence.log.decimals
    for column in logged:
        values = evidence.sample.column(column)
        values = values[np.isfinite(values) & (values < _UNCERTAIN)]
        if len(values) < FEWEST_ROWS or not np.ptp(values) > 0:
            continue
        roundings = _roundings(values, 4 if decimals is None else decimals)
        fits = [(float(unit.mean()), words) for words, rounded, unit in roundings if np.array_equal(rounded, values)]
        if fits:  # what is on a coarse lattice is on all finer ones
            unit, words = max(fits)
            # Mean absolute rounding error: a quarter of the distance between neighbours.
            stated = decimals is not None and words.endswith("decimals")
            remarks.append(_rounded(evidence, column, words, unit / 8, stated=stated))
    if remarks:
        return remarks
    return passed("No log-probability is rounded to half precision, or to a few decimals.")


def _roundings(values: Floats, decimals: int) -> Iterator[tuple[str, Floats, Floats]]:
    """What it may have been rounded to, the coarsest first: words, the values rounded so, and the distance of
    neighbours, (n,)."""
    for bits in _LATTICES:
        yield f"multiples of 1/{2**bits}", np.round(values * 2**bits) / 2**bits, np.full(len(values), 2.0**-bits)
    exponent = np.floor(np.log2(np.abs(values)))
    for words, bits in _MANTISSAS.items():
        unit = 2.0 ** (exponent - bits)
        yield words, np.round(values / unit) * unit, unit
    few = {4: "four"}.get(decimals, str(decimals))
    rounded = np.round(values, decimals).astype(np.float32).astype(float)
    yield f"{few} decimals", rounded, np.full(len(values), 10.0**-decimals)


def _rounded(evidence: LogEvidence, column: str, words: str, staleness: float, *, stated: bool) -> Finding:
    """`stated`: the manifest says that the source rounds so, which is no fault of the log."""
    coarse = staleness > COARSE and column not in BESIDE and not stated
    return Finding(
        f"{column} was rounded to {words}{', as its source does,' * stated} before it was logged: ratios with it have "
        f"a noise that reads as a staleness of {staleness:.1e}.",
        Severity.WARNING if coarse else Severity.NOTICE,
        "Compute and log log-probabilities in float32." if coarse else "Nothing: the noise is small.",
        (estimated("staleness that rounding makes", staleness),),
        evidence.all_steps,
        (column,),
    )
