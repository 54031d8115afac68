"""A case: a log with one fault, or with none, what a perfect tool says of it, and what is untrue.

A pattern is one or several regular expressions joined by " & ": all of them must be in what one finding or remark says
(sentence, why and do, in lower case).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.cases.world import Log

FAMILIES = ("sampler", "weights", "log", "advantage", "loss", "selection", "update", "healthy", "sick but true")
Make = Callable[[], Log]


@dataclass(frozen=True)
class Case:
    """A declared case; `make` is called anew for each log."""

    name: str
    family: str
    truth: str
    """What a perfect tool says, in one sentence."""
    make: Make
    report: str = ""
    """Who met it in public: repository and number."""
    needs: tuple[str, ...] = ()
    """Patterns that must be said; nothing need be said of a case without one."""
    never: tuple[str, ...] = ()
    """Patterns that would be untrue."""
    columns: tuple[str, ...] = ("all",)
    """Sets of columns that a log is written with, one log each."""

    def logs(self) -> dict[str, str]:
        """Names of its logs, each with its set of columns."""
        return {
            self.name if columns == "all" else f"{self.name}-{columns.replace(' ', '_')}": columns
            for columns in self.columns
        }


def says(pattern: str, text: str) -> bool:
    """Whether all parts of a pattern are in a text."""
    return all(re.search(part, text, re.DOTALL) for part in pattern.split(" & "))


class Register(dict[str, Case]):
    """Cases by name; called, it is the decorator that declares one, by the name of the function that makes its log."""

    def __call__(
        self,
        family: str,
        truth: str,
        *,
        report: str = "",
        needs: tuple[str, ...] = (),
        never: tuple[str, ...] = (),
        columns: tuple[str, ...] = ("all",),
    ) -> Callable[[Make], Make]:
        """Declare the function below; the arguments are the fields of `Case`."""

        def declared(make: Make) -> Make:
            self[make.__name__] = Case(make.__name__, family, truth, make, report, needs, never, columns)
            return make

        return declared
