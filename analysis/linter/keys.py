"""Do the tables fit together: files, steps, keys, positions, groups and prompts."""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.logged import GROUP
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.evidence import LogEvidence, first_of, steps_with
from ratioscope.analysis.runs.left_out import LOG_PROBABILITIES, LeftOut
from ratioscope.run_format import schema


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


_FEWEST_GROUPS, _FEWEST_STEPS, _NEARLY_ALL = 4, 5, 0.95
