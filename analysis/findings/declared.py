"""What a rule and a check declare where they are computed; their registries hold them with causes before consequences.

A row's place is its `order`, a number with room on both sides of it, so that a new one names no other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any, TypeVar


@dataclass(frozen=True, eq=False)
class DeclaredFinding:
    """A function that looks for something, and what others say of it."""

    name: str
    function: Callable[..., Any]
    order: int
    """Its place among the others: causes before their consequences."""
    page: str
    """The key of the dashboard's page that shows the evidence; "" for none."""

    def __call__(self, evidence: Any) -> Any:
        """What it finds, under its name."""
        return self.function(evidence)

    @property
    def about(self) -> str:
        """What it looks for, as its function says."""
        return getdoc(self.function) or ""

    @property
    def question(self) -> str:
        """The first paragraph of that, as one line."""
        return " ".join(self.about.split("\n\n")[0].split())


_Row = TypeVar("_Row", bound=DeclaredFinding)


def put(row: _Row, rows: dict[str, _Row]) -> _Row:
    """The row, put in its place in a registry."""
    assert row.name not in rows and row.order not in {each.order for each in rows.values()}, row.name
    rows[row.name] = row
    for each in sorted(rows.values(), key=lambda each: each.order):
        rows[each.name] = rows.pop(each.name)
    return row
