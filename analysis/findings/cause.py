"""A cause is a row: the marks that speak for it and against it, what to change, and where it was reported.

cause("prefix_cache", Family.MISMATCH, "The sampler reuses a prefix cache of old weights",
      requires=(mismatch_of_repeated_prompts,), supports={mismatch_at_first_tokens: 1.0}, refutes=(...),
      do="Reset the prefix cache after each weight push.", reports=("NeMo-RL #4018",))

for suspects in rivals(Family.MISMATCH, evidence): ...    # the leading cause first, and what speaks for as much

A cause stands where each mark that it requires is present and none that refutes it is. Causes that rest on one and the
same required mark are rivals: the one with more of its marks present leads, or both are named with the column that
would decide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ratioscope.analysis.findings.evidence import Evidence
from ratioscope.analysis.findings.finding import Finding, Severity, estimated
from ratioscope.analysis.findings.mark import Mark, Observed, Presence
from ratioscope.analysis.findings.words import listed

_LEAD = 1.0
"""Weight by which a cause must be ahead of its rival to be named alone."""
_ABSENT = 0.5
"""What a supporting mark that is absent takes away, as a share of its weight."""
_MOST_CLAUSES = 3


class Family(Enum):
    """What causes compete to explain."""

    MISMATCH = "sampler and trainer differ at one version"
    CREDIT = "advantages and rewards"
    LOSS = "the loss that ran"
    SELECTION = "which responses are learned from"
    FALL = "the run falls"
    STALL = "the run does not learn"


@dataclass(frozen=True, eq=False)
class KnownCause:
    """What is known of a cause; see `cause`."""

    name: str
    family: Family
    words: str
    requires: tuple[Mark, ...]
    supports: Mapping[Mark, float]
    refutes: tuple[Mark, ...]
    do: str
    severity: Severity
    settings: Mapping[str, str] = field(default_factory=dict)
    """The same remedy in a framework's own settings, by its key."""
    reports: tuple[str, ...] = ()
    source: str = ""
    explains: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    of_the_run: bool = False

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All of its marks, those that it requires first."""
        return (*self.requires, *self.supports, *self.refutes)

    def stands(self, look: Callable[[Mark], Observed]) -> bool:
        """Whether all required marks are present and no refuting one is; no more marks are looked for than tell."""
        return all(look(mark).present for mark in self.requires) and not any(
            look(mark).present for mark in self.refutes
        )


@dataclass(frozen=True)
class Suspect:
    """A cause before the marks of one log."""

    cause: KnownCause
    signs: Mapping[str, Observed]
    """By the mark's name."""

    def of(self, marks: Sequence[Mark]) -> list[Observed]:
        return [self.signs[mark.name] for mark in marks]

    @property
    def stands(self) -> bool:
        return self.cause.stands(lambda mark: self.signs[mark.name])

    @property
    def score(self) -> float:
        """Weight of the marks that are present, less a part of that of the absent ones."""
        weights = {mark.name: 1.0 for mark in self.cause.requires}
        weights |= {mark.name: weight for mark, weight in self.cause.supports.items()}
        present = sum(weight for name, weight in weights.items() if self.signs[name].present)
        absent = sum(weight for name, weight in weights.items() if self.signs[name].presence is Presence.ABSENT)
        return present - _ABSENT * absent

    @property
    def speaking(self) -> list[Observed]:
        """The marks that are present and speak for it."""
        return [sign for sign in self.of((*self.cause.requires, *self.cause.supports)) if sign.present]


CAUSES: dict[str, KnownCause] = {}
"""By name, in the order of their declaration."""


def cause(
    name: str, family: Family, words: str, *, requires: Sequence[Mark], do: str, supports: Mapping[Mark, float] = {},
    refutes: Sequence[Mark] = (), severity: Severity = Severity.WARNING, settings: Mapping[str, str] = {},
    reports: Sequence[str] = (), source: str = "", explains: Sequence[str] = (), columns: Sequence[str] = (),
    of_the_run: bool = False,
) -> KnownCause:  # fmt: skip
    """Declare a cause.

    Args:
        words: the cause as a sentence without its full stop, subject first.
        requires: marks without which it is not named.
        supports: further marks that speak for it, with their weights.
        refutes: marks of which none may be present.
        do: the remedy, an imperative.
        reports: public reports, "NeMo-RL #4018".
        explains: checks and rules whose own findings this cause explains, so that their remedies are not given.
        columns: what is wrong; empty: what the marks were read off.
        of_the_run: it is wrong in the run, and the log is true, also where its check is one of the log.
    """
    assert requires and name not in CAUSES, name
    CAUSES[name] = KnownCause(
        name, family, words, tuple(requires), dict(supports), tuple(refutes), do, severity, dict(settings),
        tuple(reports), source, frozenset(explains), tuple(columns), of_the_run,
    )  # fmt: skip
    return CAUSES[name]


def suspects(causes: Iterable[KnownCause], evidence: Evidence) -> list[Suspect]:
    """Causes with all their marks: those that stand first, the likeliest before the others."""
    found = [Suspect(each, {mark.name: mark(evidence) for mark in each.marks}) for each in causes]
    return sorted(found, key=lambda each: (not each.stands, -each.score))


def _standing(family: Family, evidence: Evidence) -> list[Suspect]:
    """Those that stand, the likeliest first. Of most causes the first mark is absent, and the others cost time."""

    def look() -> list[Suspect]:
        return suspects((each for each in of_family(family) if each.stands(lambda mark: mark(evidence))), evidence)

    return evidence.once(f"standing {family.name}", look)


def of_family(family: Family) -> list[KnownCause]:
    """The causes that compete to explain one thing."""
    return [each for each in CAUSES.values() if each.family is family]


def rivals(family: Family, evidence: Evidence) -> list[list[Suspect]]:
    """The causes that stand, the leading one of each set of rivals first, with those that it is not clear of."""
    sets: list[list[Suspect]] = []
    for suspect in _standing(family, evidence):
        for leading in (each[0] for each in sets):
            if set(leading.cause.requires) & set(suspect.cause.requires):
                if leading.score - suspect.score < _LEAD:
                    next(each for each in sets if each[0] is leading).append(suspect)
                break
        else:
            sets.append([suspect])
    return sets


def findings_of(
    family: Family, evidence: Evidence, framework: str = "", severity: Callable[[Suspect], Severity] | None = None
) -> list[Finding]:
    """One finding for each set of rivals.

    Args:
        framework: whose settings a remedy is given in; "" for none.
        severity: of a finding, by its leading suspect; None: as the cause declares.
    """
    return [_finding(each, framework, (severity or (lambda one: one.cause.severity))(each[0]))
            for each in rivals(family, evidence)]  # fmt: skip


def _finding(found: Sequence[Suspect], framework: str, severity: Severity) -> Finding:
    leading, others = found[0], found[1:]
    speaking = leading.speaking
    clauses = [sign.reading.clause for sign in speaking]
    n_marks = sum(sign.known for sign in leading.of((*leading.cause.requires, *leading.cause.supports)))
    named = leading.cause.words
    if others:
        named = f"Either {_small(named)}, or {' or '.join(_small(each.cause.words) for each in others)}"
    columns = deciding(found) if others else ()
    remedy = leading.cause.do
    if setting := leading.cause.settings.get(framework):
        remedy = f"{remedy} Set {setting}."
    if others:
        remedy = f"Log {listed(columns[:2])} to decide. {remedy}" if columns else f"{remedy} Or: {others[0].cause.do}"
    return Finding(
        f"{named}: {clauses[0]}.",
        severity,
        remedy,
        tuple(estimated(sign.mark.words, sign.reading.value) for sign in speaking),
        next((sign.reading.steps for sign in speaking if sign.reading.steps), ()),
        leading.cause.columns or tuple(dict.fromkeys(name for sign in speaking for name in sign.reading.columns)),
        next((sign.reading.examples for sign in speaking if sign.reading.examples), ()),
        why=_signs(leading, clauses[1:_MOST_CLAUSES], len(speaking), n_marks),
        source=", ".join(leading.cause.reports) or leading.cause.source,
        of_cause=leading.cause.name,
        place=next((sign.reading.place for sign in speaking if sign.reading.place), ""),
        wrong_rows=next((sign.reading.wrong_rows for sign in speaking if sign.reading.wrong_rows), None),
    )


def _signs(of: Suspect, others: Sequence[str], present: int, known: int) -> str:
    """How many signs speak for a cause, which of them the sentence does not name, and how many refute it: none."""
    looked = sum(sign.known for sign in of.of(of.cause.refutes))
    if known == 1 and not others and looked < 2:
        return "This log has no other sign of it, nor one against it."
    text = f"{present} of {known} sign{'s' if known > 1 else ''}"
    text += f": {'; '.join(others)}" if others else ""
    return f"{text}; none of {looked} against." if looked > 1 else f"{text}."


def deciding(found: Sequence[Suspect]) -> tuple[str, ...]:
    """Columns that are not logged, of the marks that tell these causes apart."""
    roles = [{mark: role for role, marks in enumerate(_roles(each.cause)) for mark in marks} for each in found]
    telling = {mark for of in roles for mark in of if any(other.get(mark) != of[mark] for other in roles)}
    needs = (
        need for mark in telling for each in found if mark.name in each.signs for need in each.signs[mark.name].lacking
    )
    return tuple(dict.fromkeys(need[0].removeprefix("sequences.") for need in needs))


def _roles(of: KnownCause) -> tuple[Sequence[Mark], ...]:
    return of.requires, tuple(of.supports), of.refutes


def _small(words: str) -> str:
    """A sentence inside of another one; names of columns keep their letters."""
    first = words.split(" ", 1)[0]
    return words if first.isupper() or "_" in first else words[0].lower() + words[1:]


def cause_text(of: KnownCause) -> str:
    """Return a cause as `ratioscope explain` prints it: its words, its marks, what to do, who reported it."""
    lines = [
        f"{of.name} (cause): {of.words}.",
        f"Explains that {of.family.value}." if of.family is Family.MISMATCH else "",
    ]
    for title, marks in zip(("Needs", "Supported by", "Refuted by"), _roles(of), strict=True):
        lines += [f"{title}: {mark.words} (above {mark.limit:g})." for mark in marks]
    lines.append(f"Do: {of.do}")
    told = ", ".join(of.reports) or of.source
    return "\n".join(filter(None, [*lines, f"Reported: {told}." if told else ""]))


def table(family: Family, evidence: Evidence) -> list[dict[str, Any]]:
    """The causes of a family against their marks, the likeliest first; the shape of `diagnose --why --json`."""
    return [
        {
            "cause": each.cause.name,
            "words": each.cause.words,
            "stands": each.stands,
            "score": each.score,
            "marks": [
                {
                    "mark": mark.name,
                    "role": role,
                    "presence": each.signs[mark.name].presence.value,
                    "value": each.signs[mark.name].reading.value,
                    "limit": mark.limit,
                    "clause": each.signs[mark.name].reading.clause if each.signs[mark.name].present else mark.words,
                }
                for role, marks in zip(("requires", "supports", "refutes"), _roles(each.cause), strict=True)
                for mark in marks
            ],
        }
        for each in suspects(of_family(family), evidence)
    ]
