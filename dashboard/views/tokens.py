"""Tokens: which tokens did it?"""

from dataclasses import replace
from functools import partial

import streamlit as st

from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.attribution import MEASURES, OWNERS, Attribution, sentence
from ratioscope.analysis.tokens.worst_sequences import CRITERIA
from ratioscope.dashboard.components.blocks import computed, draw, page_subject
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.sequence_reader import open_sequence, sequence_reader, url_number
from ratioscope.dashboard.components.sequences import criterion_picker, sequence_table, worst
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.formats import escape, share
from ratioscope.dashboard.sections import tokens
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.errors import RatioscopeError

TILES = ("ratio_max", "top1pct_share", "khat_token", "clip_fraction")

_THESE, _THIS = "these steps", "this step"

_EXPLANATION = r"""
The ratio $\rho=\pi_k(a\mid s)/\hat\pi(a\mid s)$ compares the policy at the start of the update with the one that
sampled the token; $W=\prod_t\rho_t$ is the weight of a whole response. The *update* is the ratio of the policy after
the update to the one before it. Colour classes are the same for all responses and runs: blue and ↓ below 1, orange and
↑ above 1, none within 2% of 1. A line under (over) a token: its gradient was clipped because its ratio was below
(above) the bound; a dashed line: the gate reduced it; struck through: one of its numbers is not usable.

Keys, with the tokens in focus: **n** and **p** go to the next and previous token that stands out, the farthest first,
the arrows from token to token and from line to line, **Home** and **End** to the first and the last of the page.

Shares are those of a sum over the logged tokens, such as $\sum\rho^2$, the denominator of the effective sample size.
If a few tokens carry most of it, a clip or a truncation acts on them. Where the tail of the ratios is too heavy,
the shares hold for these tokens only and have no intervals.
"""


def render() -> None:
    """The page."""
    opened = run_page("Tokens", tokens.QUESTION)
    if opened is None:
        return
    subject = page_subject(opened)
    said = st.container()
    metric_row(opened.summary, TILES)
    has_ratios = subject.log.has_ratios
    left, right = st.columns([2, 3], gap="medium") if has_ratios else (None, st.container())
    if left is not None:
        with left:
            draw(tokens.extremes(subject))
            st.caption("Click a step to open it.")
    with right:
        window, place = _worst(subject)
    if place is not None:
        st.fragment(sequence_reader)(opened, *place)
    with said:
        if not has_ratios:
            answer(tokens.without_ratios(subject))
            return
        owns = computed(partial(tokens.answer, subject, window), height=48)
        if owns is not None:
            opening(subject, "tokens", owns)
    st.divider()
    _attribution(subject, window)
    how_to_read(_EXPLANATION)


def _worst(subject: Subject) -> tuple[Window, tuple[int, int] | None]:
    """The table of the worst responses; returns its steps, and the step and seq_id to read."""
    step, seq_id = url_number("step"), url_number("seq")
    window = subject.window(tokens.TOKENS)
    picker, scope = st.columns([3, 2], vertical_alignment="bottom")
    with picker:
        criterion = criterion_picker("by", tokens.criteria(subject.opened.summary), in_url=True)
    if step is not None:
        with scope:
            where = st.segmented_control(
                "Responses of", [_THESE, _THIS], default=_THESE, key="where", bind="query-params"
            )
        if where == _THIS:
            window = replace(window, first=step, last=step)
    chosen = (step, seq_id) if step is not None and seq_id is not None else None
    try:
        with st.spinner("Searching for the worst responses"):
            frame = worst(window, criterion)
    except RatioscopeError as error:
        st.error("The responses cannot be read.", icon=":material/error:")
        st.text(str(error))
        return window, chosen
    if not len(frame):
        st.info(tokens.without_value(window, criterion))
        return window, chosen
    places = list(zip(frame["step"], frame["seq_id"], strict=True))
    shown = chosen or (int(places[0][0]), int(places[0][1]))
    sequence_table(
        frame,
        key="worst",
        alt=f"The {len(frame)} worst responses of {window.words} by: {CRITERIA[criterion].title}",
        criterion=criterion,
        chosen=shown,
        on_choice=open_sequence,
        height=300,
    )
    st.caption(f"The {len(frame)} worst of {window.words}. Select a row to read its tokens.")
    return window, shown


def _attribution(subject: Subject, window: Window) -> None:
    """Which tokens carry a sum: the choice, the sentence, the table."""
    st.markdown(f"##### Which tokens carry it? {window.words.capitalize()}")
    pickers = st.columns([2, 2, 3], vertical_alignment="bottom")
    with pickers[0]:
        measure = st.selectbox(
            "Sum",
            tokens.measures(subject),
            format_func=lambda name: MEASURES[name].symbol,
            key="measure",
            bind="query-params",
        )
    with pickers[1]:
        names = tokens.owners(subject)
        owner = st.selectbox(
            "By",
            names,
            format_func=lambda name: OWNERS[name].title,
            key="owner",
            bind="query-params",
        )
    with pickers[2]:
        top = st.toggle("Only the 1% of tokens with the largest parts", True, key="top1", bind="query-params")
    among = tokens.TOP if top else None
    owned = computed(partial(tokens.owned, subject, window, measure, owner, among), height=320)
    if owned is None:
        return
    if owned.undefined:
        st.info(f"{owned.undefined}.")
        return
    if (measure, owner, top) != (tokens.MEASURE, names[0], True):
        st.text(sentence(owned))
    _owners(owned)
    carried = ", ".join(f"{100 * part:g}% carry {share(carried)}" for part, carried in owned.top.items())
    notes = " ".join(f"{note[0].upper()}{note[1:]}." for note in owned.notes)
    st.caption(escape(f"Of {owned.n_tokens:,} tokens, the largest {carried}. {notes}"))


def _owners(owned: Attribution) -> None:
    frame = owned.frame
    places = list(zip(frame["step"], frame["seq_id"], frame["position"], strict=True))
    widget = f"owners-{hash(tuple(places)) & 0xFFFFFFFF:08x}"

    def choose() -> None:
        rows = st.session_state[widget]["selection"]["rows"]
        if rows:
            open_sequence(*(int(number) for number in places[rows[0]]))

    percent = st.column_config.NumberColumn
    st.dataframe(
        frame.drop(columns=["owner"]).dropna(axis="columns", how="all"),  # withheld intervals
        key=widget,
        hide_index=True,
        on_select=choose,
        selection_mode="single-row",
        height=min(320, 35 * len(frame) + 38),
        column_config={
            "label": st.column_config.TextColumn(owned.owner.title, width=170),
            "tokens": percent("Tokens", format="localized", help="All tokens of this row."),
            "share_of_tokens": percent("Share of tokens", format="percent"),
            "tokens_counted": percent("Counted", format="localized", help="Those of them that are counted."),
            "share": st.column_config.ProgressColumn(
                f"Share of {owned.measure.symbol}", format="percent", min_value=0, max_value=1, width=130
            ),
            "low": percent("95% from", format="percent", help="Interval over prompt groups; empty: withheld."),
            "high": percent("to", format="percent"),
            "share_ratio": percent("Over-represented", format="%.3g ×", help="Share of the sum by share of tokens."),
            "largest_log_ratio": percent("Largest log ρ", format="%.3g", help="In nats."),
            "step": percent("Step", format="%d", help="Of the token with the largest part, like the next two columns."),
            "seq_id": percent("Sequence", format="%d"),
            "position": percent("Position", format="%d"),
        },
        alt=sentence(owned),
    )
    st.caption("Select a row to read its largest token.")
