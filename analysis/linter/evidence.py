"""What the checks look at: a run's tables, each scanned once however many checks ask.

with relations(run) as connection:
    evidence = Evidence(run, connection)
    evidence.by_step["positive"]          # rows of each step with that fault
    evidence.examples("positive")
"""

from functools import cached_property

import duckdb
import pandas as pd

from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.linter.remark import Example
from ratioscope.analysis.runs.database import filled, query
from ratioscope.analysis.runs.store import Run
from ratioscope.metric import doubt
from ratioscope.notes import Note
from ratioscope.tails import reliance_of

# Exactly 0 is "certain". A column that says so where another one gives less than one half was never filled in.
_HALF = -0.7
# A state with this much entropy (nats) has no certain token.
_UNCERTAIN_STATE = 0.1

LOG_PROBS = ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new")

# What can be wrong with a single row: a condition on `examined` (rows.sql).
ROW_FAULTS: dict[str, str] = {
    "nan": "coalesce(invalid, '') = 'nan'",
    "infinite": "coalesce(invalid, '') = 'infinite'",
    "positive": "coalesce(invalid, '') = 'positive'",
    "advantage": "coalesce(invalid, '') = 'advantage'",
    "ratio_zero": "invalid is null and (logp_current = '-inf'::float or logp_new = '-inf'::float)",
    "zero_logp_behavior": f"logp_behavior = 0 and logp_same_engine < {_HALF}",
    "zero_logp_behavior_train": f"logp_behavior_train = 0 and least(logp_behavior, logp_current) < {_HALF}",
    "zero_logp_current": "logp_current = 0 and "
    f"(least(logp_behavior, logp_new) < {_HALF} or coalesce(entropy, 0) > {_UNCERTAIN_STATE})",
    "zero_logp_new": f"logp_new = 0 and logp_current < {_HALF}",
    "copied_behavior": "version_lag > 0 and uncertain and logp_behavior = logp_current",
    "copied_new": "logp_current < -1e-3 and logp_new = logp_current",
    "future": "version_lag < 0",
    "clip_disagrees": "clipped <> (clip_side <> 0)",
    "gate_outside": "gate < 0 or gate > 1 or isnan(gate)",
    "clipped_with_gradient": "clipped and gradient_weight <> 0",
}

# Columns that belong to the same tokens as logp_current, and where a token's neighbours are.
ALIGNED = ("logp_behavior", "logp_behavior_train", "logp_new")
DIRECTIONS = ("before", "after")
# More rows than this are not needed to see a shift; sequences are chosen by a hash of their key.
ENOUGH_ROWS = 300_000

EXAMPLES = 3


class Evidence:
    """The tables of a run between two steps, as the checks need them.

    Args:
        run: what is checked.
        connection: of `relations(run, first, last)`, open as long as this object is used.
        first, last: the steps, both included; None is the first or last there is.
        limits: of the mean ratio.
    """

    def __init__(
        self,
        run: Run,
        connection: duckdb.DuckDBPyConnection,
        first: int | None = None,
        last: int | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.run, self._connection = run, connection
        self.limits = limits
        steps = run.read("steps")
        inside = (steps["step"] >= (first or 0)) & ((last is None) | (steps["step"] <= last))
        self.steps = steps[inside].sort_values("step")
        """The rows of the steps table."""
        connection.execute(query("linter/rows"))

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
        return self.frame(query("linter/states"))

    @cached_property
    def neighbours(self) -> "pd.Series[float]":
        """<column>_<here, before or after>_<direction>: correlations with logp_current; see lint_neighbours.sql."""
        correlations = ", ".join(
            f"corr({column}, {place}) filter (isfinite({column}) and {direction} is not null) "
            f"as {column}_{place}_{direction}"
            for column in ALIGNED
            for direction in DIRECTIONS
            for place in ("here", direction)
        )
        sql = filled("linter/neighbours", correlations=correlations, every=str(self.sampled))
        return self.frame(sql).iloc[0]

    @cached_property
    def doubt(self) -> Note | None:
        """Why the standard error of the mean ratio, a second moment, cannot be trusted; None where it can."""
        log_rho = self.frame("select log_rho from usable")["log_rho"].to_numpy(dtype=float)
        return doubt(reliance_of(log_rho))

    @property
    def sampled(self) -> int:
        """`neighbours` looks at one of this many sequences."""
        return max(1, round(self.n_rows / ENOUGH_ROWS))

    @property
    def n_rows(self) -> int:
        """Rows of the tokens table."""
        return self.total("n_rows")

    def total(self, column: str) -> int:
        """Sum of a count over all steps."""
        return int(self.groups[column].sum())

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


def steps_with(counts: "pd.Series[int]") -> tuple[int, ...]:
    """The steps in which something was counted."""
    return tuple(int(step) for step in counts.index[counts > 0])


def in_steps(steps: tuple[int, ...]) -> str:
    """ "in step 3", "in 5 steps (first 3, last 9)": a place in a sentence."""
    if len(steps) == 1:
        return f"in step {steps[0]}"
    return f"in {len(steps)} steps (first {min(steps)}, last {max(steps)})"
