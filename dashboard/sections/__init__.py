"""The pages, in their order: each is declared by the module of its question, or in a row here where it is all a view.

To add one, write a module with its `PAGE`: menu, report, notices, links, command line and tests have it from then on.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from ratioscope.dashboard.sections.compare import QUESTION
from ratioscope.dashboard.sections.page import Page

_OTHERS = (
    Page("runs", "Runs", "Which runs are there, and which need attention?", 0, ":material/list:", group="", own=True),
    Page("sql", "SQL", "Anything else?", 110, ":material/database:", own=True),
    Page("compare", "Compare", QUESTION, 200, ":material/stacked_line_chart:", own=True,
         group="One or several runs"),
    Page("report", "Report", "Take it away", 210, ":material/description:", own=True, group="One or several runs"),
)  # fmt: skip
"""Pages that are no section."""


def _declared() -> Iterator[Page]:
    for module in iter_modules(__path__):
        page = getattr(import_module(f"{__name__}.{module.name}"), "PAGE", None)
        if isinstance(page, Page):
            yield page


PAGES = {page.key: page for page in sorted((*_OTHERS, *_declared()), key=lambda page: page.place)}
SECTIONS = {key: page for key, page in PAGES.items() if page.report}
"""Those that a report can have."""
MENU = {key: page for key, page in PAGES.items() if page.icon}
START = Page("start", "Start", "How far is the run?", -1, ":material/play_circle:", group="", own=True)
"""In the menu of a demo alone."""

# What a report has unless it is asked for more: with the verdict, few pages of paper.
SHORT = ("overview", "findings")
# A table of thirty rows for readers of another framework's log: others would page past it. A report has it when its run
# names the framework that wrote it, or when it is asked for.
ON_REQUEST = ("frameworks",)
