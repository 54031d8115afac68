"""What a run's own trainer logged and cannot be, whatever the data: said before any number is compared.

impossible(run)    # ["extra_clip_fraction is 31 in step 2 ... "]

These are the numbers of the trainer's own logger, `extra_<name>` in the steps table, judged by what their names say.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.frameworks.definition import setting_of
from ratioscope.analysis.runs.store import Run
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
            rf"(clip_?frac(tion)?|(^|_)clip_ratio|(^|_)frac(tion)?|(completions|length)_clipped_ratio){_END}|frac_reward_zero"
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
_CLAMPED = re.compile(r"ratio_clamped(_(mean|min|max))?$")
_CUT = re.compile(r"(^|_)sampling_importance_sampling_ratio_(mean|min|max)$")
_CUT_AT = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")
_HALVED = {"nemo_rl": "NeMo-RL logged means over micro-batches of smallest and largest ratios (NeMo-RL #1818)."}


def impossible(run: Run) -> list[str]:
    """A sentence for each column of the trainer's own numbers with an impossible value, and the release that is known.

    Raises:
        RatioscopeError: the steps cannot be read any more.
    """
    found = [*_turned_round(run)]
    for column in run.steps:
        name = str(column).removeprefix(_EXTRA).lower()
        kind = _kind_of(name, run.manifest) if str(column).startswith(_EXTRA) else None
        values = pd.to_numeric(run.steps[column], errors="coerce").to_numpy(dtype=float) if kind else np.zeros(0)
        if kind and (said := _sentence(str(column), kind, values, run)):
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
        low, high = (
            pd.to_numeric(run.steps[each], errors="coerce").to_numpy(dtype=float) for each in (column, f"{of}_max")
        )
        beyond = np.where(np.isfinite(low) & np.isfinite(high), low - high - _ROUNDING * np.abs(high), 0.0)
        if (beyond > 0).any():
            worst = int(beyond.argmax())
            yield (
                f"{column} is {number(float(low[worst]))} in step {run.steps['step'].iloc[worst]}, above {of}_max, "
                f"{number(float(high[worst]))}: {(beyond > 0).sum()} of {len(beyond)} steps."
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
    known = next((report for name, report in kind.reports.items() if name in _frameworks(run.manifest)), "")
    return f"{said} {known}".rstrip()


def _frameworks(manifest: Manifest) -> Iterator[str]:
    """The programs that a manifest names, in the form of the keys."""
    names = (manifest.source.get("framework"), *str(manifest.producer.get("name", "")).split(), *manifest.libraries)
    yield from (re.sub(r"[-_ ]+", "_", str(name).strip().lower()) for name in names if name)
