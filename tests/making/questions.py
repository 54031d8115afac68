"""What docs/questions quotes of the sample runs: findings and numbers, as the tool gives them today.

A page has a mark `<!-- sample: finding RUN RULE -->` or `<!-- sample: numbers KEY=HOW ... | RUN ... -->` and behind the
quotation `<!-- end -->`; `make docs` writes what stands between.
"""

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd

from ratioscope.analysis.compare.grouping import end_value
from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.findings.numbers import number
from ratioscope.catalogue import CATALOGUE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "questions"
_PART = re.compile(r"(<!-- sample: (?P<what>[^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_HOW: dict[str, tuple[str, Callable[[pd.Series], float]]] = {
    "median": ("median", pd.Series.median),
    "most": ("largest", pd.Series.max),
    "least": ("smallest", pd.Series.min),
    "end": ("last values", end_value),
}


def pages() -> list[Path]:
    """The pages of questions."""
    return sorted(FOLDER.glob("*.md"))


def made(text: str) -> str:
    """A page's text with its quotations as they are to be."""

    def quoted(found: re.Match[str]) -> str:
        kind, *words = found["what"].split()
        return f"{found[1]}\n{_KINDS[kind](*words).strip()}\n\n{found[3]}"

    return _PART.sub(quoted, text)


@cache
def _run(name: str) -> Opened:
    return open_folder(ROOT / "sample_runs" / name)


def _finding(name: str, rule: str) -> str:
    """A finding as a quotation: how severe, what happened, why, what to do."""
    found = next(finding for finding in _run(name).findings if finding.rule == rule)
    lines = [f"**{found.severity.word.capitalize()}.** {found.sentence}", f"*Why:* {found.why}", f"*Do:* {found.do}"]
    return "\n>\n".join(f"> {line}" for line in lines)


def _numbers(*words: str) -> str:
    """Metrics of some runs, each over the steps in a way that is named, as a table."""
    place = words.index("|")
    asked = [word.partition("=")[::2] for word in words[:place]]
    header = [f"{CATALOGUE[key].title} ({_HOW[how][0]})" for key, how in asked]
    rows = [["run", *header], ["---"] * (len(asked) + 1)]
    for name in words[place + 1 :]:
        summary = _run(name).summary.values
        values = [_HOW[how][1](summary[key]) for key, how in asked]
        rows.append([f"`{name}`", *("not logged" if math.isnan(value) else number(value) for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_KINDS: dict[str, Callable[..., str]] = {"finding": _finding, "numbers": _numbers}
