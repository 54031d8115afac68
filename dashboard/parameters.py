"""What the address of a page may ask for; whatever else a link names is said, not ignored."""

import streamlit as st

from ratioscope.dashboard import state
from ratioscope.inert import safe

_NAMES = """
a algorithm allaged alltokens along b baseline basis beside by byage bylag carry certificate chartcolour
chartlogx chartlogy chartmark charts chartx charty clip colour command cost dash effects eta exact explain facet
factor fan finding floor follow format forms framework from gamma gradient group heat khat kind lagcut lengths
levels lipschitz log logy mean measure metric more more-curves notices only order origin other others over owner
pair parts path pathlevel pathnumbers pin probes prompts q ranking ratio remedy replay reportmetric reportpages
reportpagesofall reportpagesofeach rule run same schema seeds seq settings severity show siblings sick smooth
sql stalecut statistic status step sweep sweep-over table tag tislevel to together token top1 triangle
truncation unchecked used values versions watch whatif where wholelog x y
"""
PARAMETERS = frozenset(_NAMES.split())
"""Of all pages; a finding or a remark that is open has one of `_OPEN` and its rule or number."""

_OPEN = ("finding-", "remark-")
_MOST = 3
_NUMBERS = ("step", "seq", "token")
_ONE_OF = {"mean": tuple(map(str, state.SMOOTHING)), "logy": ("true", "false")}


def say_what_means_nothing() -> None:
    """A line on what the address asks for that no page knows, and on steps and places that cannot be any."""
    unused = list(filter(_means_nothing, st.query_params))
    if unused:
        named = ", ".join(f"{key[:40]}={st.query_params[key][:40]}" for key in unused[:_MOST])
        more = f" and {len(unused) - _MOST} more" if len(unused) > _MOST else ""
        st.text(safe(f"This link also asks for {named}{more}, which means nothing here."))


def _means_nothing(key: str) -> bool:
    value = st.query_params[key]
    if key in ("from", "to"):
        return state.step_range() == (None, None)
    if key in _NUMBERS:
        return not value.isdecimal()
    if key in _ONE_OF:
        return value not in _ONE_OF[key]
    return key not in PARAMETERS and not key.startswith(_OPEN)
