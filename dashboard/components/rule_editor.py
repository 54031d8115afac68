"""The widgets of a what-if rule; the rule stands in the URL, and the widgets show what stands there."""

from collections.abc import Mapping
from typing import Protocol

import streamlit as st

from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.frameworks.presets import PRESETS, Preset
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.what_if import STOPPING, Rule, parse, rebuilt, stops, value_of
from ratioscope.dashboard.formats import escape, plain_number
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.parameters import PARAMETERS
from ratioscope.rules.ratios import LEVELS
from ratioscope.rules.weights import WEIGHTS

QUERY = "rule"


class _Worded(Protocol):
    @property
    def words(self) -> str: ...


def rule_of_url(default: Rule) -> Rule:
    """The rule of the URL; the default, with a message, where that cannot be used."""
    text = st.query_params.get(QUERY)
    if not text:
        return default
    try:
        return parse(text)
    except RatioscopeError as error:
        st.warning(
            "The rule in this link cannot be used; the default rule is shown instead.", icon=":material/link_off:"
        )
        st.text(safe(error))
        return default


def words_of(rows: Mapping[str, _Worded]) -> dict[str, str]:
    """What a selectbox says for each of them."""
    return {name: row.words for name, row in rows.items()}


def edit(rule: Rule, known: Mapping[str, float]) -> None:
    """Widgets for every part of a rule; each change puts the changed rule into the URL.

    Args:
        known: values for parameters that are new to the rule.
    """
    gate, gate_level, weight, weight_level = st.columns([3, 2, 3, 2], gap="small")
    with gate:
        _choice("gate", "Gate or filter", rule.gate, words_of(STOPPING), rule, known)
    with gate_level:
        of_tokens = rule.gate in FILTERS
        _choice("gate_level", "applies to the ratio of", rule.gate_level, words_of(LEVELS), rule, known, off=of_tokens)
    with weight:
        _choice("weight", "Importance weight", rule.weight, words_of(WEIGHTS), rule, known)
    with weight_level:
        whole = WEIGHTS[rule.weight].sequences
        _choice("weight_level", "is the ratio of", rule.weight_level, words_of(LEVELS), rule, known, off=whole)
    names = rule.parameters
    if not names:
        st.caption("This rule has no parameters. Choose a gate, a weight or a preset of a framework.")
        return
    for name, column in zip(names, st.columns(max(3, len(names)), gap="medium"), strict=False):
        with column:
            _slider(name, rule)


def _choice(
    part: str,
    label: str,
    value: str,
    words: Mapping[str, str],
    rule: Rule,
    known: Mapping[str, float],
    *,
    off: bool = False,
) -> None:
    key = f"whatif-{part}"

    def change() -> None:
        _put(rebuilt(rule, **{part: st.session_state[key]}, known=known))

    st.session_state[key] = value  # the URL decides, not what the widget remembers
    st.selectbox(label, list(words), format_func=lambda name: words[name], key=key, on_change=change, disabled=off)


def _slider(name: str, rule: Rule) -> None:
    key, value = f"whatif-{name}", value_of(rule, name)

    def change() -> None:
        try:
            _put(rule.with_parameter(name, st.session_state[key]))
        except RatioscopeError as error:  # a ring's margins may not cross
            session().refused_rule = str(error)

    st.session_state[key] = value
    allowed = PARAMETERS[name]
    st.select_slider(
        allowed.label,
        stops(name, value),
        format_func=plain_number,
        key=key,
        on_change=change,
        help=f"{capital(allowed.meaning)}; {allowed.range}.",
    )


def refused() -> None:
    """Say why the last move of a slider was refused."""
    here = session()
    if here.refused_rule:
        st.warning(escape(here.refused_rule), icon=":material/block:")
    here.refused_rule = ""


def preset_framework() -> str | None:
    """A picker of the framework whose presets are offered."""
    return st.selectbox(
        "Presets by framework",
        list(FRAMEWORKS),
        index=None,
        format_func=lambda name: FRAMEWORKS[name].title,
        placeholder="Presets of a framework",
        key="whatif-framework",
        label_visibility="collapsed",
        width=230,
    )


def presets(chosen: str | None, rule: Rule) -> None:
    """A picker of one of the settings of a framework; the source where the rule is a preset."""
    if chosen is None:
        return
    offered = [preset for preset in PRESETS if preset.framework is FRAMEWORKS[chosen]]
    names = [preset.setting for preset in offered]

    def change() -> None:
        if st.session_state["whatif-preset"] is not None:
            _put(offered[names.index(st.session_state["whatif-preset"])].rule)

    current = _current(offered, rule)
    st.session_state["whatif-preset"] = current.setting if current else None
    st.selectbox("Setting", names, index=None, placeholder="Choose a setting", key="whatif-preset", on_change=change)
    if current:
        default = " This is the framework's default." if current.default else ""
        note = f" Note: {current.note}." if current.note else ""
        st.text(f"Source: {current.framework.source}.{default}{note}")


def _current(offered: list[Preset], rule: Rule) -> Preset | None:
    """The preset that the rule is: the one that was chosen, where several are the same rule."""
    same = [preset for preset in offered if str(preset.rule) == str(rule)]
    chosen = st.session_state.get("whatif-preset")
    return next((preset for preset in same if preset.setting == chosen), same[0] if same else None)


def _put(rule: Rule) -> None:
    st.query_params[QUERY] = str(rule)
