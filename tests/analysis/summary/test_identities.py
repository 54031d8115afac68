"""Identities and inequalities that hold on every data set, whatever the policies: swept over random logs.

Each holds to 1e-9 relative to the largest of its terms, on the numbers that the summary reports.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import plain_step, write_files

TOLERANCE = 1e-9
sweep = settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Log:
    """One step's log-probabilities and the sequences its tokens belong to, each (n_tokens,)."""

    b: NDArray[np.float32]
    c: NDArray[np.float32]
    n: NDArray[np.float32]
    engine: NDArray[np.float32]
    """Of the sampling version, as the training engine computes it."""
    sequence: NDArray[np.int64]

    @property
    def rho(self) -> NDArray[np.float64]:
        return np.exp(self.c.astype(float) - self.b)

    @property
    def rho_new(self) -> NDArray[np.float64]:
        return np.exp(self.n.astype(float) - self.b)

    @property
    def rho_engine(self) -> NDArray[np.float64]:
        return np.exp(self.engine.astype(float) - self.b)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """From nearly on-policy to far off; some tokens equal under all policies, some with probability 0."""
    n_tokens = draw(st.integers(1, 40))
    spread = draw(st.sampled_from([1e-7, 1e-4, 0.01, 0.3, 2.0, 8.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    b = -rng.exponential(2.0, n_tokens).astype(np.float32)
    c = np.minimum(b + (spread * rng.standard_normal(n_tokens)).astype(np.float32), np.float32(0))
    n = np.minimum(c + (spread * rng.standard_normal(n_tokens)).astype(np.float32), np.float32(0))
    engine = np.minimum(b + (spread * rng.standard_normal(n_tokens)).astype(np.float32), np.float32(0))
    same = rng.random(n_tokens) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    c[same] = n[same] = b[same]
    impossible = rng.random(n_tokens) < draw(st.sampled_from([0.0, 0.0, 0.2]))
    c[impossible] = -np.inf
    return Log(b, c, n, engine, np.sort(rng.integers(0, draw(st.integers(1, 6)), n_tokens)))


def summaries(batch: list[Log]) -> Iterator[tuple[Log, pd.Series]]:
    """Each log with its line of the summary: the batch is one run, a log is one step of it."""
    steps = [
        plain_step(log.b, log.c, log.n, number=number, sequence=log.sequence, group=log.sequence // 2).with_tokens(
            logp_behavior_train=log.engine
        )
        for number, log in enumerate(batch)
    ]
    with tempfile.TemporaryDirectory() as folder:
        layout = [(table, 0, steps) for table in ("tokens", "sequences")]
        values = summarise(open_run(write_files(Path(folder) / "run", layout))).values
    yield from zip(batch, (values.loc[number] for number in range(len(batch))), strict=True)


batches = st.lists(logs(), min_size=10, max_size=10)


def close(left: float, right: float, *terms: float) -> bool:
    """Equal to the tolerance, relative to the largest term of the equation."""
    return bool(abs(left - right) <= TOLERANCE * max(map(abs, (left, right, *terms))))


def at_most(left: float, right: float) -> bool:
    return bool(left <= right + TOLERANCE * max(abs(left), abs(right)))


@given(batches)
@sweep
def test_plain_and_bounded_total_variation_differ_by_half_the_residual(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        residual = np.mean(np.expm1(log.c.astype(float) - log.b))  # not from ρ, which has lost what is below 1e-16
        assert close(found["s_k"], found["s_k_bounded"] + (found["ratio_mean"] - 1) / 2, 1.0)
        assert close(found["s_k"] - found["s_k_bounded"], residual / 2, found["s_k"])
        assert close(found["ratio_mean"], np.mean(log.rho))
        assert close(found["tv_new_behavior"] - found["tv_new_behavior_bounded"], np.mean(log.rho_new - 1) / 2, 1.0)
        assert close(found["s_k_engine"] - found["s_k_engine_bounded"], np.mean(log.rho_engine - 1) / 2, 1.0)
        for key, p, q in (("u_k", log.rho_new, log.rho), ("s_k_version", log.rho, log.rho_engine)):
            assert close(found[key] - found[f"{key}_bounded"], np.mean(p - q) / 2, 1.0, p.max(), q.max())
            assert close(found[f"{key}_bounded"], np.mean(np.maximum(q - p, 0)), p.max(), q.max())


@given(batches)
@sweep
def test_the_distance_of_the_new_policy_obeys_the_triangle_inequality(batch: list[Log]) -> None:
    for _, found in summaries(batch):
        assert at_most(found["tv_new_behavior"], found["u_k"] + found["s_k"])
        assert at_most(found["s_k"], found["u_k"] + found["tv_new_behavior"])
        assert at_most(found["s_k"], found["s_k_version"] + found["s_k_engine"])


@given(batches)
@sweep
def test_a_path_in_the_bounded_form_is_at_least_as_long_as_the_direct_way(batch: list[Log]) -> None:
    """With plain parts it need not be: the mean ratio would enter one side only."""
    for _, found in summaries(batch):
        assert at_most(found["s_k_bounded"], found["s_k_engine_bounded"] + found["s_k_version_bounded"])
        assert at_most(found["tv_new_behavior_bounded"], found["s_k_bounded"] + found["u_k_bounded"])
        assert 0 <= found["s_k_engine_bounded"] <= 1 and 0 <= found["s_k_bounded"] <= 1
        assert at_most(found["u_k_bounded"], found["ratio_mean"])


@given(batches)
@sweep
def test_effective_sample_size_is_the_self_normalised_chi_square(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        rho = log.rho
        if not rho.any():
            assert np.isnan(found["ess_token"])
            continue
        chi2 = np.mean((rho / rho.mean() - 1) ** 2)
        assert close(found["ess_token"], 1 / (1 + chi2))
        assert at_most(1 / len(rho), found["ess_token"]) and at_most(found["ess_token"], 1)
        if not np.isnan(found["ess_seq"]):
            assert at_most(1 / found["n_sequences"], found["ess_seq"]) and at_most(found["ess_seq"], 1)


@given(batches)
@sweep
def test_the_square_of_the_mean_deviation_is_at_most_the_chi_square(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        assert at_most((2 * found["s_k"]) ** 2, found["chi2_token"])
        assert close(
            found["chi2_token"], found["chi2_token_raw"] - 2 * (found["ratio_mean"] - 1), 1.0, np.mean(log.rho**2)
        )
        assert close(found["log1p_chi2_seq"], np.log1p(found["chi2_seq"]))


@given(batches)
@sweep
def test_divergence_estimators_are_never_negative_and_agree_up_to_the_residual(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        assert found["kl_k3"] >= 0 and found["kl_reverse"] >= 0 and found["kl_k2"] >= 0
        if np.isfinite(found["kl_k1"]):
            assert close(found["kl_k1"], found["kl_k3"] + 1 - found["ratio_mean"], 1.0)
        else:
            assert found["kl_k1"] == found["kl_k3"] == np.inf and np.isneginf(log.c).any()


@given(batches)
@sweep
def test_on_policy_data_give_exactly_nothing(batch: list[Log]) -> None:
    for _, found in summaries([Log(log.b, log.b, log.b, log.b, log.sequence) for log in batch]):
        zeros = (
            "u_k", "u_k_bounded", "s_k", "s_k_bounded", "s_k_engine", "s_k_engine_bounded", "s_k_version",
            "s_k_version_bounded", "tv_new_behavior", "tv_new_behavior_bounded", "chi2_token", "chi2_token_raw",
            "chi2_seq", "log1p_chi2_seq", "kl_k1", "kl_k2", "kl_k3", "kl_reverse",
        )  # fmt: skip
        assert {key: found[key] for key in zeros} == dict.fromkeys(zeros, 0.0)
        ones = ("ratio_mean", "ess_token", "ratio_min", "ratio_p01", "ratio_p50", "ratio_p99", "ratio_max")
        assert {key: found[key] for key in ones} == dict.fromkeys(ones, 1.0)
        assert abs(found["ess_seq"] - 1) < 1e-14
        assert found[["khat_token", "khat_token_new", "khat_seq"]].isna().all()


@given(batches)
@sweep
def test_a_bound_on_every_token_bounds_the_update_drift(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        assert at_most(found["u_k"], np.abs(log.rho_new - log.rho).max() / 2)
        possible = np.isfinite(log.c)
        if possible.all():
            largest_step = np.abs(np.expm1(log.n.astype(float) - log.c)).max()
            assert at_most(found["u_k"], largest_step / 2 * found["ratio_mean"])


@given(batches)
@sweep
def test_quantiles_grow_and_lie_between_minimum_and_maximum(batch: list[Log]) -> None:
    for log, found in summaries(batch):
        ladder = ["ratio_min", "ratio_p01", "ratio_p50", "ratio_p90", "ratio_p99", "ratio_p999", "ratio_max"]
        values = found[ladder].to_numpy(dtype=float)
        assert np.isfinite(values).all()
        assert (values[:-1] <= values[1:] * (1 + TOLERANCE)).all()
        assert values[0] == np.exp(
            np.log(log.rho, where=log.rho > 0, out=np.full_like(log.rho, -np.inf)).min()
        ) or close(values[0], log.rho.min())
