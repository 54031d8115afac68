"""What the address of a page may ask for; whatever else a link names is said, not ignored."""

from functools import cache

import streamlit as st

from ratioscope.dashboard import state
from ratioscope.inert import safe

_NAMES = """
a against algorithm all allaged along as-reported at baseline beside by bylag carry causes chartcolour chartlogx
chartlogy chartmark charts chartx charty checks colour columns dash eta experiment explain extremes facet find
finding findings floor follow format framework from group groupby groups-shown lagcut lipschitz log logy mean measure
metric notices only order origin other over owner pair panels prompts q ranking replay reportmetric reportpages
reportpagesofall reportpagesofeach rule run schema seeds seq settings severity show siblings smooth sql stalecut
statistic status step sweep sweep-over table tag texts to token top1 values watch where wholelog
"""
"""What views and components ask for; what is declared for a page comes from there."""

_MOST = 3
_NUMBERS = ("step", "seq", "token")
_ONE_OF = {"mean": tuple(map(str, state.SMOOTHING)), "logy": ("true", "false")}


@cache
def parameters() -> frozenset[str]:
    """Of all pages."""
    from ratioscope.dashboard.sections import PAGES  # as heavy as all pages: the frame is there before

    return frozenset(_NAMES.split()).union(*(page.in_address for page in PAGES.values()))


def say_what_means_nothing() -> None:
    """A line on what the address asks for that no page knows, and on steps and places that cannot be any."""
    unused = list(filter(_means_nothing, st.query_params))
    if unused:
        named = ", ".join(f"{key[:40]}={st.query_params[key][:40]}" for key in unused[:_MOST])
        more = f" and {len(unused) - _MOST} more" if len(unused) > _MOST else ""
        st.text(safe(f"Nothing here is set by {named}{more}: this part of the link is ignored."))


def _means_nothing(key: str) -> bool:
    value = st.query_params[key]
    if key in ("from", "to"):
        return state.step_range() == (None, None)
    if key in _NUMBERS:
        return not value.isdecimal()
    if key in _ONE_OF:
        return value not in _ONE_OF[key]
    return key != "view" and key not in parameters()
