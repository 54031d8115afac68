"""What-if on the Clipping page: any rule on the logged tokens, beside the one that was applied."""

from collections.abc import Callable

import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.rule_shape import profile
from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.what_if import (
    Digest,
    Rule,
    Tokens,
    change_sentence,
    changed_most,
    described,
    evaluate_rule,
    is_measure_share,
    load_in_parts,
    rebuilt,
    swept,
    value_of,
)
from ratioscope.dashboard import state
from ratioscope.dashboard.components import rule_editor
from ratioscope.dashboard.components.chart import plain_chart, step_chart
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.judged import (
    MOST_TOKENS,
    TokensPlace,
    density_of,
    digest_of,
    own_of,
    sizes_of,
    sweep_of,
    tokens_at,
    varied,
    with_progress,
)
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.formats import count, escape
from ratioscope.dashboard.session import session
from ratioscope.dashboard.views.what_if_numbers import measure_value, rules_table, tiles
from ratioscope.errors import RatioscopeError
from ratioscope.inert import safe
from ratioscope.rules.parameters import PARAMETERS

NO_RULE = Rule("none", {}, "none")
USUAL = Rule("one_side", {"epsilon_low": 0.2, "epsilon_high": 0.2})
"""What is looked at first where the run's own rule is not known; of a rule without a parameter, the clip."""

SWEPT = (
    "clip_fraction", "effective_token_fraction", "kept_gradient", "ess", "variance_proxy", "bias_proxy", "staleness",
    "permitted_drift",
)  # fmt: skip
_LIVE_TOKENS, _TOKENS = 200_000, 500_000


def place_of_tokens(opened: Opened, *, everything: bool = False) -> TokensPlace:
    """The tokens that the page looks at: the brushed steps, else the latest ones, else all."""
    sizes = opened.summary.values["n_tokens"]
    if everything and state.step_range()[0] is None:
        window = Window.of(opened.run, int(sizes.index[0]), int(sizes.index[-1]))
    else:
        # A live run brings new tokens every few seconds.
        window = state.window(opened, _LIVE_TOKENS if opened.run.status == "running" else _TOKENS)
    return TokensPlace(window, int(sizes.loc[window.first : window.last].sum()))


@st.fragment
def what_if(lent: Callable[[], Opened], steps: tuple[int | None, int | None], clicked: int | None) -> None:
    """What-if as a fragment: a slider runs only this again.

    Args:
        lent: see `state.lent`.
        steps: the brushed range, as the rest of the page was drawn with.
        clicked: the step that was clicked on when it was.
    """
    if (state.step_range(), session().clicked_step) != (steps, clicked):
        st.rerun()  # a brush over a chart in here, or a click on it, is for the whole page
    opened = lent()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header("What if another rule had been applied?", anchor=False, width="content")
        place = _place(opened)
        framework = rule_editor.preset_framework()
    try:
        with st.spinner("Reading tokens"):
            tokens = tokens_at(place)
    except RatioscopeError as error:
        st.info("What-if has no tokens in these steps.", icon=":material/data_alert:")
        st.text(safe(error))
        return
    own = own_of(place.window)
    base, name = (own.rule, "applied") if own.rule else (NO_RULE, "no rule")
    if own.rule is None:
        st.info(
            "The rule of this run is not known, so what-if is compared with no rule: every token counts with weight 1.",
            icon=":material/help:",
        )
        st.text(safe(own.reason))
    rule = rule_editor.rule_of_url(_first(own.rule))
    with st.container(border=True):
        rule_editor.edit(rule, {**base.weight_parameters, **base.gate_parameters})
        rule_editor.presets(framework, rule)
        rule_editor.refused()
    try:
        before, after = _digests(opened, place, tokens, base, rule)
    except RatioscopeError as error:  # it judges by something that is not logged
        st.info("This rule cannot be applied to this log.", icon=":material/block:")
        st.text(safe(error))
        return
    same = str(base) == str(rule)
    if same:
        compared = "The applied rule" if own.rule else "No rule, as what it is compared with"
        st.markdown(f"**{compared}: nothing changes.** Move a slider, or choose a gate, a weight or a preset.")
    else:
        st.markdown(f"**{escape(changed_most(before, after))}**")
        tiles(before, after, name)
        _curves(before, after, name, steps)
    says = f"{described('ess')[0].lower()} {measure_value('ess', after.values['ess'])}"
    with fold("table", "Every measure", says) as door:
        if door.open:
            rules_table(before, after, name, same=same)
            if not same:
                st.caption(escape(change_sentence(before, after)))
    values = ", ".join(f"{PARAMETERS[each].symbol} = {value_of(rule, each):g}" for each in rule.parameters)
    with fold("sweep-over", "The rule over a parameter and over the ratio", values) as door:
        if door.open:
            _sweep(opened, place, base, rule, name)
            _gates(place, base, rule, name)


def _first(own: Rule | None) -> Rule:
    """What is looked at where the address has no rule: the run's own, or where nothing of that moves, the same with a
    clip, as "Clip the loss" means it."""
    if own is None or own.parameters:
        return own or USUAL
    return rebuilt(own, gate=USUAL.gate, known=USUAL.gate_parameters)


def _place(opened: Opened) -> TokensPlace:
    """Which tokens are used; all steps can be chosen where the default is the latest."""
    latest, all_of = place_of_tokens(opened), place_of_tokens(opened, everything=True)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        place = latest
        if latest != all_of:
            words = {"latest": "latest steps", "all": "all steps"}
            chosen = st.segmented_control(
                "Which tokens",
                list(words),
                format_func=lambda choice: words[choice],
                default="latest",
                key="over",
                bind="query-params",
                label_visibility="collapsed",
            )
            place = all_of if chosen == "all" else latest
        st.caption(f"On {count(place.n_tokens)} tokens of {place.window.words}.")
    return place


def _digests(opened: Opened, place: TokensPlace, tokens: Tokens, base: Rule, rule: Rule) -> tuple[Digest, Digest]:
    """The numbers of both rules: of all tokens, or of the sample until the exact ones are asked for."""
    before, after = digest_of(place, str(base)), digest_of(place, str(rule))
    if place.sampled:
        key = (place, str(base), str(rule))
        held = session().exact
        if held and held[0] == key:
            st.badge(f"exact: all {count(place.n_tokens)} tokens", icon=":material/check:", color="green")
            return held[1], held[2]
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _preview(tokens.fraction)
            asked = st.button(
                "Exact", key="whatif-exact-run", icon=":material/calculate:", help="Apply the rules to every token."
            )
        if asked:
            exact = _exactly(opened, place, [base, rule], figures.CURVES)
            if exact:
                session().exact = (key, exact[0], exact[1])
                return exact[0], exact[1]
    if after.left_out or after.without_gate:
        left = f"{after.left_out:,} tokens of responses with a token that is not usable" if after.left_out else ""
        gone = f"{after.without_gate:,} rows whose logp_gate is not a log-probability" if after.without_gate else ""
        st.caption(f"Left out: {' and '.join(filter(None, (left, gone)))}.")
    return before, after


def _preview(fraction: float) -> None:
    st.badge(
        f"preview from a sample of {fraction:.2g}" if fraction < 0.001 else f"preview from a sample of {fraction:.1%}",
        icon=":material/blur_on:",
        color="orange",
    )


def _exactly(
    opened: Opened,
    place: TokensPlace,
    rules: list[Rule],
    curves: tuple[str, ...] = (),
    keys: tuple[str, ...] | None = None,
) -> list[Digest]:
    """Rules on every token, in parts of steps, under a progress bar that can be stopped; [] where a file is broken."""
    st.button("Stop", key=f"whatif-stop-{len(rules)}", icon=":material/stop:")
    parts = [tokens_at(place)]
    if place.sampled:
        sizes = sizes_of(place, opened.summary.values["n_tokens"])
        parts = load_in_parts(place.window.run(), sizes, MOST_TOKENS // 2)  # type: ignore[assignment]
    words = f"Reading {count(place.n_tokens)} tokens" + (f" by {len(rules)} rules" if len(rules) > 2 else "")
    try:
        work = evaluate_rule(rules, parts, keys=keys, curves=curves)
        return with_progress(work, place.n_tokens * len(rules), words)
    except RatioscopeError as error:
        st.text(safe(error))
        return []


def _curves(before: Digest, after: Digest, name: str, steps: tuple[int | None, int | None]) -> None:
    """Measures step by step, beside each other."""
    for key, column in zip(figures.CURVES, st.columns(len(figures.CURVES), gap="medium"), strict=True):
        title, definition = described(key)
        curves = {name: (before.steps, before.curves[key]), "what-if": (after.steps, after.curves[key])}
        frame = pd.DataFrame({
            which: pd.Series(curve.values, index=list(index))
            for which, (index, curve) in curves.items() if curve is not None
        }).rename_axis("step")  # fmt: skip
        a, b = (measure_value(key, digest.values[key]) for digest in (before, after))
        with column:
            step_chart(
                figures.against(curves, state.mode(), share=is_measure_share(key), steps=steps),
                key=f"whatif-{key}",
                title=title,
                takeaway=f"{title} step by step: {name} {a}, what-if {b} over all of them. {definition}",
                data=frame,
            )
            for which, digest in ((name, before), ("what-if", after)):
                if digest.curves[key] is None:
                    st.caption(f"{which}: {escape(digest.overall.notes.get(key) or 'undefined')}.")


def _gates(place: TokensPlace, base: Rule, rule: Rule, name: str) -> None:
    seen = density_of(place)
    rules = {name: base} | ({} if str(base) == str(rule) else {"what-if": rule})
    shapes = {which: profile(each, seen) for which, each in rules.items()}
    drawn = {which: shape for which, shape in shapes.items() if not shape.reason}
    plain_chart(
        figures.gates(drawn, seen, state.mode()),
        key="whatif-gates",
        title="Factor on a token's gradient",
        takeaway=f"Weight times gate over the ratio, for both signs of the advantage: "
        f"{'; '.join(f'{which} {each.words}' for which, each in rules.items())}. Behind it: the observed ratios.",
        data=pd.DataFrame({
            f"{which}, {sign}": pd.Series(values, index=shape.ratio)
            for which, shape in drawn.items()
            for sign, values in (("A > 0", shape.positive), ("A < 0", shape.negative))
        }).rename_axis("ratio"),
    )  # fmt: skip
    said = {which: shape.reason or (shape.about and f"drawn {shape.about}") for which, shape in shapes.items()}
    if len(said) > len(set(said.values())):
        said = {"both rules": said[name]}
    for which, words in said.items():
        if words:
            st.caption(f"{which}: {words}.")


def _sweep(opened: Opened, place: TokensPlace, base: Rule, rule: Rule, name: str) -> None:
    if not rule.parameters:
        return
    one, two = st.columns(2, gap="small")
    with one:
        parameter = st.selectbox(
            "Sweep over",
            rule.parameters,
            format_func=lambda each: PARAMETERS[each].symbol,
            key="sweep",
            bind="query-params",
        )
    with two:
        key = st.selectbox(
            "and watch", SWEPT, format_func=lambda each: described(each)[0], key="watch", bind="query-params"
        )
    rules = varied(rule, parameter)
    if not rules:
        st.caption("The other margin of the ring leaves no range for this one.")
        return
    fixed = rules[0]  # the value that the parameter has now changes nothing about its sweep
    asked = (place, str(fixed), parameter, key)
    held = session().exact_sweep
    if held and held[0] == asked:
        frame, fraction = held[1], 1.0
    else:
        frame, fraction = sweep_of(place, str(fixed), parameter, key)
    slot = st.container()
    if fraction < 1:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            _preview(fraction)
            run = st.button("Exact sweep", key="whatif-sweep-run", icon=":material/calculate:")
        exact = _exactly(opened, place, varied(fixed, parameter), keys=(key,)) if run else []
        if exact:
            frame = swept(parameter, exact)
            session().exact_sweep = (asked, frame)
    with slot:
        _draw_sweep(frame, key, parameter, base, rule, name)


def _draw_sweep(frame: pd.DataFrame, key: str, parameter: str, base: Rule, rule: Rule, name: str) -> None:
    title, definition = described(key)
    marks = {"what-if": value_of(rule, parameter)}
    if parameter in base.parameters:
        applied = value_of(base, parameter)
        marks = {name: applied} | (marks if applied != marks["what-if"] else {})
    ends = [measure_value(key, float(frame[key].iloc[place])) for place in (0, -1)]
    plain_chart(
        figures.sweep_figure(
            frame,
            key,
            state.mode(),
            x_title=PARAMETERS[parameter].symbol,
            y_title=title,
            share=is_measure_share(key),
            marks=marks,
            logarithmic=PARAMETERS[parameter].scale.logarithmic,
        ),
        key="whatif-sweep",
        title=f"{title} over {PARAMETERS[parameter].symbol}",
        takeaway=f"{title} goes from {ends[0]} at {frame.index[0]:g} to {ends[1]} at {frame.index[-1]:g}. {definition}",
        data=frame[[name for name in (key, f"{key}_lower", f"{key}_upper", "unreliable") if name in frame]],
    )
    if frame[key].isna().all():
        st.caption(f"{title} is not defined for this rule.")
