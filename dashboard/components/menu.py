"""The menu: links to all pages, which carry the chosen runs and steps.

Streamlit's own menu empties the URL. What is put back then is one more entry in the browser's history, from which Back
never returns; a link that has it is one.
"""

from collections.abc import Mapping, Sequence

import streamlit as st

CARRIED = ("run", "from", "to")
"""What a link to another page keeps of the address."""

# What Streamlit's menu does and a link does not: it is a navigation, says where one is, and gets out of the way on a
# narrow screen.
_mark = st.components.v2.component(
    "ratioscope.menu",
    js="""
    export default ({ data }) => {
      const menu = document.querySelector(".st-key-menu")
      menu.setAttribute("role", "navigation")
      menu.setAttribute("aria-label", "Pages")
      for (const link of menu.querySelectorAll("a")) {
        if (link.textContent.trim().endsWith(data.title)) link.setAttribute("aria-current", "page")
        else link.removeAttribute("aria-current")
      }
      menu.onclick = event => {
        if (innerWidth > 768 || !event.target.closest("a")) return
        document.querySelector("[data-testid=stSidebarCollapseButton] button").click()
      }
    }
    """,
)


def menu(groups: Mapping[str, Sequence[st.Page]], current: st.Page) -> None:
    """The pages in the sidebar, by group; "": a group without a name."""
    carried = {key: values for key in CARRIED if (values := st.query_params.get_all(key))}
    with st.sidebar, st.container(key="menu", gap="xsmall"):
        for group, pages in groups.items():
            if group:
                st.caption(group)
            for page in pages:
                st.page_link(page, query_params=carried, width="stretch")
        _mark(key="menu-marks", data={"title": current.title}, height=1)
