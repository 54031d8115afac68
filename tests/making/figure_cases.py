"""Every figure of the dashboard with arguments to draw it from: long, spiky, full of NaN and infinity, hostile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ratioscope.analysis.clipping.rule_shape import Density, Profile
from ratioscope.analysis.compare.contrast import difference_over
from ratioscope.analysis.compare.curves import curves
from ratioscope.analysis.compare.grouping import Member, Setting
from ratioscope.analysis.compare.grouping import grouped_settings as grouped
from ratioscope.analysis.compare.standing import standing
from ratioscope.analysis.drift import pairs
from ratioscope.analysis.findings.facts import Cause
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.ratios import sentences as heavy_tails
from ratioscope.analysis.ratios.distributions import Survival, survival
from ratioscope.analysis.ratios.growth import Growth, growth
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import COUNTS, StepSummary
from ratioscope.analysis.variance import failure_mode
from ratioscope.analysis.what_if import MeasureCurve
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import theme
from ratioscope.dashboard.figures import (
    clipping,
    dots,
    drift,
    engine,
    evidence,
    frameworks,
    linter,
    metrics,
    ratios,
    series,
    staleness,
    story,
    tails,
    tokens,
    variance,
)
from ratioscope.dashboard.figures import (
    compare as comparison,
)
from ratioscope.dashboard.figures import (
    sql as query,
)
from ratioscope.dashboard.figures.line_styles import Style
from ratioscope.dashboard.theme import Mode
from ratioscope.notes import note_columns
from tests.dashboard.conftest import make_steps
from tests.making.caveats import UNRELIABLE
from tests.making.runs import write_run

STEPS = 5_000
SPIKE, DIP = 1_234, 3_456  # steps where every metric has its largest and its smallest value
_HOLES, _INFINITE = [7, 8, 900, 2_000], [11, 2_500, 4_000]
MARK = "EVIL"
HOSTILE = f"{MARK}<b>bold</b><a href='http://127.0.0.2'>x</a>"

Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class Material:
    """What figures are drawn from."""

    summary: StepSummary
    settings: list[Setting]
    run: Run
    tails: Survival
    growth: Growth
    by_step: pd.DataFrame
    """5,000 rows of numbers under any name, with spikes, NaN and infinity."""


@dataclass(frozen=True)
class Case:
    """A figure function with its arguments."""

    name: str
    """<module>.<function>."""
    draw: Callable[[Material, Mode, Range], go.Figure | None]
    over_steps: bool = True
    """Its x axis is the step."""
    plotted: Sequence[str] = ()
    """Columns of `Material.summary.values` (or of `by_step`) whose extremes have to be among the points."""
    place: Callable[[Any], Any] = field(default=lambda value: value)
    """Where a number stands on the y axis."""
    positive: bool = False
    """The axis is logarithmic: only positive numbers have a place on it."""


def long_summary() -> StepSummary:
    """Every metric at every step: noise, a spike up, one down, NaN, infinities; half cannot be trusted."""
    n, rng = STEPS, np.random.default_rng(0)
    index, keys = pd.RangeIndex(n, name="step"), [*COUNTS, *CATALOGUE]
    numbers = rng.uniform(0.1, 0.5, (n, len(keys)))
    numbers[SPIKE], numbers[DIP] = 0.987, 0.0123
    numbers[_HOLES], numbers[_INFINITE] = np.nan, np.inf
    values = pd.DataFrame(numbers, index=index, columns=keys)
    values[list(COUNTS)] = 50.0
    values["version_lag"] = np.arange(n) % 100.0
    bins = pd.DataFrame({"step": np.repeat(index, 4), "bin": np.tile([-100, -7, 0, 9], n), "tokens": 5})
    notes = {step: dict.fromkeys(CATALOGUE, UNRELIABLE) for step in range(0, n, 2)}
    floors = pd.DataFrame({"noise_floor_shape": 0.01, "noise_floor_dtype": 0.02}, index=index)
    return StepSummary(values, values - 0.01, values + 0.01, notes, bins, floors)


def numbers_by_step(values: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Like the summary's values, under other names; shares and gains have no infinity."""
    finite = values.where(np.isfinite(values))
    return pd.DataFrame({name: finite[key] for name, key in zip(columns, CATALOGUE, strict=False)}, index=values.index)


def material(folder: Path) -> Material:
    """Everything, with the run's folder below `folder`."""
    summary = long_summary()
    names = {"name": HOSTILE, "algorithm": {"name": HOSTILE, "parts": {HOSTILE: HOSTILE}}}
    runs = [open_run(write_run(folder / f"seed{seed}", make_steps(3), seed=seed, **names)) for seed in (0, 1)]
    other = open_run(write_run(folder / "other", make_steps(3), algorithm={"name": "grpo"}))
    members = [Member(run.folder.name, run, summary) for run in (*runs, other)]
    tail = survival(runs[0], 0, 2)
    return Material(
        summary, grouped(members), runs[0], tail, growth(runs[0], 0, 2), numbers_by_step(summary.values, _COLUMNS)
    )


def _held() -> pd.DataFrame:
    """Strata of a distance, as the engine's figures take them."""
    shares = ("share_of_tokens", "share_of_distance", "share_expected")
    numbers = {name: [0.1, 0.2, 0.4] for name in (*shares, "uncertainty", "apart", "n")}
    return pd.DataFrame({"words": [HOSTILE, "b", "c"]} | numbers)


_SHARE = ("share", "low", "high")
_TERMS = ("surrogate", "update_penalty", "staleness_penalty", "improvement_bound")
_CERTIFICATE = [name for term in _TERMS for name in (term, f"{term}_low", f"{term}_high")] + ["largest_gap"]
_GAIN = ("gain", "gain_low", "gain_high", "gain_in_sample")
_INFEASIBLE = ("infeasible_share", "infeasible_low", "infeasible_high")
_LEMMA = ("A", "B", "C_variance", "C_bias", "total", "total_error")
_COLUMNS = [*_SHARE, *_CERTIFICATE, *_GAIN, *_INFEASIBLE, *_LEMMA, "tv", "dropped", "staleness"]


def _finding() -> Finding:
    """About every second step, so many that not all of them can be marked."""
    return Finding(
        sentence="", severity=Severity.WARNING, metric="s_k", steps=tuple(range(0, STEPS, 2)), numbers=(), why="",
        do="", source="", limit=0.2, rule="staleness_high",
    )  # fmt: skip


def _blind_spot(m: Material, mode: Mode) -> go.Figure:
    points = failure_mode.blind_spot(m.summary)
    axes = variance.blind_spot_axes(points, 0.2, 1.0)
    return variance.blind_spot(points, "chi2_token", mode, axes=axes, tv_limit=0.2, chi2_limit=1.0)


def _lags(m: Material, mode: Mode, steps: Range) -> go.Figure:
    lags = pd.DataFrame({"step": np.arange(STEPS), "lag": np.arange(STEPS) % 300, "tokens": 5})
    return staleness.lag_heat_map(lags, m.summary, mode, steps)


def _strata(label: str) -> pd.DataFrame:
    """Rows of a metric by lag or by position."""
    number = np.arange(8)
    frame = pd.DataFrame(
        {"label": [f"{label}{k}" for k in number], "first": number, "value": number / 8, "n_tokens": 5}
    )
    notes = note_columns(UNRELIABLE if odd else None for odd in number % 2)
    return frame.assign(low=frame["value"] - 0.01, high=frame["value"] + 0.01, several=number % 2 == 0, **notes)


def _filter(m: Material, mode: Mode, column: str) -> go.Figure:
    rows = m.by_step.iloc[:60].assign(unreliable="staleness", staleness_raw=0.3)
    for name in ("dropped", "staleness"):
        rows = rows.assign(**{f"{name}_low": rows[name] - 0.01, f"{name}_high": rows[name] + 0.01})
    return staleness.filter_curve(rows, column, mode, x_title="ε", y_title="share", chosen=3.0, applied=7.0)


def _truncation(mode: Mode) -> go.Figure:
    caps = pd.DataFrame(
        {
            "bias_proxy": [0.3, 0.1, 0.0, np.nan],
            "variance_proxy": [0.1, 1.0, 50.0, np.inf],
            "ess": [0.9, 0.5, 0.1, 0.0],
        },
        index=pd.Index([1.0, 2.0, 10.0, np.inf]),
    )
    doubted = pd.Series([False, False, True, True], index=caps.index)
    return variance.truncation_curve(caps, doubted, {"bias_proxy": 0.2, "variance_proxy": 0.5}, mode)


def _responses(m: Material, mode: Mode, steps: Range) -> go.Figure:
    rows = m.by_step[["tv", "low", "high"]]
    return variance.staleness_of_levels(m.summary, rows, mode, steps)


def _lemma(m: Material) -> pd.DataFrame:
    return m.by_step.iloc[:300].assign(step=np.arange(300)).reset_index(drop=True)


def _rates(m: Material, mode: Mode) -> go.Figure:
    curve = m.by_step[["total", "total_error"]].iloc[:200].set_index(np.geomspace(1e-6, 1e-2, 200))
    return variance.lemma_over_learning_rates(curve, 1e-4, mode)


def _query(m: Material, mode: Mode) -> go.Figure:
    rows = m.by_step[["share"]].rename(columns={"share": HOSTILE}).reset_index().assign(of=HOSTILE)
    return query.query_figure(rows, mode, mark="line", x="step", y=HOSTILE, colour="of")


def _theirs_and_ours(material: Material, mode: Mode, steps: Range) -> go.Figure:
    values = material.summary.values
    by_step = pd.DataFrame({"value": values["kl_k1"], "our_value": values["kl_k3"]})
    return frameworks.theirs_and_ours(by_step, "rollout_corr/kl", "kl_k3", mode, steps)


def _against(m: Material, mode: Mode, steps: Range) -> go.Figure:
    index, columns = list(m.by_step.index), [m.by_step[name].to_numpy() for name in ("share", "low", "high")]
    curve = MeasureCurve(*columns, np.isfinite(columns[0]))
    return clipping.against({"applied": (index, curve), HOSTILE: (index, curve)}, mode, share=True, steps=steps)


def _gates(mode: Mode) -> go.Figure:
    ratio = np.geomspace(0.1, 10, 400)
    profile = Profile(ratio, np.minimum(ratio, 2), np.maximum(ratio, 0.5))
    return clipping.gates({"applied": profile, HOSTILE: profile}, Density(ratio, 100 / ratio, ratio, -1.0), mode)


def _quadrants(mode: Mode) -> go.Figure:
    signs = pd.MultiIndex.from_product([["A > 0", "A < 0"], ["ρ > 1", "ρ ≤ 1"]], names=["advantage", "ratio"])
    frame = pd.DataFrame({"share": 0.25, "before": [0.1, 0.2, 0.3, 0.4], "gradient": np.nan}, index=signs)
    return clipping.quadrant_bars(frame.reset_index(), mode)


def _sweep(m: Material, mode: Mode) -> go.Figure:
    shares = {"ess": m.by_step["share"], "ess_lower": m.by_step["low"], "ess_upper": m.by_step["high"]}
    rows = pd.DataFrame(shares).iloc[:60].assign(unreliable="ess")
    return clipping.sweep_figure(
        rows, "ess", mode, x_title="C", y_title="ESS", share=True, marks={"applied": 2.0, HOSTILE: 7.0}
    )


def _over(key: str, *, positive: bool = False) -> Case:
    return Case(
        "series.over_steps",
        lambda m, mode, steps: series.over_steps(m.summary, [key], mode, logarithmic=positive, steps=steps),
        plotted=(key,),
        positive=positive,
    )


CASES: tuple[Case, ...] = (
    _over("s_k"),
    _over("ess_token"),
    _over("chi2_seq", positive=True),
    _over("eval_accuracy"),
    Case("ratios.heat_map", lambda m, mode, steps: ratios.heat_map(m.summary, mode, steps)),
    Case(
        "ratios.quantile_fan",
        lambda m, mode, steps: ratios.quantile_fan(m.summary, mode, steps),
        plotted=("ratio_min", "ratio_p01", "ratio_p50", "ratio_p99", "ratio_max"),
        positive=True,
    ),
    Case("ratios.survival_curve", lambda m, mode, steps: ratios.survival_curve(m.tails, mode), over_steps=False),
    Case(
        "ratios.left_out",
        lambda m, mode, steps: ratios.left_out(heavy_tails.left_out(m.summary), mode, steps),
        plotted=("n_undefined",),
    ),
    Case(
        "tails.tail_index",
        lambda m, mode, steps: tails.tail_index(m.summary, mode, steps),
        plotted=("khat_token", "khat_token_new", "khat_seq"),
        place=lambda value: tails.khat_place(np.array(value)),
    ),
    Case("tails.ratio_by_length", lambda m, mode, steps: tails.ratio_by_length(m.growth, mode), over_steps=False),
    Case("tails.spread_by_length", lambda m, mode, steps: tails.spread_by_length(m.growth, mode), over_steps=False),
    Case(
        "compare.small_multiples",
        lambda m, mode, steps: comparison.small_multiples(
            {HOSTILE: comparison.lines(curves(m.settings, "reward"))}, "reward", mode, steps=steps
        ),
        plotted=("reward",),
    ),
    Case(
        "dots.dot_plot",
        lambda m, mode, steps: dots.dot_plot(
            standing(m.settings, "reward").groups,
            "reward",
            mode,
            called={0: HOSTILE, 1: "best"},
            made={0: [HOSTILE]},
        ),
        over_steps=False,
    ),
    Case(
        "compare.panel",
        lambda m, mode, steps: comparison.panel(
            comparison.lines(curves(m.settings, "reward"), looks={0: Style(theme.CURRENT, "solid", "")}),
            "reward",
            mode,
            x=steps,
            y=(-1, 2),
            seeds=True,
            named=True,
        ),
        plotted=("reward",),
    ),
    Case(
        "compare.differences",
        lambda m, mode, steps: comparison.differences(
            [
                (HOSTILE, style, difference_over(m.settings[0], m.settings[1], "reward"))
                for style in (None, comparison.Style("#0072B2", "dash", "circle"))
            ],
            "reward",
            mode,
            x=steps,
        ),
    ),
    Case(
        "metrics.column_over_steps",
        lambda m, mode, steps: metrics.column_over_steps(m.summary.values["u_k"], mode, steps=steps),
        plotted=("u_k",),
    ),
    Case(
        "metrics.against",
        lambda m, mode, steps: metrics.against(
            m.summary.values[["u_k", "s_k"]].set_axis(["x", "y"], axis=1), mode, x_title=HOSTILE, y_title=HOSTILE
        ),
        over_steps=False,
        plotted=("s_k",),
    ),
    Case(
        "engine.parts",
        lambda m, mode, steps: engine.parts({Cause.ENGINE: m.summary.values["u_k"]}, 0.1, mode, steps),
        plotted=("u_k",),
    ),
    Case("engine.holds", lambda m, mode, steps: engine.holds(_held(), mode), over_steps=False),
    Case(
        "engine.against_probability", lambda m, mode, steps: engine.against_probability(_held(), mode), over_steps=False
    ),
    Case(
        "drift.path_diagram",
        lambda m, mode, steps: drift.path_diagram(pairs.measure_pairs(m.run), mode),
        over_steps=False,
    ),
    Case("drift.triangle", lambda m, mode, steps: drift.triangle(m.summary, mode, steps)),
    Case(
        "drift.sampled_and_exact",
        lambda m, mode, steps: drift.sampled_and_exact(m.summary, "s_k_bounded", "s_k_exact", mode, steps),
        plotted=("s_k_bounded", "s_k_exact"),
    ),
    Case(
        "drift.standard_errors",
        lambda m, mode, steps: drift.standard_errors(m.summary, mode, steps),
        plotted=("s_k_exact_z", "u_k_exact_z"),
    ),
    Case(
        "drift.certificate_terms",
        lambda m, mode, steps: drift.certificate_terms(m.by_step, mode, steps),
        plotted=("surrogate", "improvement_bound"),
        place=lambda value: np.arcsinh(value / 0.01),
    ),
    Case(
        "drift.gains",
        lambda m, mode, steps: drift.gains(m.by_step, mode, steps),
        plotted=("gain", "gain_in_sample"),
    ),
    Case(
        "drift.infeasible_share",
        lambda m, mode, steps: drift.infeasible_share(m.by_step, mode, steps),
        plotted=("infeasible_share",),
    ),
    Case("frameworks.theirs_and_ours", _theirs_and_ours, plotted=("kl_k1", "kl_k3")),
    Case("clipping.against", _against, plotted=("share",)),
    Case("clipping.gates", lambda m, mode, steps: _gates(mode), over_steps=False),
    Case("clipping.quadrant_bars", lambda m, mode, steps: _quadrants(mode), over_steps=False),
    Case("clipping.sweep_figure", lambda m, mode, steps: _sweep(m, mode), over_steps=False),
    Case("staleness.lag_heat_map", _lags),
    Case(
        "staleness.one_lag_a_step",
        lambda m, mode, steps: staleness.one_lag_a_step(
            pd.DataFrame({"step": m.summary.values.index, "lag": m.summary.values["version_lag"]}),
            m.summary,
            mode,
            steps,
        ),
    ),
    Case(
        "staleness.by_lag", lambda m, mode, steps: staleness.by_lag(_strata("lag "), "s_k", "S", mode), over_steps=False
    ),
    Case("staleness.filter_curve", lambda m, mode, steps: _filter(m, mode, "dropped"), over_steps=False),
    Case("staleness.filter_curve", lambda m, mode, steps: _filter(m, mode, "staleness"), over_steps=False),
    Case(
        "staleness.switching_share",
        lambda m, mode, steps: staleness.switching_share(m.by_step, mode, steps),
        plotted=("share",),
    ),
    Case("staleness.by_position", lambda m, mode, steps: staleness.by_position(_strata("at "), mode), over_steps=False),
    Case(
        "evidence.evidence",
        lambda m, mode, steps: evidence.evidence(_finding(), m.summary, mode),
        over_steps=False,
        plotted=("s_k",),
    ),
    Case(
        "story.story",
        lambda m, mode, steps: story.story(
            [story.Panel(("s_k",)), story.Panel(("chi2_token",))], m.summary, mode, finding=_finding(), steps=steps
        ),
        plotted=("s_k",),
    ),
    Case(
        "tokens.extremes",
        lambda m, mode, steps: tokens.extremes(m.summary, mode, steps),
        plotted=("ratio_max", "ratio_min"),
        positive=True,
    ),
    Case(
        "linter.noise_floor",
        lambda m, mode, steps: linter.noise_floor(m.summary, mode, steps),
        plotted=("s_k",),
        positive=True,
    ),
    Case("sql.query_figure", lambda m, mode, steps: _query(m, mode), over_steps=False, plotted=("share",)),
    Case("variance.blind_spot", lambda m, mode, steps: _blind_spot(m, mode), over_steps=False, plotted=("chi2_token",)),
    Case("variance.staleness_of_levels", _responses, plotted=("tv", "s_k_bounded")),
    Case("variance.truncation_curve", lambda m, mode, steps: _truncation(mode), over_steps=False),
    Case("variance.lemma_bars", lambda m, mode, steps: variance.lemma_bars(_lemma(m), mode, steps)),
    Case("variance.lemma_over_learning_rates", lambda m, mode, steps: _rates(m, mode), over_steps=False),
)
