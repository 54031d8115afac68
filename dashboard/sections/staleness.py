"""How old is the data, and does age hurt?"""

from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd

from ratioscope.analysis.findings.facts import STALENESS, Cause, Facts
from ratioscope.analysis.findings.numbers import interval_text
from ratioscope.analysis.staleness import age, mixed_responses
from ratioscope.analysis.staleness.filters import FilterEffect
from ratioscope.analysis.staleness.versions import Versions, sampled_by
from ratioscope.analysis.summary.strata import Strata, stratify
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.figures import staleness as figures
from ratioscope.dashboard.figures.series import Limit
from ratioscope.dashboard.formats import estimate, is_share, plain_number, share
from ratioscope.dashboard.sections.clipping import can_judge
from ratioscope.dashboard.sections.model import Block, Chart, Paragraph, Piece, Table
from ratioscope.dashboard.sections.page import Beside, Page, Part, Shown, Written, in_numbers
from ratioscope.dashboard.sections.subject import Subject, chart
from ratioscope.errors import RatioscopeError
from ratioscope.notes import from_cells

TOKENS = 200_000
"""What looks at single tokens looks at the latest steps with so many of them."""


def is_fresh(subject: Subject) -> bool:
    """Whether every token is known to be of the newest version: then there is no age to look at."""
    lags = _versions(subject).lags["lag"]
    return bool(len(lags)) and bool((lags == 0).all())


def answer(subject: Subject) -> str:
    """Of these steps, as far as they hold tokens."""
    found = _versions(subject).lags
    if is_fresh(subject):
        return age.how_old(found)
    if not subject.log.has_ratios:
        return age.how_old(found)
    try:
        return age.age_sentence(found, *_rests_on(subject))
    except RatioscopeError:
        return f"{age.how_old(found)} No token in {subject.window(TOKENS).words}."


def details(subject: Subject) -> list[Paragraph]:
    """What the answer rests on, and of which tokens it is.

    Raises:
        RatioscopeError: these steps hold none.
    """
    if not subject.log.has_ratios:
        return []
    said = age.age_details(_versions(subject).lags, *_rests_on(subject))
    return [Paragraph(said, small=True)] if said else []


def _rests_on(subject: Subject) -> tuple[Strata, age.AgeEffect, Facts]:
    steps = subject.window(TOKENS).steps
    return _strata(subject), subject.compute(age.age_effect, *steps), subject.opened.facts(steps)


def _versions(subject: Subject) -> Versions:
    """Of these steps; found once for the whole run."""
    return subject.compute(sampled_by).within(*subject.steps)


def _strata(subject: Subject) -> Strata:
    return subject.compute(stratify, "lag", *subject.window(TOKENS).steps)


def has_ages(subject: Subject) -> bool:
    """Whether tokens of several ages are compared; of one age there is no metric by age."""
    try:
        return len(_strata(subject).labels) > 2  # the last is of all tokens
    except RatioscopeError:
        return False


def ages(subject: Subject) -> list[Chart]:
    """Version lag over the steps: a line, or, where steps hold several, a map; nothing where all tokens are of one."""
    found = _versions(subject).lags.dropna()  # without the version
    if found["lag"].nunique() < 2:
        return []
    several = found["step"].duplicated().any()
    draw = partial(
        figures.lag_heat_map if several else figures.one_lag_a_step, found, subject.shown, steps=subject.steps
    )
    return [chart(subject.mode, "lags", "Age of the tokens by step", draw, age.how_old(found), found,
                  ("version_lag",), by_step=True)]  # fmt: skip


def by_lag(subject: Subject, metric: str | None = None) -> tuple[Piece, ...]:
    """A metric by version lag, in words where it has no value, and as a table; nothing where there is one lag.

    Args:
        metric: of the catalogue; default: staleness.

    Raises:
        RatioscopeError: these steps hold no token.
    """
    key = metric or STALENESS
    rows, entry = _strata(subject).metric(key), CATALOGUE[key]
    if not has_ages(subject):
        return ()
    words = [
        estimate(key, row["value"], row["low"], row["high"], from_cells(row["note_kind"], row["note"]))
        for row in rows.to_dict("records")
    ]
    parts = rows["n_tokens"] / (rows["n_tokens"].iloc[-1] or 1)
    title = f"{entry.title} by version lag, {subject.window(TOKENS).words}"
    table = Table(
        "", ("Version lag", "Share of tokens", entry.label),
        tuple(zip(rows["label"].astype(str), map(share, parts), words, strict=True)),
        help={"Version lag": "In updates.",
              entry.label: "With its 95% interval over prompt groups, or why there is none."},
    )  # fmt: skip
    known = [place for place, value in enumerate(rows["value"]) if pd.notna(value)]
    if not known:
        return Paragraph(f"{entry.title}: {rows['note'].iloc[-1]}."), table
    staleness = Limit(subject.opened.limits.staleness, "limit")
    limits = {"s_k": (staleness,), STALENESS: (staleness,), "khat_token": (Limit(0.7, "means<br>unreliable<br>from"),)}
    draw = partial(figures.by_lag, rows, key, "share" if is_share(key) else entry.unit, limits=limits.get(key, ()))
    said = "; ".join(f"{rows['label'].iloc[place]}: {words[place]}" for place in dict.fromkeys((known[0], known[-1])))
    return chart(
        subject.mode, "by-lag" if metric is None else "by-lag-of", title, draw, f"{entry.title}, {said}.", rows, (key,)
    ), table


def filtered(found: FilterEffect) -> Table:
    """What a filter changes, as logged and filtered."""
    of = {key: float(value) for key, value in found.numbers.row.items() if not isinstance(value, str)}
    dropped, fewest, most = (1 - of[key] for key in ("kept_tokens", "kept_tokens_upper", "kept_tokens_lower"))
    between = interval_text(fewest, most, share(fewest), share(most))
    before, after = (
        estimate("s_k", of[key], of[f"{key}_lower"], of[f"{key}_upper"]) for key in ("staleness_raw", "staleness")
    )
    rows = (
        ("Dropped", share(0.0), share(dropped) + (f" ({between})" if between else "")),
        ("Plain staleness", before, after),
    )
    return Table("", ("", "As logged", "Filtered"), rows)


def several_versions(subject: Subject) -> str:
    """How many responses have tokens of several versions, for a line that can be opened."""
    return mixed_responses.versions_sentence(_versions(subject).responses)


def has_several_versions(subject: Subject) -> bool:
    """Whether any response has tokens of several versions.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    return bool(_versions(subject).responses["several"].any())


def versions(subject: Subject) -> list[Piece]:
    """Versions inside a response: whether there are several, and if so over the steps, by position, in numbers.

    Raises:
        RatioscopeError: a file vanished while it was read.
    """
    found = _versions(subject).responses
    sentence = mixed_responses.versions_sentence(found)
    if not found["several"].any():
        return [Paragraph(sentence, small=True)]
    draw = partial(figures.switching_share, found, steps=subject.steps)
    title = "Responses with tokens of several versions"
    several = chart(subject.mode, "switching", title, draw, sentence, found, by_step=True)
    window = subject.window(TOKENS)
    if not found["several"].loc[window.first : window.last].any():
        return [several, Paragraph(f"In {window.words} every response has one version.")]
    table = _by_versions(subject.compute(mixed_responses.by_versions, *window.steps), window.words)
    if not subject.log.has_ratios:
        return [several, table]
    metric = STALENESS
    rows = subject.compute(mixed_responses.by_position, metric, *window.steps)
    said = f"{CATALOGUE[metric].title} by position in the response: responses of one version and of several."
    return [
        several,
        chart(subject.mode, "by-position", f"{CATALOGUE[metric].label} by position, {window.words}",
              partial(figures.by_position, rows), said, rows),
        table,
    ]  # fmt: skip


def _by_versions(found: pd.DataFrame, where: str) -> Table:
    explained = {
        "Versions": "Policy versions that sampled the response.",
        "Responses": "",
        "Share of responses": "",
        "Mean length": "Tokens per response.",
        "Mean lag": "Mean version lag of the tokens, in updates.",
        "Spread": "Newest minus oldest version, mean over responses.",
    }
    rows = tuple(
        (f"{int(row['versions'])}", f"{int(row['responses']):,}", share(row["share"]),
         *(plain_number(row[key]) for key in ("tokens", "lag", "spread")))
        for row in found.to_dict("records")
    )  # fmt: skip
    title = f"Responses by number of policy versions, {where}"
    return Table(title, tuple(explained), rows, help={head: words for head, words in explained.items() if words})


def _aged(write: Callable[[Subject], Iterable[Block]]) -> Written:
    """Blocks of a report that need versions."""
    return lambda subject: write(subject) if subject.log.has_versions else ()


def oldest(subject: Subject) -> str:
    """Staleness of the oldest tokens that have one, for a line that can be opened."""
    rows = _strata(subject).metric(STALENESS).iloc[:-1].dropna(subset="value")
    if not len(rows):
        return ""
    label, value, low, high = rows[["label", "value", "low", "high"]].iloc[-1]
    return f"{CATALOGUE[STALENESS].label.lower()} {plain_number(value, low, high)} at {label}"


def _is_aged(subject: Subject) -> bool:
    return subject.log.has_versions and subject.log.has_ratios and has_ages(subject)


def _main(subject: Subject) -> list[Shown]:
    """By age and over the steps; beside a metric that rises with age stands whether age is the reason."""
    if not _is_aged(subject):
        return [Beside([ages(subject)])]
    return [Beside([by_lag(subject)[:1], ages(subject)]), *details(subject)]


def _several(subject: Subject) -> list[Shown]:
    found = versions(subject)
    return [Beside(found[:2]), *found[2:]]


PAGE = Page(
    "staleness", "Staleness", "How old is the data, and does age hurt?", 90, ":material/history:",
    asks=("age", "staleness"),
    also=("engine",),
    answer=answer,
    limits=("epsilon_stale", "khat"),
    slow=True,
    all_said=is_fresh,
    main=_main,
    tiles=("version_lag", "s_k_bounded", "s_k_version_bounded", "s_k_engine_bounded"),
    parts=[
        Part("byage", "Other metrics by age, and in numbers", "byage", oldest, when=_is_aged),
        Part(
            "whatif", "What if stale tokens or old versions were dropped?", "whatif",
            lambda subject: f"ε_stale = {subject.opened.limits.epsilon_stale:g}", when=can_judge,
        ),
        Part(
            "versions", "Versions inside a response", _several, several_versions,
            when=lambda subject: subject.log.has_versions and has_several_versions(subject), height=400,
        ),
    ],
    report=[
        in_numbers("version_lag", STALENESS, Cause.AGE.key, Cause.ENGINE.key),
        _aged(ages), _aged(lambda subject: by_lag(subject) if subject.log.has_ratios else ()), _aged(details),
        _aged(versions),
    ],
)  # fmt: skip
