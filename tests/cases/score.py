"""What ratioscope says of the cases, and whether it is right: found, vague, silent or untrue; quiet or a false alarm.

found        what must be said is said by one finding or remark
vague        something above a notice is said, and not that
silent       nothing above a notice is said
untrue       a pattern is met that must not be said
quiet        nothing need be said, and nothing above a notice is (healthy), or nothing untrue (sick but true)
false alarm  a healthy run has a finding or a remark above a notice
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from ratioscope.analysis.diagnosis import diagnose
from ratioscope.analysis.findings.finding import Finding, Outcome, Severity
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.cases import (
    held_out,
    held_out_again,
    held_out_eighth,
    held_out_eleventh,
    held_out_fifth,
    held_out_fourteenth,
    held_out_fourth,
    held_out_ninth,
    held_out_seventh,
    held_out_sixth,
    held_out_tenth,
    held_out_third,
    held_out_thirteenth,
    held_out_twelfth,
)
from tests.cases.case import Case, Register, says
from tests.cases.faults import FAULTS
from tests.cases.healthy import HEALTHY, SICK
from tests.cases.world import write

HELD_OUT: dict[str, Register] = {
    "held-out": held_out.HELD_OUT,
    "held-out again": held_out_again.HELD_OUT_AGAIN,
    "held-out a third time": held_out_third.HELD_OUT_THIRD,
    "held-out a fourth time": held_out_fourth.HELD_OUT_FOURTH,
    "held-out a fifth time": held_out_fifth.HELD_OUT_FIFTH,
    "held-out a sixth time": held_out_sixth.HELD_OUT_SIXTH,
    "held-out a seventh time": held_out_seventh.HELD_OUT_SEVENTH,
    "held-out an eighth time": held_out_eighth.HELD_OUT_EIGHTH,
    "held-out a ninth time": held_out_ninth.HELD_OUT_NINTH,
    "held-out a tenth time": held_out_tenth.HELD_OUT_TENTH,
    "held-out an eleventh time": held_out_eleventh.HELD_OUT_ELEVENTH,
    "held-out a twelfth time": held_out_twelfth.HELD_OUT_TWELFTH,
    "held-out a thirteenth time": held_out_thirteenth.HELD_OUT_THIRTEENTH,
    "held-out a fourteenth time": held_out_fourteenth.HELD_OUT_FOURTEENTH,
}
"""Sets that nothing was tuned with when they were first scored, by the word before their kinds."""
FIRST_SCORE = held_out.FIRST_SCORE | held_out_again.FIRST_SCORE | held_out_third.FIRST_SCORE
FIRST_SCORE |= held_out_fourth.FIRST_SCORE | held_out_fifth.FIRST_SCORE | held_out_sixth.FIRST_SCORE
FIRST_SCORE |= held_out_seventh.FIRST_SCORE | held_out_eighth.FIRST_SCORE | held_out_ninth.FIRST_SCORE
FIRST_SCORE |= held_out_tenth.FIRST_SCORE | held_out_eleventh.FIRST_SCORE | held_out_twelfth.FIRST_SCORE
FIRST_SCORE |= held_out_thirteenth.FIRST_SCORE
FIRST_SCORE |= held_out_fourteenth.FIRST_SCORE
CASES: dict[str, Case] = {**FAULTS, **HEALTHY, **SICK} | {
    name: case for cases in HELD_OUT.values() for name, case in cases.items()
}
RECORDED = Path(__file__).with_name("verdicts.json")
BEST_FIRST = ("found", "quiet", "vague", "silent", "false alarm", "untrue")
# "not temperature: slope 1.00" does not say that it is the temperature.
_DENIED = re.compile(r"\b(?:not|no|nor|without|rather than|instead of) (?:an? |the )?[\w-]+")


@dataclass(frozen=True)
class Judged:
    """What is said of one log, by the sentence that decides."""

    verdict: str
    sentence: str = ""
    severity: str = ""
    rule: str = ""
    tokens: int = 0


def logs() -> dict[str, tuple[Case, str]]:
    """All logs by name: the case, and the set of columns."""
    return {name: (case, columns) for case in CASES.values() for name, columns in case.logs().items()}


def made(name: str, folder: Path) -> Path:
    """Write one log into a folder; it is written anew if it is there."""
    case, columns = logs()[name]
    shutil.rmtree(folder / name, ignore_errors=True)
    return write(case.make(), folder / name, columns)


@dataclass(frozen=True)
class Said:
    """One finding of the diagnosis, or one remark of the linter."""

    kind: str
    finding: Finding

    @property
    def loud(self) -> bool:
        """Whether it is above a notice."""
        return self.finding.severity >= Severity.WARNING

    @property
    def text(self) -> str:
        """Everything that it says, in lower case, behind its kind and severity."""
        each = self.finding
        return f"{self.kind} {each.severity.word}: {each.sentence} {each.why} {each.do}".lower()

    @property
    def claim(self) -> str:
        """What it claims: what is above a notice, all of it; a notice, its sentence."""
        head = f"{self.kind} {self.finding.severity.word}: {self.finding.sentence}".lower()
        return _DENIED.sub("", self.text if self.loud else head)


def said(run: Path) -> tuple[list[Said], int]:
    """Everything that the linter and the diagnosis find, worst first, and the number of tokens."""
    opened = open_run(run)
    with one_thread():
        summary = summarise(opened)
        remarks = lint(opened)
        findings = diagnose(summary, opened, remarks=remarks)
    found = [Said("finding", finding) for finding in findings]
    found += [Said("remark", remark) for remark in remarks if remark.outcome is Outcome.FOUND]
    return sorted(found, key=lambda each: -each.finding.severity), int(summary.values["n_tokens"].sum())


def judged(case: Case, found: list[Said], tokens: int = 0) -> Judged:
    """The verdict on what is said of a case."""

    def of(verdict: str, each: Said | None) -> Judged:
        if each is None:
            return Judged(verdict, tokens=tokens)
        finding = each.finding
        return Judged(verdict, finding.sentence, finding.severity.word, finding.rule, tokens)

    def first(pattern: str) -> Said | None:
        return next((each for each in found if says(pattern, each.text)), None)

    loudest = next((each for each in found if each.loud), None)
    if case.family == "healthy":
        return of("quiet" if loudest is None else "false alarm", loudest)
    untrue = next((each for each in found if any(says(pattern, each.claim) for pattern in case.never)), None)
    if untrue is not None:
        return of("untrue", untrue)
    if not case.needs:
        return of("quiet", loudest)
    if all(first(pattern) for pattern in case.needs):
        return of("found", first(case.needs[0]))
    return of("silent" if loudest is None else "vague", loudest)


def verdict_of(name: str, folder: Path) -> Judged:
    """The verdict on a log, which is written into a folder first."""
    return judged(logs()[name][0], *said(made(name, folder)))


def verdicts(names: Iterable[str], folder: Path, processes: int = 2) -> Iterator[tuple[str, Judged]]:
    """The verdicts on logs, which are written into a folder, in their order."""
    chosen = list(names)
    with ProcessPoolExecutor(processes) as pool:
        yield from zip(chosen, pool.map(verdict_of, chosen, [folder] * len(chosen)), strict=True)


def recorded() -> dict[str, Judged]:
    """The verdicts that `docs/cases.md` is made of."""
    return {name: Judged(**fields) for name, fields in json.loads(RECORDED.read_text(encoding="utf-8")).items()}


def record(found: dict[str, Judged]) -> None:
    """Keep these verdicts beside the recorded ones of other logs, one a line."""
    every = (recorded() if RECORDED.exists() else {}) | found
    lines = [
        f"{json.dumps(name)}: {json.dumps(asdict(every[name]), ensure_ascii=False)}" for name in logs() if name in every
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def kind_of(case: Case) -> str:
    """Faults, healthy or sick but true; held-out ones apart."""
    kind = case.family if case.family in ("healthy", "sick but true") else "faults"
    return next((f"{word} {kind}" for word, cases in HELD_OUT.items() if case.name in cases), kind)


def counted(found: dict[str, Judged]) -> dict[str, dict[str, int]]:
    """How many verdicts of each kind: of faults, healthy runs and sick ones, held out and not."""
    counts: dict[str, dict[str, int]] = {}
    known = logs()
    for name, each in found.items():
        of_kind = counts.setdefault(kind_of(known[name][0]), {})
        of_kind[each.verdict] = of_kind.get(each.verdict, 0) + 1
    return counts


def in_words(counts: dict[str, int]) -> str:
    """Counts of verdicts as text, the best first."""
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in BEST_FIRST if verdict in counts)
