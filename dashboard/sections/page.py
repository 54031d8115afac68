"""A page, declared once: the app draws it, the report writes its section; menu, links and tests go over all of them.

A page answers a question about a run. Its module declares it as `PAGE` and holds what it says and shows, without
Streamlit: `components.page` draws it. What needs a widget that is no `Choice` is a function in `views/`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.logged import QUESTIONS
from ratioscope.analysis.findings.words import listed
from ratioscope.catalogue import THRESHOLDS
from ratioscope.dashboard.sections.model import Block, Chart, Paragraph, Piece, Section, has_content
from ratioscope.dashboard.sections.subject import Subject, attempt, flat, key_numbers, reason
from ratioscope.errors import RatioscopeError

Caption = Literal["", "above", "below"]
"""Where the takeaway of a chart is written; "": only screen readers get it."""


@dataclass(frozen=True)
class Beside:
    """Blocks beside each other, those of a sequence below each other; no room is left for what has no content."""

    places: Sequence[Piece | Sequence[Piece]]
    across: int = 0
    """How many stand beside each other at most; 0: all."""
    widths: Sequence[int] = ()
    """Of the columns in proportion, which are then there whatever has content."""


@dataclass(frozen=True)
class Notice:
    """Why there is nothing to show."""

    text: str


Shown = Piece | Beside | Notice


@dataclass(frozen=True)
class Choice:
    """What a reader chooses; the address has it under its key. The functions of its page or part get its value."""

    key: str
    label: str
    options: Mapping[str, Any] | Callable[[Subject], Mapping[str, Any]]
    """What can be chosen, by its words; where there is nothing, the value is None. Of a tick: unticked, ticked; of a
    text: nothing."""
    kind: Literal["select", "search", "slider", "segments", "several", "tick", "text"] = "select"
    usual: Callable[..., Any] | None = None
    """Of the options and what is chosen above, the words that are chosen at first; None: the first ones."""
    help: str | Callable[[Subject], str] = ""
    width: int = 0
    """In pixels; several of which one has a width stand in a line, else in columns."""
    hint: str = ""
    """Of an empty one."""


@dataclass(frozen=True)
class Part:
    """A part of a page: one line until it is opened, or without a key and a title a part that is open."""

    key: str
    """Names it in the address; short, unique on the page."""
    title: "str | Told"
    shows: Callable[..., Iterable[Shown]] | str
    """Its blocks, made when it is open; or the function of `views.<page>` that draws it."""
    says: "str | Told" = ""
    """Its takeaway in a few words, so that most readers need not open it; plain text. Where there is none, the worst
    step of its metrics."""
    choices: Sequence[Choice] = ()
    when: Callable[..., bool] | None = None
    """Whether it is there; None: always."""
    then: "Sequence[Part]" = ()
    """Parts that are there only while this one is open; they know its choices."""
    opened: bool | Callable[..., bool] = False
    """Whether it is open where the address does not say."""
    metrics: Sequence[str] = ()
    """Of the charts inside; a link to a finding's evidence that is one of them opens it."""
    height: int = 0
    """Of what holds the place of blocks that take time; 0: they take none."""
    caption: Caption = ""
    above: bool | Callable[..., bool] = False
    """Whether it stands above the tiles."""


Told = Callable[..., str]
"""Words about a subject; after it come the values of the choices."""
Written = Callable[[Subject], Block | Iterable[Block]]
"""Blocks of a report."""


@dataclass(frozen=True)
class Page:
    """A question, its answer and all that is shown with it; its functions get the values of its choices, in order."""

    key: str
    title: str
    question: str
    place: int
    """In the menu and in the report, from the lowest number on."""
    icon: str = ""
    """In the menu; "": it is only in the report."""
    group: str = "One run"
    """Of the menu."""
    asks: Sequence[str] = ()
    """The questions of `analysis.findings.logged` that it is about."""
    also: Sequence[str] = ()
    """What it can say besides; where it cannot, its answer says so."""
    answer: Callable[..., str] | None = None
    """In words; None: a view of its own draws the page."""
    slow: bool = False
    """Whether the answer takes time."""
    choices: Sequence[Choice] = ()
    """Of the whole page."""
    main: Callable[..., Iterable[Shown]] | None = None
    """The blocks below the answer."""
    caption: Caption = ""
    height: int = 0
    """As of a part."""
    tiles: Sequence[str] = ()
    """Metrics."""
    without: Callable[[Subject], Iterable[str]] | None = None
    """Those that would say nothing here."""
    reported: Collection[str] = ()
    """Metrics; the page has the numbers of other frameworks that are nearest to them."""
    parts: Sequence[Part] = ()
    all_said: Callable[[Subject], bool] | None = None
    """Whether its answer is all that there is to say."""
    besides: Callable[[Subject], bool] | None = None
    """Whether there is something that is no metric, for a log that leaves all of its questions open."""
    own: bool = False
    """Whether `views.<key>` draws it: it has little in common with other pages."""
    report: Sequence[Written] = ()
    """The blocks of its section in their order; none: it has no section."""
    limits: Sequence[str] = ()
    """Names of the thresholds that it measures by."""
    heading: tuple[str, str] | None = None
    """Title and question of the section, where they are not those of the page."""
    texts: bool = False
    """Whether the section has something to read where all of its questions are open."""

    @property
    def prose(self) -> str:
        """How to read it, in Markdown: the file beside its module; "" where there is none."""
        file = Path(__file__).with_name(f"{self.key}.md")
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def explained(self, limits: Limits) -> str:
        """How to read it, and the limits that it measures by, each with where it is from; Markdown."""
        each = [
            f"- {name} {getattr(limits, name):g}: {THRESHOLDS[name].meaning}. From: {THRESHOLDS[name].source}."
            for name in self.limits
        ]
        return "\n\n".join(filter(None, (self.prose, "\n".join(["Limits:\n", *each]) if each else "")))

    @property
    def written_as(self) -> tuple[str, str]:
        """Title and question of its section."""
        return self.heading or (self.title, self.question)

    @property
    def in_address(self) -> Iterator[str]:
        """What its address may ask for: parts that are open, and what is chosen."""
        every = [*_every(self.parts)]
        yield from (part.key for part in every if part.key)
        yield from (choice.key for choices in (self.choices, *(part.choices for part in every)) for choice in choices)

    def not_said(self, subject: Subject) -> str:
        """Which of its questions the log leaves open, and why, in one sentence; "" where it leaves none."""
        log = subject.log
        reasons: dict[str, list[str]] = {}
        for question in self.asks:
            if absent := log.absent(question):
                need = next(need for need in QUESTIONS[question].needs if set(need) <= set(absent))
                reasons.setdefault(log.why(*need), []).append(QUESTIONS[question].words)
        if not reasons:
            return ""
        told = "; ".join(f"{listed(words)}, because {reason}" for reason, words in reasons.items())
        return f"This log does not say {told}."

    def is_empty(self, subject: Subject) -> bool:
        """Whether the log leaves all of its questions open."""
        return bool(self.asks) and all(subject.log.absent(question) for question in (*self.asks, *self.also))

    def content(self, subject: Subject) -> Section:
        """Its section with all blocks."""
        assert self.answer is not None
        try:
            said = self.answer(subject)
        except RatioscopeError as error:
            said = reason(subject, error)
        blocks = (block for write in self.report for block in attempt(subject, partial(_listed, write, subject)))
        return Section(self.key, *self.written_as, said, tuple(blocks))

    def section(self, subject: Subject) -> Section:
        """As a report has it: below its answer what is not logged, and only that where nothing is."""
        unsaid = self.not_said(subject)
        if self.is_empty(subject) and not self.texts:
            return Section(self.key, *self.written_as, unsaid, ())
        section = self.content(subject)
        blocks = tuple(_in_words(block) for block in section.blocks if has_content(block))
        if not section.answer:
            return replace(section, answer=unsaid, blocks=blocks)
        said = (Paragraph(unsaid, small=True),) if unsaid and unsaid not in section.answer else ()
        return replace(section, blocks=said + blocks)


def _listed(write: Written, subject: Subject) -> Iterable[Block]:
    blocks = write(subject)
    return blocks if isinstance(blocks, Iterable) else (blocks,)


def _in_words(block: Block) -> Block:
    """A chart whose lines are all flat is a sentence."""
    says = flat(block) if isinstance(block, Chart) else ""
    return Paragraph(says, small=True) if says else block


def in_numbers(*keys: str) -> Written:
    """The table of these metrics, for a report."""
    return lambda subject: key_numbers(subject, keys)


def words(options: Iterable[Any], say: Callable[[Any], str] = str) -> dict[str, Any]:
    """The options of a choice by their words."""
    return {say(option): option for option in options}


def _every(parts: Iterable[Part]) -> Iterator[Part]:
    """These, and the parts that follow them."""
    for part in parts:
        yield part
        yield from _every(part.then)
