"""Do the tables fit together: files, steps, versions, keys, positions, groups and prompts."""

from collections.abc import Iterable, Iterator, Sequence
from math import sqrt

import pandas as pd

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.linter.check import AGE, check
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.runs.left_out import LOG_PROBABILITIES, LeftOut
from ratioscope.run_format import schema

# Tokens that one version of the weights produced agree to this share when two columns mean the same version.
EQUAL_SHARE = 0.99
FEWEST_TOKENS = 100


@check(order=10, needs=())
def files(evidence: LogEvidence) -> list[Finding]:
    """Files that had to be left out."""
    problems = [problem.replace(f"{evidence.run.folder}/", "") for problem in evidence.run.problems]
    if not problems and not any(evidence.run.files.values()):
        return not_checked("The run has no file.")
    if not problems:
        return passed(f"All {sum(map(len, evidence.run.files.values()))} files can be read.")
    more = f" And {len(problems) - 1} more." if len(problems) > 1 else ""
    return [
        Finding(
            f"{problems[0]}{more}",
            Severity.WARNING,
            "Write the files again, or remove them: what they contain is missing from every number.",
            (estimated("files left out", len(problems)),),
        )
    ]


@check(order=30, needs=())
def steps(evidence: LogEvidence) -> list[Finding]:
    """Steps that are missing, that one table lacks, or that are there twice."""
    of_responses = evidence.by_step.index if evidence.log.has_tokens else evidence.responses["step"]
    listed, with_tokens = evidence.steps["step"], {int(step) for step in of_responses}
    present = sorted({int(step) for step in listed})
    if not present:
        return not_checked("The steps table has no rows in this range.")
    # A trainer may log every n-th update: the most frequent distance is the rule, larger ones are gaps.
    distance = int(pd.Series(present).diff().mode().iloc[0]) if len(present) > 1 else 1
    dropped = _counted(evidence, schema.DROPPED)
    empty = [step for step in present if step not in with_tokens and not dropped[step]]
    faults = (
        (
            sorted(set(range(present[0], present[-1], distance)) - set(present)),
            Severity.WARNING,
            f"Steps missing between {present[0]} and {present[-1]}, where one is logged every {distance}",
            "Means over steps and the age of batches are wrong there: look for updates that failed or were not logged.",
        ),
        (
            sorted(with_tokens - set(present)),
            Severity.WARNING,
            f"Steps with {'tokens' if evidence.log.has_tokens else 'responses'} and no row in the steps table",
            "Without policy_version the step number is used instead: log one row per step.",
        ),
        (
            empty,
            Severity.NOTICE,
            "Steps with a row in the steps table, no tokens, and no count of dropped ones",
            "Log how many tokens were dropped, or the tokens.",
        ),
        (
            [step for step in evidence.run.repeated_steps if step in set(present)],
            Severity.CRITICAL,
            "Steps with several rows in the steps table",
            "Write each step once, after a restart, too.",
        ),
    )
    remarks = [
        Finding(
            f"{words}: {len(where)}, {evidence.in_steps(tuple(where))}.", severity, do,
            (estimated("steps", len(where)),), tuple(where), ("step",),
        )
        for where, severity, words, do in faults
        if where
    ]  # fmt: skip
    return remarks or passed(_steps_in_words(present, distance))


def _steps_in_words(present: Sequence[int], distance: int) -> str:
    if len(present) == 1:
        return f"One step, {present[0]}."
    every = f", one every {distance}" if distance > 1 else ""
    return f"{len(present)} steps from {present[0]} to {present[-1]}{every}."


@check(order=40, needs=AGE, page="staleness")
def versions(evidence: LogEvidence) -> list[Finding]:
    """Tokens from a policy that did not exist yet, and version numbers that are off by one."""
    by_step, remarks = evidence.by_step, []
    future, newest = evidence.total("future"), int(by_step["min_version_lag"].min())
    if future:
        remarks.append(
            Finding(
                f"{future:,} tokens were sampled by a version newer than the policy at the start of their update, "
                f"{evidence.in_steps(steps_with(by_step['future']))}; the newest is {-newest} ahead.",
                Severity.CRITICAL,
                "Count versions as the steps table does: policy_version is the version before the update, and "
                "the sampler's weights cannot be newer.",
                (estimated("tokens", future),),
                steps_with(by_step["future"]),
                ("behavior_version", "policy_version"),
                evidence.examples("future"),
            )
        )
    remarks += _backwards(evidence) + _unlabelled(evidence)
    remarks += _one_token_off(evidence) or _changes_off(evidence)
    one_behind, equal = evidence.total("n_one_behind"), evidence.total("n_one_behind_equal")
    if one_behind >= FEWEST_TOKENS and newest == 1 and not evidence.rounding and equal > EQUAL_SHARE * one_behind:
        remarks.append(
            Finding(
                f"No token has its update's own version, and the {one_behind:,} tokens that are one version old have "
                "the current policy's log-probabilities. The version numbers are off by one.",
                Severity.WARNING,
                "Log the version before the update as policy_version, and number the sampler's weights the same way.",
                (estimated("share of equal tokens one version back", equal / one_behind),),
                steps_with(by_step["n_one_behind_equal"]),
                ("behavior_version", "policy_version"),
                evidence.rows_where("version_lag = 1 and uncertain and abs(log_rho) <= 1e-5"),
            )
        )
    return remarks or passed(f"No token is newer than its update; the newest are {newest} versions old.")


def _unlabelled(evidence: LogEvidence) -> list[Finding]:
    """Tokens without a version beside others that have one: their age is unknown, not 0."""
    missing = evidence.total("n_unlabelled")
    share = missing / evidence.n_rows
    if not 0 < share < 1 or share < _FEW_UNLABELLED:
        return []
    steps = steps_with(evidence.by_step["n_unlabelled"])
    return [
        Finding(
            f"behavior_version is missing in {percent(share)} of the tokens, {evidence.in_steps(steps)}: their age is "
            "unknown, not 0.",
            Severity.WARNING if share > _MANY_UNLABELLED else Severity.NOTICE,
            "Log the version with each token when it is sampled; ages and the engine's part leave these tokens out.",
            (estimated("share of the tokens", share),),
            steps,
            ("behavior_version",),
            evidence.rows_where("behavior_version is null"),
        )
    ]


def _one_token_off(evidence: LogEvidence) -> list[Finding]:
    """First tokens (or last ones) with the version of the response in the row before (or after), not of their own."""
    of = evidence.frame(
        """
        with response as (
            select step, seq_id, arg_min(behavior_version, position, 2) as head,
                arg_max(behavior_version, position, 2) as tail
            from token where behavior_version is not null group by step, seq_id having count(*) > 1
        ),
        beside as (
            select step, head[1] as first, head[2] as second, tail[1] as last, tail[2] as next_to_last,
                lag(tail[1]) over run as before, lead(head[1]) over run as after
            from response window run as (partition by step order by seq_id)
        )
        select step, count(*) as n, count(*) filter (first <> second) as late,
            count(*) filter (first <> second and first = before) as others_late,
            count(*) filter (last <> next_to_last) as early,
            count(*) filter (last <> next_to_last and last = after) as others_early
        from beside where before is not null and after is not null group by step order by step
        """
    ).set_index("step")
    found = []
    for words, token, beside in (("late", "first", "before"), ("early", "last", "after")):
        n, apart, others = (int(of[name].sum()) for name in ("n", words, f"others_{words}"))
        if apart < FEWEST_SHIFTED or apart < _LEAST_SHIFTED * n or others < _NEARLY_ALL * apart:
            continue
        found.append(
            Finding(
                f"behavior_version is one token {words}: the {token} token of {percent(apart / n)} of the responses "
                f"has the version of the response {beside} it.",
                Severity.WARNING,
                _SHIFT_VERSIONS,
                (estimated("responses", apart),),
                steps_with(of[words]),
                ("behavior_version",),
            )
        )
    return found


def _changes_off(evidence: LogEvidence) -> list[Finding]:
    """Inside of responses the distance from the policy changes one token before, or behind, the label."""
    if not evidence.log.has("logp_current"):
        return []
    of = evidence.frame(
        f"""
        with several as (
            select step, seq_id from token where behavior_version is not null group by all
            having min(behavior_version) < max(behavior_version)
        ),
        rows as (
            select step, seq_id, position, least(abs(log_rho), 1) as distance,
                behavior_version <> lag(behavior_version) over response as changes
            from usable semi join several using (step, seq_id)
            window response as (partition by step, seq_id order by position)
        ),
        once as (
            select step, seq_id, min(position) as edge from rows where changes group by all having count(*) = 1
        )
        select position - edge as place, count(*) as n, avg(distance) as mean, var_samp(distance) / count(*) as square
        from rows join once using (step, seq_id)
        where position between edge - {_AROUND} - 1 and edge + {_AROUND} and isfinite(distance) group by all
        """
    ).set_index("place")
    if not {-1, 0} <= {*of.index} or of["n"].min() < FEWEST_CHANGES:
        return []
    for words, edge, own, beyond in (
        ("late", -1, of.loc[: -2], of.loc[1:]), ("early", 0, of.loc[1:], of.loc[: -2]),
    ):  # fmt: skip
        if not len(own) or not len(beyond):
            continue
        at, error = float(of["mean"][edge]), float(of["square"][edge])
        (inside, e_in), (outside, e_out) = (
            (float(part["mean"].mean()), float(part["square"].mean()) / len(part)) for part in (own, beyond)
        )
        # The token at the edge differs from its own side as clearly as the other side does, and not from that.
        gap = outside - inside
        if (
            abs(gap) > _CLEARLY * sqrt(e_in + e_out)
            and (at - inside) / gap > _MOSTLY
            and abs(at - inside) > _CLEARLY * sqrt(error + e_in)
        ):
            n = int(of["n"][edge])
            return [
                Finding(
                    f"behavior_version changes one token {words}. The token {'before' if words == 'late' else 'after'} "
                    f"the change is {number(at)} nats from the policy, as are those on the other side "
                    f"({number(outside)}), not those on its own ({number(inside)}).",
                    Severity.WARNING,
                    _SHIFT_VERSIONS,
                    (estimated("responses with one change", n),),
                    evidence.all_steps,
                    ("behavior_version",),
                )
            ]
    return []


_SHIFT_VERSIONS = "Shift the versions by one position: a token has the version of the weights that drew it."
# Responses with one change of the version, tokens around it, standard errors, and share of the gap.
FEWEST_CHANGES, _AROUND, _CLEARLY, _MOSTLY = 100, 4, 5.0, 0.75

# Responses whose outermost token has another version than the next one, and of how many that is their neighbour's.
FEWEST_SHIFTED, _LEAST_SHIFTED, _NEARLY_ALL = 20, 0.1, 0.95


def _backwards(evidence: LogEvidence) -> list[Finding]:
    """Versions of the policy, or the newest ones of the sampler, that are older than those of an earlier step."""
    remarks, steps = [], evidence.steps.dropna(subset=["policy_version"]).drop_duplicates("step")
    newest = (steps.set_index("step")["policy_version"] - evidence.by_step["min_version_lag"]).dropna()
    for column, of, severity in (
        ("policy_version", steps.set_index("step")["policy_version"], Severity.CRITICAL),
        ("behavior_version", newest, Severity.WARNING),
    ):
        if evidence.total("future"):
            continue
        usual = evidence.by_step["max_version_lag"].expanding().median().shift(fill_value=0).reindex(of.index).clip(1)
        back = of.index[of.cummax() - of > _BACK_BY[column] * usual]
        if len(back) and not (column == "behavior_version" and _are_older(evidence, back)):
            where = tuple(int(step) for step in back)
            remarks.append(
                Finding(
                    f"{column} goes back: {evidence.in_steps(where)} it is older than in a step before"
                    + ("." if column == "policy_version" else ", by more than the data are old."),
                    severity,
                    "Count updates of the weights on and on, also after a restart: ages are wrong otherwise.",
                    (estimated("steps", len(where)),),
                    where,
                    (column,),
                )
            )
    return remarks


def _are_older(evidence: LogEvidence, back: "pd.Index[int]") -> bool:
    """Whether what was sampled in these steps is as far from the policy as its versions say: it came late."""
    apart = evidence.frame(
        "select step, avg(abs(logp_current - logp_behavior)) as apart from usable group by step"
    ).set_index("step")["apart"]
    late = apart.index.isin(back)
    return bool(apart[late].median() > _FARTHER * apart[~late].median())


_FARTHER = 2.0
"""Times the distance of the other steps."""

# Shares of tokens without a version, from which on it is said, and changes what ages mean.
_FEW_UNLABELLED, _MANY_UNLABELLED = 0.001, 0.05
# Schedules that mix versions may sample an older one next.
_BACK_BY = {"policy_version": 0.0, "behavior_version": 2.0}


@check(order=50)
def sequence_rows(evidence: LogEvidence) -> list[Finding]:
    """Duplicate rows, gaps, sequences that one of the tables lacks, counts and groups on which they disagree."""
    remarks = [
        Finding(
            f"Sequences {words}: {len(found):,}, {evidence.in_steps(steps_with(found.groupby('step').size()))}.",
            severity,
            do,
            (estimated("sequences", len(found)),),
            steps_with(found.groupby("step").size()),
            columns,
            first_of(found),
            wrong_rows=_COPIES if columns == _REPEATED else None,
        )
        for found, severity, words, columns, do in _contradictions(evidence)
        if len(found)
    ]
    return remarks or passed(
        "Every response is in both tables, with as many rows as it has tokens, in one group, each position once"
        + (" (rows that filters dropped aside)." if len(evidence.sequences) else "."),
    )


_REPEATED = ("step", "seq_id", "position")
_COPIES = LeftOut(
    "rows that are there already, value for value",
    f"row_number() over (partition by {', '.join((*_REPEATED, 'token_id', *LOG_PROBABILITIES))}) > 1",
)
_Contradiction = tuple[pd.DataFrame, Severity, str, tuple[str, ...], str]


def _contradictions(evidence: LogEvidence) -> Iterator[_Contradiction]:
    """The sequences with each kind of contradiction, and what to say of them."""
    found = evidence.sequences
    in_both = found["n_rows"].notna() & found["n_listed"].notna()
    was_dropped = found["dropped"].notna()
    yield (
        found[found["n_rows"] > found["n_positions"]],
        Severity.CRITICAL,
        "with several rows for one position",
        _REPEATED,
        "A repeated key counts twice: number responses uniquely within a step, and write each row once.",
    )
    yield (
        found[found["n_listed"] > 1],
        Severity.CRITICAL,
        "with several rows in the sequences table",
        ("step", "seq_id"),
        "Number responses uniquely within a step.",
    )
    yield (
        found[found["n_listed"].isna()],
        Severity.WARNING,
        "with tokens and no row in the sequences table",
        ("seq_id",),
        "Write a row for every response; without it there is no reward, length or text.",
    )
    yield (
        found[(found["lowest_group"] != found["highest_group"]) & found["n_rows"].notna()],
        Severity.CRITICAL,
        "with tokens in several prompt groups",
        ("group_id",),
        "A response belongs to one prompt; intervals resample groups and would be too narrow.",
    )
    yield (
        found[
            in_both & (found["lowest_group"] == found["highest_group"]) & (found["lowest_group"] != found["group_id"])
        ],
        Severity.CRITICAL,
        "with another group_id in the tokens table than in the sequences table",
        ("group_id",),
        "Use one numbering of prompt groups for both tables.",
    )
    yield (
        found[in_both & (found["n_rows"] > found["n_tokens"]) & (found["n_rows"] == found["n_positions"])],
        Severity.CRITICAL,
        "with more token rows than n_tokens",
        ("n_tokens",),
        "Log the tokens of the response alone: apply its mask before logging, and count what it keeps in n_tokens.",
    )
    short = found[found["n_listed"].notna() & ~was_dropped & (found["n_rows"].fillna(0) < found["n_tokens"])]
    unexplained = short[short["step"].isin(_unexplained_steps(evidence, short))]
    without = unexplained["n_rows"].isna()
    yield (
        unexplained[without],
        Severity.WARNING,
        "with n_tokens and without token rows",
        ("n_tokens", "dropped"),
        "Log their tokens as well, or say in `dropped` why they are left out: numbers of tokens are the others'.",
    )
    yield (
        unexplained[~without],
        Severity.WARNING,
        "with fewer token rows than n_tokens, which no count of dropped tokens explains",
        ("n_tokens", "dropped"),
        "Log every response token, or say in `dropped` and tokens_dropped_… what was left out.",
    )
    yield (
        found[was_dropped & found["n_rows"].notna()],
        Severity.NOTICE,
        "with token rows although they are marked as dropped from the loss",
        ("dropped",),
        "Token rows are what the loss saw; leave out those of dropped responses.",
    )
    gaps = found[(found["last_position"] + 1 > found["n_positions"]) & ~found.index.isin(short.index)]
    yield (
        gaps,
        Severity.NOTICE,
        "with gaps in their positions although no row is missing",
        ("position",),
        "Right where tool tokens are left out; otherwise count positions of logged tokens from 0 on.",
    )


def _unexplained_steps(evidence: LogEvidence, short: pd.DataFrame) -> list[int]:
    """The steps in which more rows are missing than the filters say they dropped."""
    missing = (short["n_tokens"] - short["n_rows"].fillna(0)).groupby(short["step"]).sum()
    # Groups that were sampled again have no sequences on disk.
    filters = schema.DROPPED.keys() - {"tokens_dropped_no_signal"}
    explained = _counted(evidence, filters).reindex(missing.index).fillna(0)
    return [int(step) for step in missing.index[missing > explained]]


def _counted(evidence: LogEvidence, filters: Iterable[str]) -> "pd.Series[float]":
    """How many tokens these filters say they dropped, by step."""
    return evidence.steps[[*filters]].fillna(0).sum(axis=1).groupby(evidence.steps["step"]).sum()


@check(order=60, needs=(GROUP, ("sequences.prompt_id",)))
def prompts(evidence: LogEvidence) -> list[Finding]:
    """Groups that hold the answers to different prompts, and steps whose groups are all of one."""
    logged = evidence.frame("select count(prompt_id) as n from sequence")["n"].iloc[0]
    if not logged:
        return not_checked("prompt_id is not logged.")
    mixed = evidence.frame(
        "select step, group_id, count(distinct prompt_id) as prompts, "
        "min(seq_id) filter (prompt_id <> usual) as seq_id "
        "from (select *, mode(prompt_id) over (partition by step, group_id) as usual from sequence) "
        "group by step, group_id having count(distinct prompt_id) > 1 order by step, group_id"
    )
    if mixed.empty:
        return _one_prompt_a_step(evidence) or passed("Every group answers one prompt.")
    where = steps_with(mixed.groupby("step").size())
    return [
        Finding(
            f"Groups with answers to several prompts (up to {mixed['prompts'].max()}): {len(mixed):,}, "
            f"{evidence.in_steps(where)}.",
            Severity.CRITICAL,
            "group_id must identify the prompt: intervals resample groups, and group advantages compare within one "
            "prompt.",
            (estimated("groups", len(mixed)),),
            where,
            ("group_id", "prompt_id"),
            first_of(mixed),
        )
    ]


def _one_prompt_a_step(evidence: LogEvidence) -> list[Finding]:
    """Whether nearly all steps have several groups of one prompt, and others of another."""
    of_step = evidence.frame(
        "select step, count(distinct group_id) as n_groups, count(distinct prompt_id) as n_prompts, "
        "min(prompt_id) as prompt from sequence where prompt_id is not null group by step order by step"
    )
    alone = of_step[(of_step["n_prompts"] == 1) & (of_step["n_groups"] >= _FEWEST_GROUPS)]
    if len(alone) < max(_FEWEST_STEPS, _NEARLY_ALL * len(of_step)) or alone["prompt"].nunique() == 1:
        return []
    steps = tuple(int(step) for step in alone["step"])
    return [
        Finding(
            f"All groups of a step are of one prompt {evidence.in_steps(steps)}: {alone['n_groups'].median():.0f} a "
            "step. Each update learns from one task alone, and the mean reward is that of its prompt.",
            Severity.WARNING,
            "Shuffle the prompts, and repeat each as often as a group has responses and not as a step has.",
            (estimated("steps", len(alone)),),
            steps,
            ("prompt_id",),
        )
    ]


_FEWEST_GROUPS, _FEWEST_STEPS = 4, 5
