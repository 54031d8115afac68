"""Tokens: which tokens did it?"""

import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.attribution import MEASURES, OWNERS, Attribution, sentence, shares
from ratioscope.analysis.tokens.worst_sequences import CRITERIA
from ratioscope.dashboard import state
from ratioscope.dashboard.components.chart import step_chart
from ratioscope.dashboard.components.frame import answer, how_to_read, run_page
from ratioscope.dashboard.components.sequence_reader import open_sequence, sequence_reader, url_number
from ratioscope.dashboard.components.sequences import criterion_picker, sequence_table, worst
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.figures import tokens as figures
from ratioscope.dashboard.formats import escape, plain, share
from ratioscope.errors import RatioscopeError

TILES = ("ratio_max", "top1pct_share", "khat_token", "clip_fraction")

# Who owns what is computed token by token: about this many, unless other steps are brushed.
WINDOW = 200_000
TOP = 0.01

# The sum and the owner that the page opens with.
_ANSWERED = ("rho_squared", "token_position")

_THESE, _THIS = "these steps", "this step"

_EXPLANATION = r"""
The ratio $\rho=\pi_k(a\mid s)/\hat\pi(a\mid s)$ compares the policy at the start of the update with the one that drew
the token; $W=\prod_t\rho_t$ is the weight of a whole response. The *update* is the ratio of the policy after the update
to the one before it. Classes of colour are the same for every sequence and every run: blue and ↓ below 1, orange and ↑
above 1, within 2 % of 1 no colour. A line under (over) a token: its gradient was clipped because its ratio lay below
(above) the bound; a dashed line: the gate weakened it; struck through: a number of it cannot be used.

Keys, with the tokens in focus: **n** and **p** go to the next and previous token that stands out, the farthest first,
the arrows from token to token and from line to line, **Home** and **End** to the first and the last of the page.

Shares are those of a sum over the logged tokens, such as $\sum\rho^2$, the denominator of the effective sample size.
A few tokens that own much of it are what a clip or a truncation would act on. Where the tail of the ratios is too heavy
the shares describe these tokens and no others, and have no intervals.
"""


def render() -> None:
    """The page."""
    opened = run_page("Tokens", "Which tokens did it?")
    if opened is None:
        return
    said = st.container()
    metric_row(opened.summary, TILES)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _extremes(opened)
    with right:
        first, last, place = _worst(opened)
    if place is not None:
        st.fragment(sequence_reader)(opened, *place)
    with said:
        _answer(opened, first, last)
    st.divider()
    _attribution(opened, first, last)
    how_to_read(_EXPLANATION)


def _extremes(opened: Opened) -> None:
    summary = opened.summary
    largest = summary.values["ratio_max"].dropna()
    step_chart(
        figures.extremes(summary, state.mode(), state.step_range()),
        key="extremes",
        title="Extremes: click a step",
        takeaway=f"The largest ratio of a token is {plain(largest.max())}, in step {largest.idxmax()}."
        if len(largest)
        else "No step has a ratio.",
        data=summary.values[list(figures.COLUMNS)],
    )


def _worst(opened: Opened) -> tuple[int, int, tuple[int, int] | None]:
    """The table of the worst sequences; returns its steps, and the step and seq_id to read."""
    step, seq_id = url_number("step"), url_number("seq")
    first, last = state.window(opened, WINDOW).steps
    picker, scope = st.columns([3, 2], vertical_alignment="bottom")
    with picker:
        criterion = criterion_picker("by", in_url=True)
    if step is not None:
        with scope:
            where = st.segmented_control(
                "Sequences of", [_THESE, _THIS], default=_THESE, key="where", bind="query-params"
            )
        if where == _THIS:
            first = last = step
    chosen = (step, seq_id) if step is not None and seq_id is not None else None
    try:
        with st.spinner("Looking for the worst sequences"):
            frame = worst(Window.of(opened.run, first, last), criterion)
    except RatioscopeError as error:
        st.error("The sequences cannot be read.", icon=":material/error:")
        st.text(str(error))
        return first, last, chosen
    if not len(frame):
        st.info(f"No sequence of {_steps(first, last)} has a value of this: {CRITERIA[criterion].title}.")
        return first, last, chosen
    places = list(zip(frame["step"], frame["seq_id"], strict=True))
    shown = chosen or (int(places[0][0]), int(places[0][1]))
    sequence_table(
        frame,
        key="worst",
        alt=f"The {len(frame)} worst sequences of {_steps(first, last)} by: {CRITERIA[criterion].title}",
        criterion=criterion,
        chosen=shown,
        on_choice=open_sequence,
        height=300,
    )
    st.caption(f"The {len(frame)} worst of {_steps(first, last)}. Choose a row to read its tokens.")
    return first, last, shown


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


@st.cache_resource(max_entries=32, show_spinner=False)
def _owned(
    folder: str, signature: str, measure: str, owner: str, first: int, last: int, among_top: float | None
) -> Attribution:
    return shares(open_run(folder), measure, owner, first, last, among_top=among_top)


def _answer(opened: Opened, first: int, last: int) -> None:
    try:
        with st.spinner("Looking for who owns Σρ²"):
            owned = _owned(str(opened.run.folder), opened.run.signature, *_ANSWERED, first, last, TOP)
    except RatioscopeError as error:
        st.error("The tokens cannot be read.", icon=":material/error:")
        st.text(str(error))
        return
    where = _steps(first, last)
    answer(f"{where[0].upper()}{where[1:]}: {sentence(owned)}")


def _attribution(opened: Opened, first: int, last: int) -> None:
    """Who owns a sum over the tokens: the choice, the sentence, the table."""
    st.markdown(f"##### Who owns it? {_steps(first, last).capitalize()}")
    pickers = st.columns([2, 2, 3], vertical_alignment="bottom")
    with pickers[0]:
        measure = st.selectbox(
            "Sum", list(MEASURES), format_func=lambda name: MEASURES[name].symbol, key="measure", bind="query-params"
        )
    with pickers[1]:
        names = list(OWNERS)
        owner = st.selectbox(
            "By",
            names,
            index=names.index(_ANSWERED[1]),
            format_func=lambda name: OWNERS[name].title,
            key="owner",
            bind="query-params",
        )
    with pickers[2]:
        top = st.toggle("Only the 1 % of the tokens with the largest parts", True, key="top1", bind="query-params")
    try:
        with st.spinner("Adding up"):
            owned = _owned(
                str(opened.run.folder), opened.run.signature, measure, owner, first, last, TOP if top else None
            )
    except RatioscopeError as error:
        st.error("The tokens cannot be read.", icon=":material/error:")
        st.text(str(error))
        return
    if owned.undefined:
        st.info(f"{owned.undefined}.")
        return
    if (measure, owner, top) != (*_ANSWERED, True):
        st.text(sentence(owned))
    _owners(owned)
    carried = ", ".join(f"{100 * part:g} % carry {share(carried)}" for part, carried in owned.top.items())
    notes = " ".join(f"{note[0].upper()}{note[1:]}." for note in owned.notes)
    st.caption(escape(f"Of {owned.n_tokens:,} tokens the largest {carried}. {notes}"))


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
            "tokens": percent("Tokens", format="localized", help="Of this owner, all of them."),
            "share_of_tokens": percent("Share of tokens", format="percent"),
            "tokens_counted": percent("Counted", format="localized", help="Of these, the ones that count here."),
            "share": st.column_config.ProgressColumn(
                f"Share of {owned.measure.symbol}", format="percent", min_value=0, max_value=1, width=130
            ),
            "low": percent("95 % from", format="percent", help="Interval over prompt groups; empty where withheld."),
            "high": percent("to", format="percent"),
            "share_ratio": percent("Over-represented", format="%.3g ×", help="Share of the sum by share of tokens."),
            "largest_log_ratio": percent("Largest log ρ", format="%.3g", help="In nats."),
            "step": percent("Step", format="%d", help="Of the token with the largest part, as the next two."),
            "seq_id": percent("Sequence", format="%d"),
            "position": percent("Position", format="%d"),
        },
        alt=sentence(owned),
    )
    st.caption("Choose a row to read its largest token.")
