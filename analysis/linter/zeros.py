"""Log-probabilities, or advantages, that are 0 where there should be a value."""

from math import inf, nan, sqrt

from ratioscope.analysis.findings.finding import Example, Finding, Severity, estimated, passed
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.linter.check import ANY, check
from ratioscope.analysis.linter.evidence import (
    DOUBTS,
    EXAMPLES,
    HALF,
    LOG_PROBS,
    ROW_FAULTS,
    SURE,
    LogEvidence,
    steps_with,
)
from ratioscope.analysis.linter.stand_ins import LEAST_ROWS, of_one_owner
from ratioscope.analysis.linter.values import severity_of
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.summary.intervals import cluster_variance

# So many tokens in a row are hardly certain to the last digit of float32, unless most that are sure are.
FEWEST_CERTAIN, MOSTLY_CERTAIN = 8, 0.5
# True zeros are no more frequent among the sure tokens that another column doubts than among the others (odds .3 : .3);
# placeholders are (1.0 : .63). Odds ratio, standard errors, tokens.
LEAST_ODDS, STANDARD_ERRORS, FEWEST_ZEROS = 3.0, 4.0, 5
# Where no value is nearly 0, placeholders are there whatever the other column says; true zeros follow it.
LEAST_RELATIVE = 0.5
# Shares of the zeros with a zero on either side, and of those at the first position that are one token.
_IN_STRETCHES, _ONE_TOKEN = 0.4, 0.9
_FEWEST_FORCED = 10
"""Tokens of one id at one position; drawn with less than one half each, so many are hardly alike."""
_NEARLY_ALL_EQUAL = 0.99
_FEWEST_BEHIND, _FEWEST_IDS, _BESIDE = 500, 10, 4
"""Tokens behind a place, and ids that they have: fewer may be certain; and positions in front of it that are not."""
_SINGLE = "single tokens"
_LAST = "always the last one"
_OF_PADDING = (
    "Mask padding by the length of each response, or give it a token of its own. Else the trainer leaves out the ends "
    "that were drawn."
)
_ONE_LEFT = {
    True: " The manifest states top-k or top-p; where they keep one token it is certain.",
    False: " Elsewhere, too, the sampler leaves most of the probability out; where one token is left it is certain.",
}
"""Why a sampler may be certain, by whether the manifest says so."""


@check(order=120, needs=ANY, page="ratios")
def zero_filled(evidence: LogEvidence) -> list[Finding]:
    """Log-probabilities that are exactly 0 where another column, or the entropy, says that the token is uncertain.

    Sure tokens are exactly 0 in float32, and a policy that has moved since gives some of them less than one half.
    """
    remarks = []
    for column in LOG_PROBS:
        fault = f"zero_{column}"
        count = evidence.total(fault)
        if not count or not _stands_out(evidence, column):
            continue
        steps = steps_with(evidence.by_step[fault])
        share = (evidence.by_step[fault] / evidence.by_step["n_rows"]).max()
        pattern, rows = _pattern(evidence, column, fault)
        given = rows is not None and not rows.values
        padding = _LAST in pattern
        sampled = column == "logp_behavior"
        stated = sampled and not given and _truncation_explains(evidence)
        truncation = stated or (sampled and pattern.startswith(_SINGLE) and _forbids_tokens(evidence, count))
        remarks.append(
            Finding(
                f"{column} is exactly 0 (probability 1) for {count:,} tokens that another column gives less than one "
                f"half, {evidence.in_steps(steps)}: {pattern}." + (_ONE_LEFT[stated] if truncation else ""),
                severity_of(evidence, count) if not truncation else Severity.NOTICE,
                "Leave tokens that were not drawn out of the loss."
                if given or (truncation and not stated)
                else _OF_PADDING
                if padding
                else "Where missing values were replaced by 0, which reads as certainty, leave them empty instead."
                + (" A sampler that keeps one token is greedy: ratios against it say little." if truncation else ""),
                (estimated("tokens", count), estimated("largest share of a step's rows", share)),
                steps,
                (column,),
                evidence.examples(fault),
                wrong_rows=None if truncation else rows,
            )
        )
    known = {column for remark in remarks for column in remark.columns}
    placeholders = (
        _placeholder(evidence, column) or _zero_behind_a_place(evidence, column)
        for column in LOG_PROBS if column not in known
    )  # fmt: skip
    remarks += filter(None, (*placeholders, _no_advantage(evidence)))
    return remarks or passed("No log-probability is exactly 0 where another column says otherwise.")


def _stands_out(evidence: LogEvidence, column: str) -> bool:
    """Whether zeros are more frequent than elsewhere among the sure tokens that another column doubts, within steps."""
    of = evidence.frame(
        f"""
        with judged as (select step, {column} as x, coalesce({DOUBTS[column]}, false) as doubted from examined)
        select step, count(*) filter (doubted) as doubted, count(*) filter (not doubted) as others,
            count(*) filter (doubted and x = 0) as a, count(*) filter (doubted and x < 0 and x > {SURE}) as b,
            count(*) filter (not doubted and x = 0) as c, count(*) filter (not doubted and x < 0 and x > {SURE}) as d
        from judged where isfinite(x) group by step
        """
    ).astype(float)
    # Mantel and Haenszel: zero or not, against doubted or not, in the steps that have sure values of both kinds.
    both, alone = of[of["b"] + of["d"] > 0], of[of["b"] + of["d"] == 0]
    a, b, c, d = (both[name] for name in "abcd")
    n = a + b + c + d
    beyond = float((a - (a + b) * (a + c) / n).sum())
    variance = float(((a + b) * (c + d) * (a + c) * (b + d) / (n**2 * (n - 1).clip(lower=1))).sum())
    against = float((b * c / n).sum())
    odds = float((a * d / n).sum()) / against if against else inf
    if odds > LEAST_ODDS and beyond > STANDARD_ERRORS * sqrt(variance):
        return True
    zeros, others = (float(alone[name].sum()) for name in "ac")
    if zeros < FEWEST_ZEROS:
        return False
    share = zeros / float(alone["doubted"].sum())
    return share * float(alone["others"].sum()) >= LEAST_RELATIVE * others


def _placeholder(evidence: LogEvidence, column: str) -> Finding | None:
    """Whole responses of which every token has log-probability 0, where nothing else is logged of them: hardly any
    model is as certain, but a writer without a value is."""
    if evidence.rounding or evidence.run.manifest.sampler.get("temperature") == 0:
        return None
    if not (evidence.by_step[f"max_{column}"] >= 0).any():
        return None
    beside = ", ".join(name for name in (*LOG_PROBS, "entropy") if name != column)
    of = evidence.frame(
        f"""
        select step, seq_id, count({column}) as tokens,
            coalesce(bool_and({column} = 0), false) and count(coalesce({beside})) = 0 as suspect,
            count(*) filter ({column} = 0) as zeros, count(*) filter ({column} > {SURE}) as sure
        from examined group by step, seq_id order by step, seq_id
        """
    )
    found = of[of["suspect"] & (of["tokens"] >= FEWEST_CERTAIN)]
    usual = of[~of["suspect"]][["zeros", "sure"]].sum()
    if found.empty or usual["zeros"] > MOSTLY_CERTAIN * usual["sure"]:
        return None
    steps, count = steps_with(found.groupby("step").size()), int(found["tokens"].sum())
    return Finding(
        f"{column} is exactly 0 (probability 1) in every token of {len(found):,} responses, "
        f"{evidence.in_steps(steps)}: a placeholder for values that were not there.",
        severity_of(evidence, count),
        "Leave out what the sampler did not return, or switch its log-probabilities on: 0 reads as certainty.",
        (estimated("tokens", count), estimated("responses", len(found))),
        steps,
        (column,),
        tuple(Example(int(step), int(seq)) for step, seq in found[["step", "seq_id"]].head(EXAMPLES).to_numpy()),
    )


def _zero_behind_a_place(evidence: LogEvidence, column: str) -> Finding | None:
    """All tokens from a turn, or a position, on have log-probability 0, and those before it do not, where nothing else
    is logged of them: a model is not certain of many tokens that differ from response to response."""
    if evidence.rounding or _is_greedy(evidence) or not evidence.log.has(column, "token_id"):
        return None
    if not (evidence.by_step[f"max_{column}"] >= 0).any():
        return None
    beside = ", ".join(name for name in (*LOG_PROBS, "entropy") if name != column)
    for unit in ("turn", "position"):
        if not evidence.log.has(unit):
            continue
        of = evidence.frame(
            f"select {unit} as place, count({column}) as n, count(*) filter ({column} = 0) as zeros, "
            f"count(*) filter ({column} > {SURE}) as sure, count(coalesce({beside})) as others "
            f"from examined where {unit} is not null group by {unit} having count({column}) > 0 order by {unit}"
        )
        varies = (of["zeros"] < of["n"]).to_numpy()
        if not varies.any() or varies[-1]:
            continue
        begins = int(varies.nonzero()[0][-1]) + 1
        before, behind = of.iloc[:begins], of.iloc[begins:]
        near = before.tail(1 if unit == "turn" else _BESIDE)[["n", "zeros"]].sum()
        certain = before["zeros"].sum() > MOSTLY_CERTAIN * before["sure"].sum()
        if certain or near["n"] < LEAST_ROWS or near["zeros"] > MOSTLY_CERTAIN * near["n"]:
            continue
        place, count = int(behind["place"].iloc[0]), int(behind["n"].sum())
        there = f"{unit} >= {place} and {column} is not null"
        if behind["others"].sum() or count < _FEWEST_BEHIND or not _differ(evidence, there, unit):
            continue
        of_step = evidence.frame(f"select step, count(*) as n from examined where {there} group by step order by step")
        return Finding(
            f"{column} is exactly 0 (probability 1) in all {count:,} tokens from {unit} {place} on. "
            "Unless these were drawn greedily, 0 stands there for values that are missing.",
            severity_of(evidence, count),
            "Leave empty what the sampler did not return, and ask for its log-probabilities in every request: 0 reads "
            "as certainty.",
            (estimated("tokens", count), estimated(f"first {unit}", place)),
            steps_with(of_step.set_index("step")["n"]),
            (column,),
            evidence.rows_where(there),
        )
    return None


def _differ(evidence: LogEvidence, there: str, unit: str) -> bool:
    """Whether tokens differ from response to response at one place, and from place to place: nobody put them there.

    A template has the same in all responses; what is put there from the prompt, in all of its group.
    """
    offset = "position - min(position) over (partition by step, seq_id, turn)" if unit == "turn" else "position"
    behind = f"""
        with behind as (
            select step, seq_id, group_id, token_id, {unit} as place, {offset} as offset_there from examined
            where {there} and hash(step, coalesce(group_id, seq_id)) % {evidence.sampled} = 0
        )"""
    known = evidence.frame(
        f"{behind} select count(distinct token_id) as ids, count(distinct (step, seq_id)) as responses from behind"
    ).iloc[0]
    if known["ids"] < _FEWEST_IDS or known["responses"] < LEAST_ROWS:
        return False
    for key in ("step, group_id, place, offset_there", "place, offset_there"):
        found = evidence.frame(
            f"""{behind},
            of_id as (select {key}, count(*) as n from behind where token_id is not null group by {key}, token_id),
            of_place as (select sum(n) as n, max(n) as most from of_id group by {key} having sum(n) > 1)
            select sum(n)::double as n, sum(most)::double as most from of_place
            """
        ).iloc[0]
        if found["n"] >= LEAST_ROWS:  # groups of one response say nothing
            return bool(found["most"] <= _ONE_TOKEN * found["n"])
    return False


def _is_greedy(evidence: LogEvidence) -> bool:
    """Whether the manifest, or the row of a response, has temperature 0."""
    if evidence.run.manifest.sampler.get("temperature") == 0:
        return True
    if not evidence.log.has("sequences.temperature"):
        return False
    return bool(evidence.frame("select count(*) filter (temperature = 0) as n from sequence")["n"].iloc[0])


def _no_advantage(evidence: LogEvidence) -> Finding | None:
    """Whether the advantage is 0 wherever it is known, in enough rows to tell."""
    found = evidence.frame("select count(advantage) as n, count(*) filter (advantage = 0) as zeros from examined").iloc[
        0
    ]
    n = int(found["n"])
    if n < LEAST_ROWS or int(found["zeros"]) < n:
        return None
    steps = tuple(int(step) for step in evidence.by_step.index)
    # A group of one response is compared with nobody: there, rewards are held against each other over the run.
    groups = evidence.frame(
        "select size > 1 as several, avg((lowest = highest)::int) as equal, min(lowest) as least, max(highest) as most "
        "from (select min(reward) as lowest, max(reward) as highest, count(*) as size from sequence "
        "where isfinite(reward) and dropped is null group by step, group_id) group by several"
    )
    said = f"advantage is exactly 0 in all {n:,} tokens"
    do = "Log the reward: groups of equal reward have an advantage of 0."
    several = groups[groups["several"]]
    equal = float(several["equal"].iloc[0]) if len(several) else nan
    if equal > _NEARLY_ALL_EQUAL:
        said += f", and {percent(equal)} of the prompt groups have equal rewards: there was nothing to learn"
        do = "Look at which responses earn another reward."
    elif len(several) or (groups["least"] < groups["most"]).any():
        differ = f"in {percent(1 - equal)} of the prompt groups" if len(several) else "from group to group"
        said += f", although rewards differ {differ}"
        do = "Log the advantages that the loss used; leave the column empty where there are none."
    return Finding(
        f"{said}.",
        Severity.WARNING,
        do,
        (estimated("tokens", n),),
        steps,
        ("advantage",),
    )


def _truncation_explains(evidence: LogEvidence) -> bool:
    """Whether the sampler may have been certain by leaving every other token out, as far as the manifest says.

    Top-p keeps at least the mass p, so that with the same weights in both engines it cannot hide one half.
    """
    sampler = evidence.run.manifest.sampler
    top_p = sampler.get("top_p") or 1.0
    return bool(sampler.get("top_k")) or top_p < (0.5 if evidence.total("n_train") else 1.0)


def _forbids_tokens(evidence: LogEvidence, zeros: int) -> bool:
    """Whether the sampler of the same weights has as many other tokens with more than twice the trainer's probability,
    and the mean ratio says that it leaves tokens out: one may be all that is left."""
    of = evidence.frame(
        "select count(*) as n, sum(exp(fresh)) as rho, count(*) filter (fresh < ln(0.5)) as more from examined "
        "where logp_behavior < 0 and fresh is not null group by step, group_id"
    )
    if of["more"].sum() < max(zeros, FEWEST_ZEROS):
        return False
    n, rho = (of[name].to_numpy(float) for name in ("n", "rho"))
    return bool(1 - rho.sum() / n.sum() > STANDARD_ERRORS * sqrt(cluster_variance(rho, n)))


def _pattern(evidence: LogEvidence, column: str, fault: str) -> tuple[str, LeftOut | None]:
    """Which rows are zero: all of them, one position, whole responses, or here and there; and the rows, where they can
    be told from sure tokens."""
    found = evidence.frame(
        f"with sequences as (select count(*) as n, count(*) filter ({column} = 0) as zeros, "
        f"count(*) filter ({ROW_FAULTS[fault]}) as faults, "
        f"min(position) filter ({ROW_FAULTS[fault]}) as low, max(position) filter ({ROW_FAULTS[fault]}) as high "
        "from examined group by step, seq_id) "
        "select sum(n) as n, sum(zeros) as zeros, min(low) as low, max(high) as high, "
        "count(*) filter (faults > 0) as affected, count(*) filter (faults > 0 and zeros = n) as whole from sequences"
    ).iloc[0]
    if found["zeros"] == found["n"]:
        return "the whole column", None
    if found["low"] == found["high"]:
        given, rows = _not_sampled(evidence, column, fault, int(found["low"]))
        if given or found["whole"] < found["affected"]:
            return f"always at position {int(found['low'])}{given}", rows
    if found["whole"] == found["affected"]:
        other = "coalesce(logp_behavior_train, logp_current)" if column == "logp_behavior" else "logp_behavior"
        of_response = "over (partition by step, seq_id)"
        return f"{int(found['whole']):,} whole responses", of_one_owner(evidence, f"{column} = 0", column, "0") or (
            LeftOut(
                f"responses whose {column} is exactly 0 throughout, a placeholder",
                f"bool_and({column} = 0) {of_response} and min({other}) {of_response} < {HALF}",
                values=True,
            )
        )
    beside = evidence.frame(
        f"select avg((before and after)::int) as inside from (select {ROW_FAULTS[fault]} as fault, "
        f"lag({column} = 0) over response as before, lead({column} = 0) over response as after from examined "
        "window response as (partition by step, seq_id order by position)) where fault"
    )["inside"].iloc[0]
    if beside > _IN_STRETCHES:
        beside_it = "over (partition by step, seq_id order by position)"
        return f"in stretches of {int(found['affected']):,} responses, as where a tool's output is logged", LeftOut(
            f"stretches whose {column} is exactly 0",
            f"{column} = 0 and (coalesce(lag({column} = 0) {beside_it}, false) "
            f"or coalesce(lead({column} = 0) {beside_it}, false))",
            values=True,
        )
    given, rows = _taken_for_padding(evidence, column, fault) or _not_sampled(evidence, column, fault)
    return f"{_SINGLE} of {int(found['affected']):,} responses{given}", rows


def _taken_for_padding(evidence: LogEvidence, column: str, fault: str) -> tuple[str, LeftOut] | None:
    """What tells an end token that a trainer has for padding, and its rows: one id, the last of its response, 0 each
    time, which the sampler drew with a probability of its own."""
    if column == "logp_behavior" or not evidence.log.has("token_id", "logp_behavior"):
        return None
    of = evidence.frame(
        f"""
        select token_id, count(*) filter (fault) as n, count(*) filter (fault and ends) as at_end,
            count(*) filter (ends) as ends, count(*) filter (ends and x = 0) as zeros
        from (
            select token_id, {column} as x, {ROW_FAULTS[fault]} as fault,
                position = max(position) over (partition by step, seq_id) as ends
            from examined where token_id is not null
        )
        where x is not null group by token_id order by n desc, token_id
        """
    )
    if not len(of) or of["n"].iloc[0] < max(_FEWEST_FORCED, _ONE_TOKEN * of["n"].sum()):
        return None
    first = of.iloc[0]
    if first["at_end"] < _ONE_TOKEN * first["n"] or first["zeros"] < _NEARLY_ALL_EQUAL * first["ends"]:
        return None
    token = int(first["token_id"])
    return f", {_LAST} (token id {token} each time)", LeftOut(
        f"end tokens (token id {token}) whose {column} is exactly 0",
        f"token_id = {token} and {column} = 0",
        values=True,
    )


def _not_sampled(
    evidence: LogEvidence, column: str, fault: str, position: int | None = None
) -> tuple[str, LeftOut | None]:
    """What tells a token that nobody drew, and the rows: it is the same nearly each time.

    The prompt gives the first one of all responses. Behind it other tokens were drawn, too; values that are lost would
    be theirs as well.

    Args:
        position: where all of them are; None: in several places.
    """
    if not evidence.log.has("token_id"):
        return "", None
    there = "" if position is None else f"position = {position} and "
    of = evidence.frame(
        f"select token_id, count(*) filter ({ROW_FAULTS[fault]}) as n, count(*) filter ({column} = 0) as zeros, "
        f"count({column}) as known, count(*) filter ({column} < {HALF}) as doubted from examined "
        f"where {there}token_id is not null group by token_id order by n desc"
    )
    if not len(of) or of["n"].iloc[0] <= _ONE_TOKEN * of["n"].sum():
        return "", None
    if position == 0:
        if of["zeros"].sum() <= _ONE_TOKEN * of["known"].sum():
            return "", None
        said = ", one token in nearly all responses: it was not sampled (BOS, or the end of the prompt)"
        return said, LeftOut("first tokens, which were not sampled", "position = 0")
    token, n, others = int(of["token_id"].iloc[0]), of["n"].iloc[0], of["doubted"].iloc[1:].sum()
    if column != "logp_behavior" or min(n, others) < _FEWEST_FORCED:
        return "", None
    by = "forced there, by a budget or a grammar" if there else "put there, by a template or a tool"
    at = f"forced at position {position}" if there else "put there"
    return f", token id {token} each time: it was {by}, and not drawn", LeftOut(
        f"token id {token} where it was {at}", f"{there}token_id = {token} and {column} = 0"
    )
