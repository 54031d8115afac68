"""A response to read: its facts, prompt and text, coloured tokens, its prompt group, the same prompt elsewhere."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.diagnosis.opened import Opened
from ratioscope.analysis.runs.store import Listed
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.tokens.reader import Elsewhere, SequenceReading, same_prompt_in
from ratioscope.dashboard import state
from ratioscope.dashboard.components.conversation import between, draw_messages
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.sequences import reading, sequence_table
from ratioscope.dashboard.components.token_colours import COLOURINGS, Colouring, is_colour_logged
from ratioscope.dashboard.components.token_strip import PART, shown_texts, token_details, token_strip
from ratioscope.dashboard.components.whole_rows import whole_rows
from ratioscope.dashboard.formats import escape, plain_number, share
from ratioscope.dashboard.session import session
from ratioscope.errors import RatioscopeError
from ratioscope.inert import one_line, safe

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_LONGEST_CODE, _FIRST_WORDS = 300, 90
"""Signs of a text that is shown as high as it is, and of one in the title of its fold."""
_USUAL = {"n_turns": 1, "n_tool_calls": 0}
"""What is left out of the facts where it is so."""


def open_sequence(step: int, seq_id: int, position: int | None = None) -> None:
    """Put a response, and one of its tokens, into the URL."""
    st.query_params["step"], st.query_params["seq"] = str(step), str(seq_id)
    for key in ("token", "beside"):
        st.query_params.pop(key, None)
    if position is not None:
        st.query_params["token"] = str(position)
    session().token_jumps += 1


def sequence_reader(lent: Callable[[], Opened], step: int, seq_id: int, position: int | None = None) -> None:
    """The open response with its group; a fragment, so going from token to token draws nothing else again.

    Args:
        lent: see `state.lent`.
        position: of the token that it opens at, where the URL names none.
    """
    here = session()
    if here.reopens_reader:
        here.reopens_reader = False
        st.rerun()  # another response was chosen in here, and the page says which one is open
    opened = lent()
    read = _read(opened, step, seq_id)
    if read is None:
        return
    colouring = None
    head = st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute")
    with head:
        st.markdown(f"## Step {step}, response {seq_id}", width="content")
        if len(read.tokens):
            colouring = _colouring(read)
    _facts(read)
    prompt = read.logged.get("prompt")
    if len(read.tokens) and read.tokens["text"].notna().any() and prompt is not None:  # the tokens say the response
        with fold("texts", "Prompt and response as text", one_line(prompt)[:_FIRST_WORDS]) as door:
            if door.open:
                _texts(read)
    else:
        _texts(read)
    if colouring is not None:
        token = state.url_number("token")
        _strip(read, colouring, f"here-{opened.run_id}", _row(read, position if token is None else token), head)
    else:
        draw_messages(read)
        _without_tokens(opened, read)
    _same_prompt(opened, read, colouring or COLOURINGS["current"])


def _read(opened: Opened, step: int, seq_id: int) -> SequenceReading | None:
    """None after an error, which is shown."""
    try:
        return reading(Window.of(opened.run, step, step), seq_id)
    except RatioscopeError as error:
        st.warning(f"Step {step}, response {seq_id} cannot be read.", icon=":material/search_off:")
        st.text(safe(error))
        return None


def short_reader(opened: Opened, step: int, seq_id: int, position: int | None) -> None:
    """A response with its facts, its texts and its tokens, open at one of them; nothing of it is in the URL."""
    read = _read(opened, step, seq_id)
    if read is None:
        return
    st.markdown(f"## Response {seq_id}")
    _facts(read)
    if len(read.tokens):
        known = [colouring for colouring in COLOURINGS.values() if is_colour_logged(read.tokens, colouring)]
        _strip(read, (known or [COLOURINGS["current"]])[0], "short", _row(read, position))
    else:
        _texts(read)
        _without_tokens(opened, read)


def _row(read: SequenceReading, position: int | None) -> int | None:
    rows = read.tokens["position"].tolist()
    return rows.index(position) if position in rows else None


def _without_tokens(opened: Opened, read: SequenceReading) -> None:
    """Why there are none, of a run that has some."""
    if opened.run.files["tokens"]:
        why = escape(read.logged.get("dropped", "no reason is logged"))
        st.info(f"The loss left this response out ({why}): it has no token rows.", icon=":material/filter_alt:")


def _strip(
    read: SequenceReading, colouring: Colouring, key: str, chosen: int | None, head: "DeltaGenerator | None" = None
) -> None:
    """The tokens; below the head of the page's own response they can be chosen."""
    main = head is not None
    tokens, name = read.tokens, f"step {read.step}, response {read.seq_id}"

    def on_token(row: int) -> None:
        if main:
            st.query_params["step"], st.query_params["seq"] = str(read.step), str(read.seq_id)
            st.query_params["token"] = str(int(tokens["position"].iloc[row]))

    token_strip(
        tokens,
        colouring,
        key=f"strip-{key}-{read.step}-{read.seq_id}",
        label=f"Tokens of {name}",
        chosen=chosen,
        jump=session().token_jumps,
        on_token=on_token,
        between=between(read),
    )
    notes = [f"{len(tokens)} tokens"] if len(tokens) > PART else []
    if notes:
        notes.append(f"shown {PART} at a time, around the chosen one")
    if tokens["token_id"].isna().all():
        notes.append("positions are shown because token_id is not logged")
    elif tokens["text"].isna().all():
        notes.append("token ids are shown because the run has no vocabulary.parquet")
    if notes:
        st.caption(f"{'; '.join(notes)}.")
    if main and len(tokens) > PART:
        _parts(tokens, chosen or 0)
    with (
        head or st.container(horizontal=True, horizontal_alignment="right"),
        st.popover("Data", key=f"data-{key}", on_change="rerun", type="tertiary") as popover,
    ):
        if popover.open:
            frame = _token_frame(tokens)
            st.dataframe(
                frame, height=whole_rows(len(frame), 9), hide_index=True, alt=f"All tokens of {name} with their numbers"
            )
            st.download_button(
                "CSV",
                data=lambda: tokens.to_csv(index=False).encode(),
                file_name=f"tokens-{read.step}-{read.seq_id}.csv",
                mime="text/csv",
                on_click="ignore",
                key=f"csv-{key}",
            )


def _token_frame(tokens: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"token": shown_texts(tokens)} | token_details(tokens))


def _parts(tokens: pd.DataFrame, chosen: int) -> None:
    """Buttons to the other pages of a long response."""
    part, last = chosen // PART, (len(tokens) - 1) // PART

    def go(to: int) -> None:
        st.query_params["token"] = str(int(tokens["position"].iloc[to * PART]))
        session().token_jumps += 1

    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Earlier tokens", key="part-before", disabled=part == 0, on_click=go, args=(part - 1,))
        st.button("Later tokens", key="part-after", disabled=part == last, on_click=go, args=(part + 1,))
        st.caption(f"page {part + 1} of {last + 1}")


def _facts(read: SequenceReading) -> None:
    """What is known of the response as a whole, in one line."""
    whole, logged = read.whole, read.logged
    facts = [("reward", _plain(whole["reward"])), ("advantage", _plain(whole["advantage"]))]
    facts += [(name.removeprefix("reward_") + " reward", _plain(logged[name])) for name in _parts_of_reward(logged)]
    facts += [("tokens", _plain(whole["n_tokens"])), ("log W", _plain(whole["log_w"]))]
    facts += [("largest log ρ", _plain(whole["max_log_ratio"])), ("smallest log ρ", _plain(whole["min_log_ratio"]))]
    if not pd.isna(whole["clipped"]):
        facts.append(("clipped", share(whole["clipped"])))
    versions = [logged[name] for name in ("behavior_version_min", "behavior_version_max") if name in logged]
    if versions:
        facts.append(("behavior version", " to ".join(str(int(version)) for version in dict.fromkeys(versions))))
    facts.append(("version lag", _plain(whole["version_lag"])))
    told = [key for key in _LOGGED if key in logged and logged[key] != _USUAL.get(key)]
    facts += [(_LOGGED[key], _fact(logged[key])) for key in told]
    if whole["n_unusable"]:
        facts.append(("unusable tokens", f"{int(whole['n_unusable'])}"))
    said = " · ".join(f"{escape(words)} **{escape(value)}**" for words, value in facts if value != "–")
    if logged.get("finish_reason") == "length" or logged.get("truncated"):
        said += " · :orange-badge[:material/content_cut: truncated: the response reached the length limit]"
    st.markdown(said)


_LOGGED = {
    "prompt_id": "prompt",
    "prompt_tokens": "tokens of the prompt",
    "finish_reason": "finished by",
    "sample_weight": "weight in the loss",
    "dropped": "left out",
    "failure": "failed",
    "history_break": "history broken by",
    "source": "source",
    "environment": "environment",
    "temperature": "temperature",
    "top_p": "top-p",
    "top_k": "top-k",
    "engine": "sampled by",
    "adapter": "adapter",
    "n_turns": "turns",
    "n_tool_calls": "tool calls",
    "seconds_generating": "seconds generating",
    "seconds_waiting": "seconds waiting",
    "seconds_tools": "seconds in tools",
}


def _fact(value: Any) -> str:
    return plain_number(value) if isinstance(value, float) else one_line(value)


def _parts_of_reward(logged: Mapping[str, Any]) -> list[str]:
    return [name for name in logged if name.startswith("reward_")]


def _plain(value: Any) -> str:
    return plain_number(math.nan if pd.isna(value) else float(value))


def _texts(read: SequenceReading) -> None:
    """Prompt and response as they are."""
    for column, key in zip(st.columns(2, gap="medium"), ("prompt", "response"), strict=True):
        text = read.logged.get(key)
        if text is None and len(read.messages):
            continue
        with column:
            st.caption(key.capitalize() if text is not None else f"The {key} is not logged.")
            if text is not None:
                long = len(text) > _LONGEST_CODE or text.count("\n") > 5
                st.code(safe(text), language=None, wrap_lines=True, height=160 if long else "content")


def _colouring(read: SequenceReading) -> Colouring:
    """A select box for what decides the colour, of what is logged of the response."""
    names = [name for name, colouring in COLOURINGS.items() if is_colour_logged(read.tokens, colouring)] or list(
        COLOURINGS
    )
    picked = st.selectbox(
        "Colour by",
        names,
        format_func=lambda name: COLOURINGS[name].title,
        key="colour",
        bind="query-params",
        label_visibility="collapsed",
        width=300,
    )
    return COLOURINGS[picked if picked in names else names[0]]


def _same_prompt(opened: Opened, read: SequenceReading, colouring: Colouring) -> None:
    """The other responses to the prompt, in this step and in another run."""
    group, number = int(read.whole["group_id"]), len(read.group)
    says = f"{number} in prompt group {group}" if group >= 0 else "prompt groups are not logged (group_id)"
    with fold("group", "Responses to the same prompt", says, opened="other" in st.query_params) as door:
        if not door.open:
            return
        if group >= 0:
            sequence_table(
                read.group.drop(columns=["prompt"]),
                key="group-table",
                alt=f"The responses of prompt group {group} in step {read.step}",
                chosen=(read.step, read.seq_id),
                on_choice=_open_and_rerun,
            )
        if (other := _other(opened, read)) is not None:
            _beside(other[0], other[1], colouring)


def _open_and_rerun(step: int, seq_id: int) -> None:
    open_sequence(step, seq_id)
    session().reopens_reader = True


@st.cache_data(max_entries=32, show_spinner=False)
def _responses(window: Window, other: Window, prompt_id: int | None, prompt: str | None) -> Elsewhere:
    """Responses of the other run to a prompt of the window's first step."""
    logged = {"prompt_id": prompt_id, "prompt": prompt}
    return same_prompt_in(window.run(), other.run(), logged, window.first)


def _other(opened: Opened, read: SequenceReading) -> tuple[Opened, tuple[int, int]] | None:
    """The same prompt in another run: picker and table; returns that run, and the step and seq_id to read in it."""
    known = {name: run for name, run in state.runs().items() if name != opened.run_id and not run.problem}
    if not known:
        st.caption("There is no other run in the folders of this dashboard.")
        return None
    picked = st.selectbox(
        "Other run",
        list(known),
        index=None,
        placeholder="The same prompt in another run",
        key="other",
        bind="query-params",
        label_visibility="collapsed",
        format_func=one_line,
    )
    if picked not in known:
        return None
    try:
        return _found(opened, read, known[picked])
    except RatioscopeError as error:
        st.error("This run cannot be read.", icon=":material/error:")
        st.text(safe(error))
        return None


def _found(opened: Opened, read: SequenceReading, listed: Listed) -> tuple[Opened, tuple[int, int]] | None:
    with st.spinner("Searching for the prompt"):
        other = state.open_listed(listed)
        found = _responses(
            Window.of(opened.run, read.step, read.step),
            Window.of(other.run),
            read.logged.get("prompt_id"),
            read.logged.get("prompt"),
        )
    if not len(found.frame):
        st.caption(escape(f"Nothing to show: {found.reason}."))
        return None
    places = list(zip(found.frame["step"].astype(int), found.frame["seq_id"].astype(int), strict=True))
    wanted = tuple(st.query_params.get("beside", "").split("."))
    chosen = next((place for place in places if tuple(map(str, place)) == wanted), places[0])
    sequence_table(
        found.frame,
        key="other-responses",
        alt=f"Responses of the other run to the same prompt, nearest to step {read.step} first",
        chosen=chosen,
        on_choice=_open_beside,
        rows=6,
    )
    return other, chosen


def _open_beside(step: int, seq_id: int) -> None:
    st.query_params["beside"] = f"{step}.{seq_id}"


def _beside(other: Opened, place: tuple[int, int], colouring: Colouring) -> None:
    """A response of the other run, in the same colour classes."""
    try:
        read = reading(Window.of(other.run, place[0], place[0]), place[1])
    except RatioscopeError as error:
        st.warning("The response of the other run cannot be read.", icon=":material/search_off:")
        st.text(safe(error))
        return
    st.markdown(f"## {escape(other.run_id)}: step {place[0]}, response {place[1]}")
    _facts(read)
    if len(read.tokens):
        _strip(read, colouring, f"beside-{other.run_id}", None)
    else:
        st.info("The loss left this response out: it has no token rows.", icon=":material/filter_alt:")
