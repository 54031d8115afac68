"""Does every column speak of its own token, or of the whole response, or of another row.

The column to blame is no function of state and token where another column is one (`linter.sample`).
"""

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.findings.finding import Example, Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import named_part
from ratioscope.analysis.linter.alignment import BESIDE, FEW, is_off, shifted
from ratioscope.analysis.linter.check import ANY, STATES, check
from ratioscope.analysis.linter.evidence import EXAMPLES, LogEvidence
from ratioscope.analysis.linter.sample import COLUMNS, SAMPLER, Drawn, Sample
from ratioscope.analysis.linter.stand_ins import RESPONSE_OWNERS, constant_columns, is_one_of
from ratioscope.analysis.linter.zeros import zero_filled
from ratioscope.analysis.runs.left_out import LeftOut

# Nats beyond which a value is another token's, and the share of these at first tokens from which on it is only there,
# where they are so many at least.
_FAR, _STARTS, _FEWEST_WRONG = 0.5, 0.9, 8
# How far the mean ratio of a policy's column may be from 1; one with values of other tokens is far beyond.
_OFF_ONE = 0.05
# Share of the repeated tokens whose values differ where all have noise.
_EVERY = 0.9
# By how much less a column goes with a right one where its values belong to other tokens; tokens of a part.
UNCORRELATED, _FEWEST_TOKENS = 0.4, 100
_CHANCE = 1e-3
_BORDERS = "Put a border between packed responses: the first token is scored behind the response before it."
# A response's tokens have one value: all of them in this share of the responses.
_REPEATED = 0.9


@check(order=150, needs=(*STATES, *ANY))
def own_token(evidence: LogEvidence) -> list[Finding]:
    """In one state a token has one log-probability, and another token another one."""
    drawn = evidence.drawn
    known = {column: found for column, found in drawn.items() if np.isfinite(found.varying) or np.isfinite(found.blind)}
    if not known:
        return not_checked("Too few groups have responses that share a state: first tokens, say, of one prompt.")
    off = {column for column, found in known.items() if is_off(found)}
    fine = {column for column, found in known.items() if not found.varying > FEW and not found.blind > FEW}
    if not off:
        worst = max(known, key=lambda column: np.nan_to_num(known[column].varying))
        return passed(
            "Inside shared states every column gives a token one value, and other tokens another.",
            estimated(f"share of repeated tokens whose {worst} differs", known[worst].varying),
        )
    if not fine:
        return [
            Finding(
                "Responses of one group that begin with the same tokens have different log-probabilities there, in "
                "every column. They do not answer one prompt, or the token ids are not those that were sampled.",
                Severity.WARNING,
                "Check group_id, position and token_id: a group is one prompt, and a row is the token that was drawn.",
                tuple(estimated(f"share of repeated tokens whose {c} differs", known[c].varying) for c in sorted(off)),
                evidence.all_steps,
                ("group_id", "token_id", "position"),
            )
        ]
    moved = {
        column
        for check in (shifted, zero_filled, constant_columns)
        for remark in evidence.remarks(check)
        if remark.is_problem
        for column in remark.columns
    }
    right = min(fine, key=COLUMNS.index)
    return [
        _at_the_start(evidence, column, right)
        or _of_each_pass(evidence, column, right, known[column])
        or _in_several_contexts(evidence, column, right, known[column])
        or _not_its_own(evidence, column, known[column], right)
        for column in COLUMNS
        if column in off and column not in moved
    ] or passed("What differs inside shared states is shifted, zero or constant: see there.")


def _at_the_start(evidence: LogEvidence, column: str, right: str) -> Finding | None:
    """A column that is wrong where responses begin and nowhere else, as where packed responses have no border."""
    sample = evidence.sample
    apart = np.abs(sample.column(column) - sample.column(right)) > _FAR
    begins = sample.column("position") == 0
    wrong = apart & begins
    if wrong.sum() < _STARTS * apart.sum() or wrong.sum() < _FEWEST_WRONG:
        return None
    rows = sample.rows[wrong]
    # Behind nothing there is no other response to be scored behind: of packed rows a step's first one is right.
    leads = begins & ~sample.rows["step"].duplicated().to_numpy()
    chance = (1 - wrong.sum() / begins.sum()) ** leads.sum()
    packed = not (wrong & leads).any() and chance < _CHANCE
    return Finding(
        f"{column} is wrong at the first token of {percent(wrong.sum() / begins.sum())} of the responses: it does not "
        f"follow {right} there" + (", but where no response is logged before it." if packed else "."),
        Severity.WARNING,
        _BORDERS if packed else f"Recompute these tokens from their prompt alone: {right} is right there.",
        (estimated("share of the rows", wrong.sum() / len(sample)),),
        tuple(sorted(map(int, rows["step"].unique()))),
        (column,),
        tuple(Example(*map(int, row)) for row in rows[["step", "seq_id", "position"]].head(EXAMPLES).to_numpy()),
        wrong_rows=LeftOut("first tokens, whose log-probabilities belong to other tokens", "position = 0", values=True),
    )


def _of_each_pass(evidence: LogEvidence, column: str, right: str, drawn: Drawn) -> Finding | None:
    """A column of an engine that is not the same in two passes: noise, which is on every value.

    Placeholders are on some.
    """
    if not evidence.sample.restless(column) > _EVERY:
        return None
    ratio = _mean_of_one(evidence, column, right, drawn)
    if ratio is None:
        return None
    of_sampler = column in SAMPLER[:1]
    random = "a quantised cache" if of_sampler else "dropout"
    return Finding(
        f"{column} differs from pass to pass. Inside one state repeated tokens have several values in "
        f"{percent(drawn.varying)} of the cases, and the mean ratio is {ratio:.2f} all the same.",
        Severity.NOTICE,
        f"Look for what is random in the {'sampler' if of_sampler else 'trainer'}'s forward pass: {random}, or kernels "
        "that depend on the batch.",
        (
            estimated("share of repeated tokens whose value differs", drawn.varying),
            estimated("mean ratio", ratio),
        ),
        evidence.all_steps,
        (column,),
    )


def _mean_of_one(evidence: LogEvidence, column: str, right: str, drawn: Drawn) -> float | None:
    """The mean ratio of a column, if it is 1.

    A policy's probabilities over the sampler's have a mean of 1, whatever noise is on them; those of other tokens have
    not, because most of these are nearly certain where the sampled one was not.
    """
    sample = evidence.sample
    above, below = (right, column) if column in SAMPLER[:1] else (column, SAMPLER[0])
    if below not in (right, column) and is_off(evidence.drawn.get(below, drawn)):
        return None
    with np.errstate(over="ignore"):
        ratio = np.exp(sample.column(above) - sample.column(below))[sample.rows["invalid"].isna().to_numpy()]
    ratio = ratio[~np.isnan(ratio)]
    return float(ratio.mean()) if len(ratio) and abs(ratio.mean() - 1) <= _OFF_ONE else None


def _in_several_contexts(evidence: LogEvidence, column: str, right: str, drawn: Drawn) -> Finding | None:
    """A column that is right for each response alone: the first of a group has one context, and the others another."""
    sample = evidence.sample
    seq = sample.rows["seq_id"]
    others = Sample(sample.rows[seq > seq.groupby(sample.group).transform("min")].reset_index(drop=True))
    among = others.drawn(column).varying
    if not among <= FEW or _mean_of_one(evidence, column, right, drawn) is None:
        return None
    return Finding(
        f"Behind the same tokens {column} differs in {percent(drawn.varying)} of the cases; without the first response "
        f"of each group, in {percent(among)}.",
        Severity.NOTICE,
        "Score the responses of a group one by one and together, and compare: their contexts should be the same.",
        (
            estimated("share of repeated tokens whose value differs", drawn.varying),
            estimated("share without the first responses", among),
        ),
        evidence.all_steps,
        (column,),
    )


def _not_its_own(evidence: LogEvidence, column: str, drawn: Drawn, right: str) -> Finding:
    repeated = _share_repeated(evidence.sample, column)
    if repeated > _REPEATED:
        said = (
            f"{column} is one and the same for all tokens of a response ({percent(repeated)} of the responses of "
            "several tokens). It is a sum or a mean over the response, or a placeholder."
        )
        do = "Log one log-probability a token, not the response's."
    else:
        shares = {"repeated tokens have several values": drawn.varying, "different tokens have one value": drawn.blind}
        words = max(shares, key=lambda key: np.nan_to_num(shares[key]))
        said = (
            f"{column} is not the log-probability of its own token: inside one state {words} in "
            f"{percent(shares[words])} of the cases, and other columns are right there."
        )
        do = "Rows of this column belong to other tokens: look for a shift, another order of the responses, or a join."
    return Finding(
        said,
        Severity.WARNING if column in BESIDE else Severity.CRITICAL,
        do,
        (
            estimated("share of repeated tokens whose value differs", drawn.varying),
            estimated("share of states with one value for several tokens", drawn.blind),
        ),
        evidence.all_steps,
        (column,),
        wrong_rows=_uncorrelated_part(evidence, column, right),
    )


def _uncorrelated_part(evidence: LogEvidence, column: str, right: str) -> LeftOut | None:
    """The servers, ranks, adapters, environments or steps where a column does not go with one that is right, while it
    does in most."""
    for name, title in (RESPONSE_OWNERS | {"step": "step"}).items():
        if name != "step" and not evidence.log.has(f"sequences.{name}"):
            continue
        owners = ", ".join(RESPONSE_OWNERS)
        of_level = evidence.frame(
            f"select {name}::varchar as level, corr(exp({column}::double), exp({right}::double)) as together "
            f"from examined join (select distinct on (step, seq_id) step, seq_id, {owners} from sequence) "
            f"using (step, seq_id) where {column} <= 0 and {right} <= 0 and isfinite({column}) and isfinite({right}) "
            f"group by all having count(*) >= {_FEWEST_TOKENS} order by level"
        ).dropna()
        apart = of_level["together"].median() - of_level["together"] > UNCORRELATED
        if 0 < apart.sum() < len(apart) / 2:
            levels = of_level["level"][apart].tolist()
            named = named_part(f"{title}{'s' if len(levels) > 1 and name == 'step' else ''}", levels)
            return LeftOut(f"{named}, whose log-probabilities belong to other tokens", *is_one_of(name, levels))
    return None


def _share_repeated(sample: Sample, column: str) -> float:
    """Share of the responses of three or more tokens whose values are all the same and not 0."""
    values = sample.column(column)
    known: NDArray[np.bool_] = np.isfinite(values)
    found = sample.rows[["step"]].assign(x=values, response=sample.response)[known].groupby("response")["x"]
    spread = found.agg(["size", "min", "max"])
    spread = spread[spread["size"] > 2]
    return float(((spread["max"] - spread["min"] < 1e-6) & (spread["max"] < 0)).mean()) if len(spread) else 0.0
