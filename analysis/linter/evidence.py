"""What the checks look at: a run's tables, each scanned once however many checks ask.

with relations(run) as connection:
    evidence = LogEvidence(run, connection)
    evidence.by_step["positive"]          # rows of each step with that fault
    evidence.examples("positive")
"""

from collections.abc import Sequence
from functools import cached_property
from math import nan

import duckdb
import pandas as pd

from ratioscope.analysis.findings.declared import DeclaredFinding
from ratioscope.analysis.findings.evidence import Evidence
from ratioscope.analysis.findings.finding import Example, Finding, Outcome
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter.sample import COLUMNS as SAMPLED
from ratioscope.analysis.linter.sample import Drawn, Sample
from ratioscope.analysis.runs.database import PIECE, filled, query
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.relations import create_usable
from ratioscope.analysis.runs.store import Run
from ratioscope.metric import doubt
from ratioscope.notes import Note
from ratioscope.run_format.schema import LARGEST_LOG_PROBABILITY
from ratioscope.tails import reliance_of

# Log-probability below which another column contradicts "certain".
HALF = -0.7
# Log-probability above which a token is sure.
SURE = -1e-3
# A state with this much entropy (nats) has no certain token.
_UNCERTAIN_STATE = 0.1

LOG_PROBS = ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new")

# What contradicts that a token is certain, by column: a condition on `examined`. Entropy is of logp_current's own pass.
DOUBTS: dict[str, str] = {
    "logp_behavior": f"logp_same_engine < {HALF}",
    "logp_behavior_train": f"least(logp_behavior, logp_current) < {HALF}",
    "logp_current": f"coalesce(entropy > {_UNCERTAIN_STATE}, least(logp_behavior, logp_new) < {HALF})",
    "logp_new": f"logp_current < {HALF}",
}

# What can be wrong with a single row: a condition on `examined` (rows.sql).
ROW_FAULTS: dict[str, str] = {
    "nan": "coalesce(invalid, '') = 'nan'",
    "infinite": "coalesce(invalid, '') = 'infinite'",
    "positive": "coalesce(invalid, '') = 'positive'",
    "advantage": "coalesce(invalid, '') = 'advantage'",
    **{
        f"bad_{name}": f"not isfinite({name}) and not ({name} = '-inf'::float and {name != 'logp_behavior'}) "
        f"or isfinite({name}) and {name} > {LARGEST_LOG_PROBABILITY}"
        for name in SAMPLED
    },
    "bad_logp_behavior": f"not isfinite(logp_behavior) or logp_behavior > {LARGEST_LOG_PROBABILITY}",
    "bad_logp_current": f"isnan(logp_current) or logp_current > {LARGEST_LOG_PROBABILITY}",
    "bad_entropy": "not isfinite(entropy) or entropy < -1e-3",
    "bad_advantage": "not isfinite(advantage)",
    "ratio_zero": "invalid is null and (logp_current = '-inf'::float or logp_new = '-inf'::float)",
    **{f"zero_{name}": f"{name} = 0 and {doubted}" for name, doubted in DOUBTS.items()},
    "future": "version_lag < 0",
    "clip_disagrees": "clipped <> (clip_side <> 0)",
    "gate_outside": "gate < 0 or gate > 1 or isnan(gate)",
    "clipped_with_gradient": "clipped and gradient_weight <> 0",
    "rejected_with_gradient": "rejected <> '' and gradient_weight <> 0",
}

# More rows than this are not needed to see a shift; groups are chosen by a hash of their key.
ENOUGH_ROWS = 300_000

EXAMPLES = 3


class LogEvidence(Evidence):
    """The tables of a run between two steps, as the checks need them.

    Args:
        run: what is checked.
        connection: of `relations(run, first, last)`, open as long as this object is used.
        first, last: the steps, both included; None is the first or last there is.
        limits: of the mean ratio.
    """

    run: Run

    def __init__(
        self,
        run: Run,
        connection: duckdb.DuckDBPyConnection,
        first: int | None = None,
        last: int | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.run, self._connection = run, connection
        self._steps = first, last
        self.limits = limits
        steps = run.steps
        self.steps = steps[(steps["step"] >= (first or 0)) & ((last is None) | (steps["step"] <= last))]
        """The rows of the steps table, one a step."""
        rows = connection.execute("select (select count(*) from token) + (select count(*) from sequence)").fetchall()
        # To work out what thirty queries over nested views mean takes longer than to answer them.
        held = rows[0][0] <= PIECE
        if held:
            connection.execute("create or replace temp table sequence as select * from sequence")
        connection.register("policy_ahead", run.versions_ahead.reset_index())
        # Where some tokens have a version, a response's is theirs, and not that of the others.
        counted = str(run.counts_versions and not self.log.has("behavior_version")).lower()
        connection.execute(filled("linter/rows", kind="table" if held else "view", counted=counted))
        if held:
            connection.execute(
                "create or replace temp view token as "
                "select * exclude (response_lag, logp_same_engine, uncertain, fresh) from examined"
            )
            create_usable(connection)

    @cached_property
    def gradients(self) -> tuple[int, int]:
        """How many tokens have an advantage that neither gate nor mask stopped, and how many of them no gradient."""
        found = self.frame(
            "select count(*) as n, count(*) filter (gradient_weight = 0) as still from usable where advantage <> 0 "
            "and gradient_weight is not null and not coalesce(clipped, false) and coalesce(clip_side, 0) = 0 "
            "and coalesce(gate, 1) <> 0 and coalesce(rejected, '') = ''"
        ).iloc[0]
        return int(found["n"]), int(found["still"])

    @property
    def spreads_groups(self) -> bool:
        """Whether the responses of a group are shuffled over several updates (TRL's steps_per_generation)."""
        return self.run.manifest.schedule.get("groups_span_steps") is True

    def begins_unseen(self, steps: tuple[int, ...]) -> bool:
        """Whether steps begin where those that are looked at begin, and earlier ones may be like them."""
        every, seen = self.run.steps["step"], self.steps["step"]
        return bool(steps and len(seen) and min(steps) <= seen.min() and every.min() < seen.min())

    def in_steps(self, steps: tuple[int, ...]) -> str:
        """ "in step 3", "in 5 steps (first 3, last 9)", "(since step 3 at least, last 9)": a place in a sentence."""
        unseen = self.begins_unseen(steps)
        if len(steps) == 1:
            return f"in step {steps[0]}" + (" (earlier ones were not looked at)" if unseen else "")
        first = f"since step {min(steps)} at least" if unseen else f"first {min(steps)}"
        return f"in {len(steps)} steps ({first}, last {max(steps)})"

    def within(self, first: int, last: int) -> bool:
        """Whether some of these steps are looked at."""
        low, high = self._steps
        return (high is None or first <= high) and (low is None or last >= low)

    def remarks(self, check: DeclaredFinding) -> list[Finding]:
        """What a check says, asked once."""
        return self.once(f"check {check.name}", lambda: check(self))

    @property
    def rounding(self) -> float:
        """Nats by which two logged values may be apart by rounding, where the source keeps a few decimals; else 0."""
        return 2 * self.log.rounding

    def problems(self, *checks: DeclaredFinding) -> list[str]:
        """Which of the checks found a problem, in words."""
        found = (check for check in checks if any(remark.is_problem for remark in self.remarks(check)))
        return [check.name.replace("_", " ") for check in found]

    def found(self, check: DeclaredFinding) -> bool:
        """Whether the check found something, be it a notice."""
        return any(remark.outcome is Outcome.FOUND for remark in self.remarks(check))

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row a prompt group of a step: counts of each of `ROW_FAULTS`, and sums."""
        counts = ", ".join(f"count(*) filter ({condition}) as {name}" for name, condition in ROW_FAULTS.items())
        return self.frame(filled("linter/groups", counts=counts))

    @cached_property
    def by_step(self) -> pd.DataFrame:
        """`groups`, added up (smallest and largest where the name says so), by step."""
        steps = self.groups.drop(columns="group_id").groupby("step")
        extremes = {how: [name for name in self.groups.columns if name.startswith(f"{how}_")] for how in ("min", "max")}
        sums = steps.sum().drop(columns=[*extremes["min"], *extremes["max"]])
        return pd.concat([sums, steps[extremes["min"]].min(), steps[extremes["max"]].max()], axis=1)

    @cached_property
    def sequences(self) -> pd.DataFrame:
        """One row a sequence whose rows contradict each other or its row in the other table."""
        return self.frame(query("linter/sequences"))

    @cached_property
    def states(self) -> pd.DataFrame:
        """Sums of squares inside states that several responses share, by prompt group; see lint_states.sql."""
        return self.frame(filled("linter/states", half=str(HALF)))

    @cached_property
    def sample(self) -> Sample:
        """Tokens of whole groups, of all or of one in `sampled`."""
        return Sample(self.frame(filled("linter/sample", every=str(self.sampled))))

    @cached_property
    def fresh(self) -> pd.DataFrame:
        """Tokens with a known engine's part and what places them, of whole groups, of all or of one in `sampled`.

        Where no age is known, the whole mismatch stands for it: see `knows_age`.
        """
        apart = "fresh" if self.knows_age else "log_rho"
        return self.frame(filled("linter/fresh", every=str(self.sampled), apart=apart))

    @property
    def knows_age(self) -> bool:
        """Whether the engine's part can be told from the age of the data.

        By the ages of whole responses it can where most steps have some of their own policy.
        """
        if self.log.has("behavior_version", "logp_behavior_train"):
            return True
        return self.log.has("sequences.behavior_version_min") and bool((self.by_step["n_fresh"] > 0).mean() > 0.5)

    @cached_property
    def drawn(self) -> dict[str, Drawn]:
        """What each logged log-probability says inside shared states."""
        known = self.log.has("token_id")
        unknown = Drawn(nan, nan, nan)
        return {
            column: self.sample.drawn(column) if known else unknown for column in SAMPLED if self.sample.logged(column)
        }

    @cached_property
    def responses(self) -> pd.DataFrame:
        """One row a response of the sequences table: step, seq_id, group_id, reward, n_tokens, dropped, failure."""
        return self.frame(
            "select step, seq_id, group_id, reward, n_tokens, dropped, failure from sequence order by step, seq_id"
        )

    @cached_property
    def doubt(self) -> Note | None:
        """Why the standard error of the mean ratio, a second moment, cannot be trusted; None where it can."""
        log_rho = self.frame("select log_rho from usable where log_rho is not null")["log_rho"].to_numpy(dtype=float)
        return doubt(reliance_of(log_rho))

    @property
    def sampled(self) -> int:
        """`sample` looks at one of this many groups."""
        return max(1, round(self.n_rows / ENOUGH_ROWS))

    @property
    def all_steps(self) -> tuple[int, ...]:
        """The steps with tokens."""
        return tuple(int(step) for step in self.by_step.index)

    @property
    def n_rows(self) -> int:
        """Rows of the tokens table."""
        return self.total("n_rows")

    def total(self, column: str) -> int:
        """Sum of a count over all steps."""
        return self.once(f"total of {column}", lambda: int(self.groups[column].to_numpy().sum()))

    def shares(self, parts: Sequence[LeftOut]) -> list[float]:
        """Of each part, the share of the tokens that it leaves out beyond the parts before it."""
        if not parts or not self.n_rows:
            return []
        inside = [each.over_tokens("sequence") for each in parts]
        first = " ".join(f"when {condition} then {number}" for number, condition in enumerate(inside))
        of_part = self.frame(
            f"select part, count(*) as n from (select case {first} end as part from token) group by part"
        )
        counts = of_part.dropna().set_index("part")["n"]
        return [float(counts.get(number, 0)) / self.n_rows for number in range(len(parts))]

    def frame(self, sql: str) -> pd.DataFrame:
        """The result of a query over `token`, `usable`, `sequence` and `examined`."""
        return self._connection.execute(sql).df()

    def examples(self, fault: str) -> tuple[Example, ...]:
        """The first rows with one of `ROW_FAULTS`."""
        return self.rows_where(ROW_FAULTS[fault])

    def rows_where(self, condition: str, order: str = "step, seq_id, position") -> tuple[Example, ...]:
        """The first rows of `examined` that a condition holds for."""
        found = self._connection.execute(
            f"select step, seq_id, position from examined where {condition} order by {order} limit {EXAMPLES}"
        ).fetchall()
        return tuple(Example(*row) for row in found)


def first_of(responses: pd.DataFrame) -> tuple[Example, ...]:
    """The first responses of a table with step and seq_id."""
    first = responses.head(EXAMPLES)
    return tuple(Example(int(step), int(seq)) for step, seq in zip(first["step"], first["seq_id"], strict=True))


def steps_with(counts: "pd.Series[int]") -> tuple[int, ...]:
    """The steps in which something was counted."""
    return tuple(int(step) for step in counts.index[counts > 0])
