"""Rows of a log that are wrong, named by a condition, so that everything that reads the run leaves them out.

rows = LeftOut("rank 2, whose log-probabilities belong to other tokens", "rank = 2", table="sequences")
rest = replace(run, left_out=(rows,))       # `relations(rest)` and `summarise(rest)` see the others only

The files stay as they are: a run that was opened again has all of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ratioscope.inert import one_line
from ratioscope.run_format import schema

LOG_PROBABILITIES = tuple(column.name for column in schema.TOKENS.columns if column.name.startswith("logp_"))


@dataclass(frozen=True)
class LeftOut:
    """A part of the rows of a log that no reader sees: most often a check found them wrong."""

    words: str
    """The part and what is wrong with it, a noun with a clause: "rank 2, whose …"."""
    where: str
    """SQL over the columns of `table`, with windows over a response at most; null is false."""
    table: str = schema.TOKENS.name
    whole: bool = False
    """Whether the responses should not be there at all, in the sequences table neither: `where` names keys alone."""
    values: bool = False
    """Whether the log-probabilities alone are wrong: rows stay, and of them none is known."""
    share: float = 0.0
    """Of the tokens, beyond those of the parts before it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", one_line(self.words))  # they may quote the log

    def over_tokens(self, sequences: str) -> str:
        """The condition over the tokens table.

        Args:
            sequences: SQL of a relation with the rows of the sequences table.
        """
        found = self.where
        if self.table == schema.SEQUENCES.name:
            found = f"(step, seq_id) in (select (step, seq_id) from {sequences} as listed where {found})"
        return f"coalesce(({found}), false)"


def kept_rows(rows: str, table: schema.DeclaredTable, left_out: Sequence[LeftOut], sequences: str) -> str:
    """SQL of the rows of a table without the wrong ones.

    Args:
        rows: SQL of a relation with all of them.
        sequences: the same of the sequences table.
    """
    if table is not schema.TOKENS:
        left_out = [each for each in left_out if each.whole and table is schema.SEQUENCES]
    # Conditions are about the rows as they are on disk.
    values, others = (
        " or ".join(each.over_tokens(sequences) for each in left_out if each.values == kind) or "false"
        for kind in (True, False)
    )
    if not left_out:
        return rows
    unknown = ", ".join(f"case when not no_value then {name} end as {name}" for name in LOG_PROBABILITIES)
    replaced = f" replace ({unknown})" if table is schema.TOKENS else ""
    found = f"(select *, {values} as no_value, {others} as is_wrong from {rows})"
    return f"(select * exclude (no_value, is_wrong){replaced} from {found} where not is_wrong)"
