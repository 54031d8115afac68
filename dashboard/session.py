"""What a user's session remembers beside the URL and the widgets' own values: one typed object.

The URL is the view (`state`): what a link must show again is there and not here. Widgets keep their values under their
own keys of `st.session_state`, as Streamlit wants it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import streamlit as st

from ratioscope.dashboard.load import BROKEN_OFF, NEVER, TwoClocks, both_clocks, server_load

if TYPE_CHECKING:
    import pandas as pd

    from ratioscope.analysis.sql import QueryError, QueryResult
    from ratioscope.analysis.what_if import Digest
    from ratioscope.dashboard.annotations import Pin
    from ratioscope.dashboard.figures.along import Along
    from ratioscope.dashboard.report.ordered import Made
    from ratioscope.dashboard.saved_views import SavedView

_KEY = "ratioscope"
_REST = 3.0  # how many times as long as drawing took a page that follows a run leaves the processor to others


@dataclass
class Leaving:
    """A page that code has asked for, what goes into its URL, and the page that is left; None until that is noticed."""

    page: str
    query: Mapping[str, str | list[str]]
    origin: str | None = None


@dataclass(frozen=True)
class Asked:
    """What came of an SQL query."""

    of: tuple[str, str]
    """Folder of the run, and the query."""
    last_step: int
    """Of the run when it was asked."""
    outcome: "QueryResult | QueryError"


@dataclass
class Session:
    """Of one user in one browser tab; gone with it."""

    pages: dict[str, st.Page] = field(default_factory=dict)
    """By name, as the menu has them."""
    page: str = ""
    """The name of the one on the screen."""
    leaving: Leaving | None = None
    clicked_step: int | None = None
    """The step whose dialog is open."""
    clicked_metric: str = ""
    """Of the clicked curve, of the catalogue; "": none in particular."""
    asks_palette: bool = False
    """Whether the command palette has been opened and waits for its list."""
    palette_answers: int = 0
    """How often it has got one."""
    read: str | None = None
    """The run that was read last: the first reading of another one takes time."""
    view_said: str = ""
    """What came of saving or deleting a view."""
    former_view: "SavedView | None" = None
    """What was deleted or saved over last, until it is restored or something else is done with views."""
    left_range: tuple[list[str], tuple[int, int]] | None = None
    """The runs of the address, and their chosen steps, when all steps were asked for."""
    along: "Along | None" = None
    """Where the steps lie on the axis of this page's charts; None: along the steps."""
    pins: "tuple[Pin, ...]" = ()
    """Notes on steps of the run of this page."""
    drawing_since: TwoClocks | None = None
    """When the page in hand was begun."""
    follows: bool = False
    """Whether that page is drawn again when there are new steps."""
    drawn: TwoClocks = NEVER
    """When it was there."""
    rest: float = 0.0
    """Seconds that a page which follows a run waits between two drawings."""
    tables: int = 0
    """How often the ticks in the list of runs had to follow the address."""
    saw_live_run: bool = False
    """Whether the demo has opened the page of its live run."""
    report: "Made | None" = None
    refused_rule: str = ""
    """Why the last move of a what-if slider was refused."""
    exact: "tuple[Hashable, Digest, Digest] | None" = None
    """What the exact numbers of two rules are of, and these numbers."""
    exact_sweep: "tuple[Hashable, pd.DataFrame] | None" = None
    token_jumps: int = 0
    """How often something other than the arrow keys chose the token."""
    seen: dict[str, str] = field(default_factory=dict)
    """By folder: the signature of the state in which the run was shown last."""
    reopens_reader: bool = False
    """Whether a response was chosen inside the reader, so that the page has to be drawn again."""
    sql: Asked | None = None
    stopped_query: tuple[str, str] | None = None


def session() -> Session:
    """The session of this script run."""
    if _KEY not in st.session_state:
        st.session_state[_KEY] = Session()
    return st.session_state[_KEY]


def drawing() -> None:
    """A page begins that may follow a run."""
    here = session()
    here.drawing_since, here.follows = both_clocks(), False
    server_load.begin(id(here))


def drawn() -> None:
    """Note how long the page took; a page that follows a run rests for a multiple of that between two drawings."""
    here = session()
    if here.drawing_since is not None:
        here.drawn = both_clocks()
        here.rest = _REST * (here.drawn.clock - here.drawing_since.clock)
        server_load.end(id(here), follows=here.follows)
    here.drawing_since = None


def rested() -> bool:
    """Whether the page may be drawn again by itself: it is there, has rested, and few others are being drawn."""
    here = session()
    clock = both_clocks().clock
    under_way = here.drawing_since is not None and clock - here.drawing_since.clock < BROKEN_OFF
    return not under_way and clock - here.drawn.clock > here.rest and server_load.has_turn()
