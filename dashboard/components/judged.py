"""What the what-if page keeps in memory: the tokens of some steps, and the numbers of rules on them."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

import pandas as pd
import streamlit as st

from ratioscope.analysis.clipping.rule_shape import Density, at_the_start, before_the_gate, density
from ratioscope.analysis.runs.window import Window
from ratioscope.analysis.what_if import (
    Digest,
    Own,
    Rule,
    Tokens,
    apply,
    evaluate_rule,
    load_tokens,
    own_rule,
    parse,
    result_of,
    sweep_values,
    swept,
)
from ratioscope.dashboard.figures import clipping as figures

# With more tokens than this the instrument shows a sample of whole prompt groups, so that a slider answers at once.
MOST_TOKENS = 2_000_000
PREVIEW_TOKENS = 400_000
SWEEP_TOKENS = 50_000
WHOLE_SWEEP = 150_000
"""A sweep over so many tokens takes about half a second: no sample then."""
# Tokens of several runs in memory; two millions are about 250 MB.
KEPT_RUNS = 2

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class TokensPlace:
    """Which tokens. Small and hashable: a key of caches."""

    window: Window
    n_tokens: int
    """By the step summary."""

    @property
    def sampled(self) -> bool:
        """Whether what is in memory is a sample."""
        return self.n_tokens > MOST_TOKENS

    @property
    def most(self) -> int | None:
        return PREVIEW_TOKENS if self.sampled else None


@st.cache_resource(max_entries=KEPT_RUNS, show_spinner=False)
def tokens_at(place: TokensPlace) -> Tokens:
    """The tokens, or a sample of them.

    Raises:
        RatioscopeError: there is no usable one.
    """
    return load_tokens(place.window.run(), *place.window.steps, place.most)


@st.cache_resource(max_entries=KEPT_RUNS, show_spinner=False)
def _sample_at(place: TokensPlace) -> Tokens:
    tokens = tokens_at(place)
    return tokens if len(tokens) <= WHOLE_SWEEP else tokens.sample(SWEEP_TOKENS)


@st.cache_data(max_entries=64, show_spinner=False)
def own_of(window: Window) -> Own:
    """The rule of the window's run, or why it is not known."""
    return own_rule(window.run())


@st.cache_resource(max_entries=200, show_spinner=False)
def digest_of(place: TokensPlace, rule: str) -> Digest:
    """The numbers of a rule, given as its string."""
    return result_of(evaluate_rule([parse(rule)], [tokens_at(place)], curves=figures.CURVES))[0]


@st.cache_resource(max_entries=50, show_spinner=False)
def start_of(place: TokensPlace, rule: str) -> Digest | None:
    """What the gate says before the first gradient pass; None where it was evaluated nowhere else."""
    tokens = at_the_start(tokens_at(place))
    keys = ("clip_fraction",)
    return None if tokens is None else result_of(evaluate_rule([parse(rule)], [tokens], keys=keys, curves=keys))[0]


@st.cache_resource(max_entries=50, show_spinner=False)
def density_of(place: TokensPlace) -> Density:
    """Where the token ratios are."""
    return density(tokens_at(place))


@st.cache_data(max_entries=50, show_spinner=False)
def shares_of(place: TokensPlace, rule: str) -> pd.DataFrame:
    """Shares of the gradient before the gate of a rule."""
    return before_the_gate(apply(parse(rule), tokens_at(place), ("clip_fraction",)))


@st.cache_data(max_entries=200, show_spinner=False)
def sweep_of(place: TokensPlace, rule: str, parameter: str, key: str) -> tuple[pd.DataFrame, float]:
    """A measure over a parameter on a sample, and the sample's share of all tokens."""
    sample = _sample_at(place)
    rules = varied(parse(rule), parameter)
    return swept(parameter, result_of(evaluate_rule(rules, [sample], keys=(key,)))), sample.fraction


def varied(rule: Rule, parameter: str) -> list[Rule]:
    """The rules of a sweep."""
    return [rule.with_parameter(parameter, value) for value in sweep_values(rule, parameter)]


def with_progress(work: Generator[int, None, _Result], total: int, words: str) -> _Result:
    """Do a piece of work under a progress bar; any click on the page interrupts it."""
    bar = st.progress(0.0, text=words)
    while True:
        try:
            done = next(work)
        except StopIteration as end:
            bar.empty()
            return end.value
        bar.progress(min(1.0, done / max(1, total)), text=words)


def sizes_of(place: TokensPlace, n_tokens: "pd.Series[float]") -> dict[int, int]:
    """Tokens of each step of a place, of the step summary's column."""
    inside = n_tokens.loc[place.window.first : place.window.last]
    return {int(step): int(n) for step, n in inside.items()}  # type: ignore[call-overload]
