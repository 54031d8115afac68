"""What a run's own trainer logged and cannot be, whatever the data: said before any number is compared.

impossible(run)    # ["extra_clip_fraction is 31 in step 2 ... "]

These are the numbers of the trainer's own logger, `extra_<name>` in the steps table, judged by what their names say, by
each other, and in one case by the run's own tokens.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ratioscope.analysis.findings.numbers import number, percent
from ratioscope.analysis.frameworks.definition import setting_of
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.what_if.gated import create_gated
from ratioscope.run_format.manifest import Manifest
from ratioscope.tails import Array

_ROUNDING = 1e-3
"""By how much a number may be beyond its bound: bfloat16 has three digits."""
_EXTRA = "extra_"


@dataclass(frozen=True)
class LoggedKind:
    """What a name says that a number is."""

    words: str
    names: re.Pattern[str]
    lowest: float = -inf
    highest: float = inf
    reports: Mapping[str, str] = field(default_factory=dict)
    """By framework: the report of a release that logged it so, as a sentence."""


_END = r"(_(all|low|lower|high|higher|upper|region|mean|min|max|avg))*$"
_KINDS = (
    LoggedKind(
        "a fraction",
        re.compile(
            rf"(clip_?frac(tion)?|(^|_)clip_ratio|(^|_)frac(tion)?|(^|_)is_masked(_low|_high)?|(completions|length)_clipped_ratio){_END}|frac_reward_zero"
        ),
        0.0,
        1.0,
        {"rlinf": "RLinf logged sums over the dimensions of an action (RLinf #1471)."},
    ),
    LoggedKind(
        "an entropy",
        re.compile(r"(^|_)objective_entropy$"),
        0.0,
        reports={"trl": "TRL's PPOTrainer took 1 off for each padded place (TRL #6121)."},
    ),
    LoggedKind("an entropy of tokens", re.compile(rf"(^|_)entropy{_END}"), 0.0),
    LoggedKind("a KL by k3", re.compile(rf"(^|_)(k3|kl3)(_kl)?{_END}"), 0.0),
    LoggedKind("a difference of probabilities", re.compile(r"(^|_)rollout_probs_diff_(mean|max|std)$"), 0.0, 1.0),
    LoggedKind("a correlation", re.compile(r"(^|_)pearson_corr$"), -1.0, 1.0),
    LoggedKind("a perplexity", re.compile(r"(^|_)(training|rollout)_ppl$"), 1.0),
    LoggedKind("a mean of e to an absolute value", re.compile(r"(^|_)(token|seq)_mult_prob_error$"), 1.0),
    LoggedKind(
        "the length of a completion",
        re.compile(r"(^|_)completions_(min|mean|max)_length$"),
        1.0,
        reports={"trl": "TRL took the length of a truncated response, whose mask is zeroed, for 0 (TRL #3476)."},
    ),
)
_RATIO = re.compile(
    rf"clip_?frac(tion)?{_END}|(^|_)(cispo_)?clip_ratio{_END}"
    rf"|(^|_)((importance(_sampling)?|probs|proximal|policy|val|tis)_ratio(_clamped)?){_END}"
)
"""Clip fractions and ratios of probabilities."""
_CLAMPED = re.compile(r"ratio_clamped(_(mean|min|max))?$")
_CUT = re.compile(r"(^|_)sampling_importance_sampling_ratio_(mean|min|max)$")
_CUT_AT = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")
_HALVED = {"nemo_rl": "NeMo-RL logged means over micro-batches of smallest and largest ratios (NeMo-RL #1818)."}

_FEWEST, _MOST = 4, 0.75
"""What one step may show by accident is said where at least so many steps, and this share of them, show it."""

_SLOTS = re.compile(r"(^|_)val_ratio$")
_SLOTS_OF_TRL = "TRL's PPOTrainer takes slots that no micro-batch fills for 0, in its other means, too (TRL #7041)."
_FILLED = 0.9
"""A mean ratio above is of slots that are all filled."""
# Ratios that are not all 1 have a larger variance; the one of few slots is up to 4/3 of that of many.
_AS_OF_ZEROS = (0.9, 1.5)

_DIRECT_KL = re.compile(r"(^|_)rollout_corr(ection)?_kl$")
_TURNED = "ms-swift before 3.12 took the sampler's log-probability off the trainer's (ms-swift #7145)."

_MISMATCH = re.compile(r"^(?!.*masked)(.*_)?mismatch_kl(_all)?(_mean)?$")
_BY_RESPONSES = "prime-rl did so until May 2026, whatever the length of a response (prime-rl #2478)."
_LOOKED_AT = 50
"""Steps, the last ones, whose tokens a logged number is held against."""
_SAME, _OTHER = 0.01, 0.05
"""How far from a mean, as a part of it, a number is for certain that mean, and for certain another one."""
_MISMATCH_BY_STEP = """
with responses as (
    select step, sum(exp(log_ratio) - log_ratio - 1) as total, count(*) as tokens
    from (select step, seq_id, gated_at::double - logp_behavior::double as log_ratio from gated where invalid is null)
    group by step, seq_id
)
select step, sum(total) / sum(tokens) as of_tokens, avg(total / tokens) as of_responses from responses group by step
"""


def impossible(run: Run) -> list[str]:
    """A sentence for each column of the trainer's own numbers with an impossible value, and the release that is known.

    Raises:
        RatioscopeError: the steps cannot be read any more.
    """
    found = [*_turned_round(run), *_empty_slots(run), *_other_direction(run), *_of_responses(run)]
    for column in run.steps:
        name = str(column).removeprefix(_EXTRA).lower()
        kind = _kind_of(name, run.manifest) if str(column).startswith(_EXTRA) else None
        values = _values(run, str(column)) if kind else np.zeros(0)
        if kind and (said := _sentence(str(column), kind, values, run)):
            found.append(said)
        if str(column).startswith(_EXTRA) and _RATIO.search(name) and (said := _not_finite(str(column), run)):
            found.append(said)
    return found


def _kind_of(name: str, manifest: Manifest) -> LoggedKind | None:
    if _CLAMPED.search(name):
        bounds = [setting_of(manifest, each) for each in ("epsilon_low", "epsilon_high")]
        if None in bounds:
            return None
        low, high = (float(each or 0.0) for each in bounds)
        return LoggedKind("a ratio inside of its clip", _CLAMPED, 1 - low, 1 + high, _HALVED)
    if _CUT.search(name):
        caps = [value for each in _CUT_AT if (value := setting_of(manifest, each)) is not None]
        return LoggedKind("a weight that is cut at its largest", _CUT, 0.0, caps[0]) if caps else None
    return next((kind for kind in _KINDS if kind.names.search(name)), None)


def _turned_round(run: Run) -> Iterator[str]:
    """A sentence for each smallest value that is above the largest one of the same name."""
    for column in map(str, run.steps):
        of = column.removesuffix("_min")
        if not column.startswith(_EXTRA) or of == column or f"{of}_max" not in run.steps:
            continue
        low, high = (_values(run, each) for each in (column, f"{of}_max"))
        beyond = np.where(np.isfinite(low) & np.isfinite(high), low - high - _ROUNDING * np.abs(high), 0.0)
        if (beyond > 0).any():
            worst = int(beyond.argmax())
            yield (
                f"{column} is {number(float(low[worst]))} in step {run.steps['step'].iloc[worst]}, above {of}_max, "
                f"{number(float(high[worst]))}: {(beyond > 0).sum()} of {len(beyond)} steps."
            )


def _empty_slots(run: Run) -> Iterator[str]:
    """A sentence for each mean ratio whose variance is that of a few ratios near 1 and zeros for the rest."""
    for column, mean, variance in _beside(run, _SLOTS, lambda name: f"{name}_var"):
        with np.errstate(divide="ignore", invalid="ignore"):
            as_of_zeros = variance / (mean * (1 - mean))
        least, most = _AS_OF_ZEROS
        shown = (mean > 0) & (mean < _FILLED) & (as_of_zeros > least) & (as_of_zeros < most)
        if (at := _last_of_most(shown, np.isfinite(mean) & np.isfinite(variance))) is not None:
            yield _with_report(
                f"{column} is {number(float(mean[at]))} and {column}_var is {number(float(variance[at]))} in step "
                f"{run.steps['step'].iloc[at]}, as of ratios near 1 and {percent(1 - float(mean[at]))} zeros: "
                f"{_count(shown, mean, variance)}.",
                {"trl": _SLOTS_OF_TRL}, run,
            )  # fmt: skip


def _other_direction(run: Run) -> Iterator[str]:
    """A sentence for each direct estimate of the KL to the sampler whose sign is not that of the log-perplexities."""
    for column, logged, gap in _beside(run, _DIRECT_KL, _gap_of):
        shown = (gap != 0) & (np.abs(logged + gap) <= np.abs(gap) / 2)  # they weigh tokens and responses, so not equal
        if (at := _last_of_most(shown, np.isfinite(logged) & np.isfinite(gap))) is not None:
            yield _with_report(
                f"{column} is {number(float(logged[at]))} in step {run.steps['step'].iloc[at]}, where "
                f"{_gap_of(column)}, of the same sign by definition, is {number(float(gap[at]))}: "
                f"{_count(shown, logged, gap)}.",
                {"ms_swift": _TURNED}, run,
            )  # fmt: skip


def _gap_of(column: str) -> str:
    return f"{column.removesuffix('kl')}log_ppl_diff"


def _of_responses(run: Run) -> Iterator[str]:
    """A sentence for each mismatch KL of prime-rl that is the mean of the responses' means, not that of tokens."""
    names = [str(column) for column in run.steps if _MISMATCH.search(str(column).removeprefix(_EXTRA).lower())]
    for column in (name for name in names if name.startswith(_EXTRA) and "prime_rl" in _frameworks(run.manifest)):
        logged = pd.Series(_values(run, column), index=run.steps["step"])
        logged = logged[np.isfinite(logged)].iloc[-_LOOKED_AT:]
        if not len(logged):
            continue
        with relations(run, int(logged.index[0]), int(logged.index[-1])) as connection:
            create_gated(connection)
            means = connection.execute(_MISMATCH_BY_STEP).df().set_index("step").reindex(logged.index)
        value, of_tokens, of_responses = (each.to_numpy(float) for each in (logged, *(means[one] for one in means)))
        shown = (np.abs(value - of_responses) <= _SAME * of_responses) & (
            np.abs(value - of_tokens) > _OTHER * of_tokens
        )
        if (at := _last_of_most(shown, np.isfinite(of_tokens))) is not None:
            yield (
                f"{column} is {number(float(value[at]))} in step {logged.index[at]}, the mean of the responses' means; "
                f"that of all tokens is {number(float(of_tokens[at]))}: {_count(shown, of_tokens)}. {_BY_RESPONSES}"
            )


def _beside(run: Run, names: re.Pattern[str], other: Callable[[str], str]) -> Iterator[tuple[str, Array, Array]]:
    """Columns of these names that have another one beside them, with the values of both."""
    for column in map(str, run.steps):
        if column.startswith(_EXTRA) and names.search(column.lower()) and other(column) in run.steps:
            yield column, _values(run, column), _values(run, other(column))


def _values(run: Run, column: str) -> Array:
    return pd.to_numeric(run.steps[column], errors="coerce").to_numpy(dtype=float)


def _last_of_most(shown: NDArray[np.bool_], there: NDArray[np.bool_]) -> int | None:
    """The last place that shows something; None where that may be an accident."""
    if shown.sum() < max(_FEWEST, _MOST * there.sum()):
        return None
    return int(shown.nonzero()[0][-1])


def _count(shown: NDArray[np.bool_], *values: Array) -> str:
    return f"{shown.sum()} of {np.logical_and.reduce([np.isfinite(each) for each in values]).sum()} steps"


def _not_finite(column: str, run: Run) -> str:
    """A sentence of a column with NaN or an infinite value; what was not logged is null in the files, and neither."""
    rows = run.table("steps", ["step", column])
    if not pa.types.is_floating(rows.schema.field(column).type):
        return ""
    rows = rows.filter(pc.is_valid(rows.column(column)))
    values = rows.column(column).to_numpy()
    if not (broken := ~np.isfinite(values)).any():
        return ""
    first = int(broken.argmax())
    value = "NaN" if np.isnan(values[first]) else "infinite"
    words = "a clip fraction" if "clip" in column.lower() else "a ratio of probabilities"
    return (
        f"{column} is {value} in step {rows.column('step')[first].as_py()}, and {words} is a finite number: "
        f"{broken.sum()} of {len(values)} steps."
    )


def _sentence(column: str, kind: LoggedKind, values: Array, run: Run) -> str:
    there = np.isfinite(values)
    beyond = np.where(there, np.maximum(kind.lowest - values, values - kind.highest), 0.0)
    if not (beyond > _ROUNDING).any():
        return ""
    worst = int(beyond.argmax())
    bound = f"below {number(kind.lowest)}" if values[worst] < kind.lowest else f"above {number(kind.highest)}"
    said = (
        f"{column} is {number(float(values[worst]))} in step {run.steps['step'].iloc[worst]}, and {kind.words} is "
        f"never {bound}: {(beyond > _ROUNDING).sum()} of {there.sum()} steps."
    )
    return _with_report(said, kind.reports, run)


def _with_report(said: str, reports: Mapping[str, str], run: Run) -> str:
    """A sentence, and the report of a release of the framework that a run names."""
    known = next((report for name, report in reports.items() if name in _frameworks(run.manifest)), "")
    return f"{said} {known}".rstrip()


def _frameworks(manifest: Manifest) -> Iterator[str]:
    """The programs that a manifest names, in the form of the keys."""
    names = (manifest.source.get("framework"), *str(manifest.producer.get("name", "")).split(), *manifest.libraries)
    yield from (re.sub(r"[-_ ]+", "_", str(name).strip().lower()) for name in names if name)
