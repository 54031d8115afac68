"""The report on a run that went wrong, around the last step at which it was stable.

report = post_mortem_report(open_folder("runs/mine"))
"""

import shlex
from concurrent.futures import Executor
from dataclasses import replace

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.diagnosis.post_mortem import PostMortem, post_mortem
from ratioscope.dashboard.report.build import ReportProgress, methods, run_report, silent, subject_of
from ratioscope.dashboard.sections.model import Report
from ratioscope.dashboard.sections.post_mortem import section
from ratioscope.errors import RatioscopeError

# What may have ended a run: not what was run, nor the checks of the log.
_PAGES = ("findings", "learning", "drift", "ratios", "clipping", "staleness")
_MOST_ANSWERS = 7
"""Its own, the three lights, and what happened, since when and why."""
_LEAST_AROUND = 10
"""So many steps before and after the last stable one are shown at least, where there are any."""


def post_mortem_report(opened: Opened, *, progress: ReportProgress = silent, pool: Executor | None = None) -> Report:
    """The report around the last stable step, as many steps before it as it took to the end.

    Raises:
        RatioscopeError: the rules found nothing critical, or as `run_report`.
    """
    found = post_mortem(opened)
    if found is None:
        raise RatioscopeError(
            f"{opened.run.folder}: no finding about the training is critical, so there is nothing to look back on; "
            "leave --post-mortem out."
        )
    steps = _around(found, int(opened.summary.values.index[0]))
    made = run_report(opened, pages=_PAGES, steps=steps, progress=progress, pool=pool)
    sections = (section(subject_of(opened, steps), found), *made.sections)
    command = shlex.join(["ratioscope", "report", str(opened.run.folder), "--post-mortem"])
    provenance = tuple(("Command", command) if label == "Command" else (label, text) for label, text in made.provenance)
    return replace(
        made,
        verdict=(("Which was the last stable step?", found.sentence), *made.verdict)[:_MOST_ANSWERS],
        sections=sections,
        methods=methods(sections),
        provenance=provenance,
    )


def _around(found: PostMortem, first: int) -> tuple[int, int]:
    centre = first if found.last_stable is None else found.last_stable
    width = max(found.last - centre, _LEAST_AROUND)
    return max(first, centre - width), found.last
