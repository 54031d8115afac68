"""Puts a report together: of one run, or of several with their comparison.

report = run_report(open_folder("runs/mine"))
report = comparison_report([open_folder(folder) for folder in folders])
"""

import os
import pickle
import platform
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from importlib.metadata import version
from threading import RLock

from ratioscope import __version__
from ratioscope.analysis.compare.chosen_metric import chosen_metric
from ratioscope.analysis.compare.grouping import grouped_settings
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.words import judged_without
from ratioscope.analysis.frameworks.naming import written_by
from ratioscope.analysis.overview.sentences import grave
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.fingerprint import fingerprint
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.runs.window import FirstLast
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.catalogue import CATALOGUE, ENTRIES
from ratioscope.dashboard.annotations import Pin, annotation_of
from ratioscope.dashboard.figures.pins import with_pins
from ratioscope.dashboard.formats import count
from ratioscope.dashboard.report.processes import processes
from ratioscope.dashboard.sections import ON_REQUEST, SECTIONS, SHORT, setting
from ratioscope.dashboard.sections.compare import comparison_sections, member_of
from ratioscope.dashboard.sections.compare.comparison import ComparedMeasure, Comparison
from ratioscope.dashboard.sections.model import Block, Chart, FindingBlock, Paragraph, Quantity, Report, Section, Table
from ratioscope.dashboard.sections.subject import Subject, steps_in_words
from ratioscope.dashboard.theme import LIGHT
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.metric import Metric
from ratioscope.sources import SOURCES

ReportProgress = Callable[[int, int, str], None]
"""Called with the number of parts done, of all, and the name of the next."""

_Made = tuple[Section, list[Finding] | None]
"""A section, and the linter's remarks where they were made on the way."""

_LONGEST = ("drift", "variance")
"""Sections that start first, in reverse order, so that not all have to wait for one of them in the end."""
_LIBRARIES = ("duckdb", "numpy", "pandas", "plotly", "pyarrow", "torch")


def silent(done: int, of: int, name: str) -> None:
    """No progress."""


def default_pages(runs: Sequence[Opened], framework: str = "") -> tuple[str, ...]:
    """The short form: of one run what was found, or how a healthy one went; of several the comparison alone."""
    also = ON_REQUEST if framework else ()
    if len(runs) > 1:
        return also
    return ("findings", *also) if grave(runs[0].findings) else (*SHORT, *also)


def full_pages(runs: Sequence[Opened], framework: str = "") -> tuple[str, ...]:
    """Everything about each run; the page of frameworks where it is asked for, or where a framework wrote them all."""
    also = ON_REQUEST if framework or all(written_by(opened.run.manifest) for opened in runs) else ()
    # Learning and Drift have what is at a glance.
    return tuple(name for name in SECTIONS if name != "overview" and (name not in ON_REQUEST or name in also))


def command_line(
    runs: Sequence[Opened],
    pages: Sequence[str],
    steps: FirstLast = (None, None),
    metric: str | None = None,
    *,
    framework: str = "",
    output: str = "",
) -> str:
    """How a report is made on the command line, as a shell takes it."""
    words = ["ratioscope", "report", *(str(opened.run.folder) for opened in runs)]
    words += ["-o", output] if output else []
    if set(pages) == set(full_pages(runs, framework)):
        words.append("--full")
    elif set(pages) != set(default_pages(runs, framework)):
        words += ["--pages", ",".join(pages)]
    if steps != (None, None):
        words += ["--steps", ":".join("" if end is None else str(end) for end in steps)]
    if len(runs) > 1 and metric:
        words += ["--metric", metric]
    if framework:
        words += ["--framework", framework]
    if runs[0].thresholds_file:
        words += ["--thresholds", runs[0].thresholds_file]
    return shlex.join(words)


def run_report(
    opened: Opened,
    *,
    pages: Sequence[str] | None = None,
    steps: FirstLast = (None, None),
    framework: str = "",
    progress: ReportProgress = silent,
    pool: Executor | None = None,
) -> Report:
    """The report over one run.

    Args:
        pages: keys of `SECTIONS`, in any order; the report keeps the order of `SECTIONS`. None: `default_pages`.
        steps: what the report is about; findings are always those of the whole run.
        framework: whose numbers the page of frameworks has; default: the run's, or all.
        pool: makes the sections (`report.workers`); default: two threads.

    Raises:
        RatioscopeError: there is no such page, no step of the run lies in the range, or a file of the run cannot be
            read any more.
    """
    chosen = _checked(default_pages([opened], framework) if pages is None else pages)
    subject = subject_of(opened, steps, framework)
    found, pins = _sections([subject], chosen, progress, pool), _pins(subject)
    manifest, index = opened.run.manifest, subject.summary.values.index
    return Report(
        "run",
        manifest.name,
        f"{setting.in_a_line(manifest)}; {steps_in_words(int(index[0]), int(index[-1]))}",
        subject.verdict.pairs,
        (*_once(_told(_pinned(section, pins), subject.verdict.pairs) for section in found), *_notes(pins)),
        methods(found),
        {name: source.title for name, source in SOURCES.items()},
        _provenance([opened], command_line([opened], chosen, steps, framework=framework)),
        asdict(opened.limits),
        tuple(caution.text for caution in setting.cautions(subject)) if "setting" not in chosen else (),
        lights=subject.verdict.lights,
        brief=_is_brief(chosen),
    )


def comparison_report(
    runs: Sequence[Opened],
    *,
    pages: Sequence[str] | None = None,
    metric: str | None = None,
    steps: FirstLast = (None, None),
    framework: str = "",
    progress: ReportProgress = silent,
    pool: Executor | None = None,
) -> Report:
    """The report over several runs: how they compare, then each of them.

    Args:
        pages: keys of `SECTIONS`, for each run; None: none of them, the comparison alone.
        framework: as of `run_report`.
        metric: by which the runs are compared; see `chosen_metric`.
        pool: as of `run_report`.

    Raises:
        RatioscopeError: as `run_report`, or the runs cannot be compared by this metric.
    """
    chosen = _checked(default_pages(runs, framework) if pages is None else pages)
    subjects = [subject_of(opened, steps, framework) for opened in runs]
    members = [member_of(subject) for subject in subjects]
    groups = grouped_settings(members)
    chosen_by = chosen_metric(groups, metric)
    compared = Comparison(groups, ComparedMeasure(chosen_by.metric))
    found = list(comparison_sections(compared, subjects, brief=_is_brief(chosen)))
    for place, section in enumerate(_sections(subjects, chosen, progress, pool)):
        number = place // len(chosen)
        pinned = _pinned(section, _pins(subjects[number]))
        found.append(_of_run(pinned, number, subjects[number].opened.run_id))
    return Report(
        "comparison",
        f"{len(runs)} runs compared",
        f"{len(groups)} settings, by {CATALOGUE[chosen_by.metric].title.lower()}",
        tuple(("", line) for line in compared.words.said),
        tuple(_once(found)),
        methods(found),
        {name: source.title for name, source in SOURCES.items()},
        _provenance(runs, command_line(runs, chosen, steps, metric, framework=framework)),
        asdict(runs[0].limits) if all(opened.limits == runs[0].limits for opened in runs) else {},
        tuple(filter(None, (chosen_by.instead, *compared.words.remarks))),
        brief=_is_brief(chosen),
    )


def _is_brief(pages: Sequence[str]) -> bool:
    return set(pages) <= {*SHORT, *ON_REQUEST}


def _pins(subject: Subject) -> list[Pin]:
    """The user's notes on the steps that the report is about."""
    steps = subject.summary.values.index
    return [pin for pin in annotation_of(subject.opened.run.folder).pins if pin[0] in steps]


def _pinned(section: Section, pins: Sequence[Pin]) -> Section:
    """The section with these notes in its charts over the steps."""

    def drawn(chart: Chart) -> Chart:
        return replace(chart, figure=with_pins(chart.figure, pins, LIGHT)) if chart.by_step else chart

    def marked(block: Block) -> Block:
        if isinstance(block, Chart):
            return drawn(block)
        return replace(block, chart=drawn(block.chart)) if isinstance(block, FindingBlock) and block.chart else block

    return replace(section, blocks=tuple(map(marked, section.blocks))) if pins else section


def _notes(pins: Sequence[Pin]) -> Iterator[Section]:
    if pins:
        rows = tuple((str(step), text) for step, text in pins)
        said = f"{len(rows)} steps have a note." if len(rows) > 1 else f"Step {rows[0][0]} has a note."
        yield Section("notes", "Notes", "What was noted on the way?", said, (Table("", ("Step", "Note"), rows),))


def _told(section: Section, answers: Sequence[tuple[str, str]]) -> Section:
    """Findings of which the verdict says all but the evidence are marked."""
    said = " ".join(text for _, text in answers)

    def marked(block: Block) -> Block:
        if isinstance(block, FindingBlock):
            found = block.finding
            return replace(block, told=all(text in said for text in (found.why, found.do, found.sure)))
        return block

    return replace(section, blocks=tuple(map(marked, section.blocks)))


def _once(sections: Iterable[Section]) -> Iterator[Section]:
    """A remark that several sections of a run make is made by the first of them."""
    said: set[tuple[str, str]] = set()
    for section in sections:
        blocks = []
        for block in section.blocks:
            if isinstance(block, Paragraph) and block.small:
                if (section.group, block.text) in said:
                    continue
                said.add((section.group, block.text))
            blocks.append(block)
        yield replace(section, blocks=tuple(blocks))


def _sections(
    subjects: Sequence[Subject], pages: Sequence[str], progress: ReportProgress, pool: Executor | None
) -> list[Section]:
    """These pages of the first run, then those of the next.

    The pool begins at the long end of the work, with a job for each of its processes, this thread at the other.
    """
    pages_of = [(place, name) for place in range(len(subjects)) for name in pages]
    waiting = deque(sorted(pages_of, key=lambda job: -_LONGEST.index(job[1]) if job[1] in _LONGEST else 1))
    begun: dict[tuple[int, str], Future[_Made]] = {}
    made: dict[tuple[int, str], _Made] = {}
    choosing = RLock()  # a pool's own thread hands out as well
    with ThreadPoolExecutor(1, thread_name_prefix="report") if pool is None else nullcontext(pool) as executor:
        # Another process gets them as they are now: what this one works with keeps growing caches.
        handed = list(subjects) if pool is None else list(map(pickle.dumps, subjects))

        def hand_out(_: object = None) -> None:
            """One more job for the pool. Jobs are never withdrawn: a pool that breaks may hang on that."""
            with suppress(IndexError), choosing:
                job = waiting.popleft()
                try:
                    begun[job] = executor.submit(_section, handed[job[0]], job[1])
                except (BrokenExecutor, RuntimeError):  # it is dead, or the report has failed: then all is done here
                    waiting.append(job)
                else:
                    begun[job].add_done_callback(hand_out)

        try:
            for _ in range(1 if pool is None else processes()):
                hand_out()
            while len(made) < len(pages_of):
                with choosing:
                    job = waiting.pop() if waiting else next(job for job in reversed(begun) if job not in made)
                (place, name) = job
                subject, future = subjects[place], begun.get((place, name))
                progress(
                    len(made), len(pages_of) + 1, f"{subject.opened.run_id}: {name}" if len(subjects) > 1 else name
                )
                if future is not None:
                    with suppress(BrokenExecutor):
                        made[place, name] = future.result()
                if (place, name) not in made:
                    made[place, name] = _section(subject, name)
        finally:
            waiting.clear()
    for (place, _), (_, remarks) in made.items():
        if remarks is not None:  # of another process: not to be looked for again
            vars(subjects[place]).setdefault("remarks", remarks)
    return [made[job][0] for job in pages_of]


def _section(subject: Subject | bytes, name: str) -> _Made:
    if isinstance(subject, bytes):
        subject = _unpacked(subject)
    with one_thread():
        return SECTIONS[name].section(subject), vars(subject).get("remarks")


@lru_cache(maxsize=1)
def _unpacked(subject: bytes) -> Subject:
    found: Subject = pickle.loads(subject)
    return found


def _checked(pages: Sequence[str]) -> list[str]:
    for name in pages:
        if name not in SECTIONS:
            raise unknown("a page of the report", name, SECTIONS)
    return [name for name in SECTIONS if name in pages]


def subject_of(opened: Opened, steps: FirstLast = (None, None), framework: str = "") -> Subject:
    """What a report over these steps is about.

    Raises:
        RatioscopeError: no step of the run lies in the range.
    """
    index = opened.summary.values.index
    if not len(index):
        raise RatioscopeError(f"{opened.run.folder}: no step is on disk; there is nothing to report.")
    first, last = steps
    if first is None and last is None:
        return Subject(opened, framework=framework)
    ends = (int(index[0]) if first is None else max(first, int(index[0])), int(index[-1]))
    subject = Subject(opened, (ends[0], ends[1] if last is None else min(last, ends[1])), framework=framework)
    if not len(subject.summary.values):
        raise RatioscopeError(
            f"{opened.run.folder}: it has the steps {index[0]} to {index[-1]}, none of which was asked for."
        )
    return subject


def _of_run(section: Section, place: int, name: str) -> Section:
    """A section of one of several runs: keys that no other run has."""

    def renamed(block: Block) -> Block:
        if isinstance(block, Chart):
            return replace(block, key=f"run{place + 1}-{block.key}")
        if isinstance(block, FindingBlock):
            chart = block.chart and replace(block.chart, key=f"run{place + 1}-{block.chart.key}")
            return replace(block, key=f"run{place + 1}-{block.key}", chart=chart)
        return block

    return replace(section, key=f"run{place + 1}-{section.key}", blocks=tuple(map(renamed, section.blocks)), group=name)


def methods(sections: Sequence[Section]) -> tuple[Metric, ...]:
    """The definition of each metric that a figure, a table or a finding shows."""
    used = {key for section in sections for chart in section.charts for key in chart.metrics}
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table):
                used |= {cell.key for row in block.rows for cell in row if isinstance(cell, Quantity)}
            elif isinstance(block, FindingBlock):
                used.add(block.finding.metric)
    return tuple(entry for key, entry in ENTRIES.items() if key in used)


def _provenance(runs: Sequence[Opened], command: str) -> tuple[tuple[str, str], ...]:
    """How the report was made, without the time: the same input gives the same report."""
    rows = [("Command", command), ("ratioscope", __version__), ("Python", platform.python_version())]
    rows.append(("Libraries", ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)))
    if len(runs) == 1:
        return (*rows, *_data(runs[0]))
    several = any(opened.limits != runs[0].limits for opened in runs)
    for opened in runs:
        told = [*_data(opened), *([("Thresholds", _limits(opened))] if several else [])]
        rows.append((opened.run_id, "; ".join(f"{label.lower()}: {value}" for label, value in told)))
    return tuple(rows)


def _data(opened: Opened) -> Iterator[tuple[str, str]]:
    """What a run's numbers are made of."""
    run, values = opened.run, opened.summary.values
    files, counts = sum(len(found) for found in run.files.values()), values[list(COUNTS)].sum()
    held = f"{count(counts['n_tokens'])} usable tokens, {count(counts['n_sequences'])} responses, "
    held += "1 step" if len(values) == 1 else f"{len(values)} steps"
    yield "Folder", str(run.folder)
    yield "Data signature", f"{fingerprint(run)} (footers of {files} files and the manifest)"
    yield "Rows", held
    excluded = _excluded({str(key): float(value) for key, value in counts.items()}, _relative(run))
    yield "Excluded", "; ".join(filter(None, (judged_without(run.left_out), excluded)))


def _limits(opened: Opened) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in asdict(opened.limits).items())


def _relative(run: Run) -> list[str]:
    """What is wrong with the run's files, by their names in it."""
    return [problem.replace(f"{run.folder}{os.sep}", "") for problem in run.problems]


def _excluded(counts: Mapping[str, float], problems: Sequence[str]) -> str:
    parts = [
        f"{counts[key]:,.0f} tokens with {words}"
        for key, words in (("n_invalid_nan", "NaN"), ("n_invalid_infinite", "an infinite number"),
                           ("n_invalid_positive", "a log-prob above 0"), ("n_invalid_advantage", "no finite advantage"))
        if counts[key]
    ]  # fmt: skip
    if counts["n_undefined"]:
        parts.append(f"{counts['n_undefined']:,.0f} responses without W, because one of their tokens is not usable")
    return "; ".join([*parts, *problems]) or "nothing"
