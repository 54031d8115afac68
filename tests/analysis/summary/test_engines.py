"""Two engines, one number: `ratioscope.metrics` on tensors against the SQL of the step summary, key by key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.metrics import BatchMetrics, batch_metrics, unreliable
from ratioscope.notes import Kind, Note
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, random_step, write_files

# What a batch of tokens cannot know.
OUT_OF_REACH = {
    **dict.fromkeys(("eval_accuracy", "kl_to_initial", "grad_norm"), "read from the steps table"),
    **dict.fromkeys(("reward", "response_length"), "of whole responses, from the sequences table"),
    "version_lag": "needs the versions of the policy",
    **dict.fromkeys(
        ("s_k_exact", "u_k_exact", "chi2_token_exact", "delta_max", "s_k_exact_z", "u_k_exact_z"),
        "need the full distributions",
    ),
}
OPTIONAL = (
    "logp_new", "logp_behavior_train", "logp_reference", "logp_teacher", "clip_side", "clipped", "gate", "entropy",
)  # fmt: skip
BAD = {
    "logp_behavior": (np.nan, np.inf, -np.inf, 0.01),
    "logp_current": (np.nan, np.inf, 0.01),
    "logp_new": (np.nan, np.inf, 0.01),
    "advantage": (np.nan, np.inf, -np.inf),
}


def by_torch(step: Step) -> BatchMetrics:
    tokens = {name: torch.from_numpy(np.asarray(values)) for name, values in step.tokens.items()}
    given = {name: tokens[name] for name in OPTIONAL if name in tokens}
    return batch_metrics(
        tokens["logp_behavior"], tokens["logp_current"],
        sequence=tokens["seq_id"], group=tokens["group_id"], advantage=tokens["advantage"], **given,
    )  # fmt: skip


# A mean need not have a twin in torch; those that have one keep it.
TWINLESS = {key for key, metric in CATALOGUE.items() if metric.mean} - by_torch(
    random_step(np.random.default_rng(0))
).keys()
OF_COLUMNS = {"n_ratios", "n_recomputed"}
"""A batch is given both log-probabilities: every usable token has a ratio, and to the sampler."""
COUNTED = [count for count in COUNTS if count not in OF_COLUMNS]
SHARED = [*COUNTED, *(key for key in CATALOGUE if key not in OUT_OF_REACH | dict.fromkeys(TWINLESS))]
assert len(SHARED) >= len(COUNTED) + 42


def with_every_column(rng: np.random.Generator) -> list[Step]:
    return [random_step(rng, groups=3 + i, responses=3, longest=20, spread=0.1 * (1 + i)) for i in range(4)]


def with_required_columns_only(rng: np.random.Generator) -> list[Step]:
    return [step.with_tokens(**dict.fromkeys(OPTIONAL)) for step in with_every_column(rng)]


def with_either_clip_column(rng: np.random.Generator) -> list[Step]:
    step = random_step(rng)
    return [step.with_tokens(clipped=None), step.with_tokens(clip_side=None)]


def large(rng: np.random.Generator) -> list[Step]:
    return [random_step(rng, groups=16, responses=8, longest=40, spread=spread) for spread in (0.05, 0.4, 1.2)]


def on_policy(rng: np.random.Generator) -> list[Step]:
    step = random_step(rng, groups=8, longest=20)
    same = {name: step.tokens["logp_behavior"] for name in OPTIONAL if name.startswith("logp")}
    nearly = [random_step(rng, groups=8, spread=spread) for spread in (3e-5, 1e-3)]
    return [step.with_tokens(logp_current=step.tokens["logp_behavior"], **same), *nearly]


def with_a_bad_row_of_every_cause(rng: np.random.Generator) -> list[Step]:
    return [
        with_values(random_step(rng, groups=6), rng, **{column: [value]})
        for column, values in BAD.items()
        for value in values
    ]


def with_many_bad_rows(rng: np.random.Generator) -> list[Step]:
    bad = with_values(
        random_step(rng, groups=8, longest=20), rng, **{name: list(values) for name, values in BAD.items()}
    )
    nothing_usable = bad.with_tokens(logp_current=np.full(len(bad.tokens["seq_id"]), np.nan, dtype=np.float32))
    return [bad, nothing_usable]


def with_bad_optional_columns(rng: np.random.Generator) -> list[Step]:
    """They leave the row usable, and out of their own means."""
    names = ("logp_behavior_train", "logp_reference", "logp_teacher", "entropy")
    return [with_values(random_step(rng), rng, **{name: [np.nan, -np.inf]}) for name in names]


def with_ratios_of_zero(rng: np.random.Generator) -> list[Step]:
    step = random_step(rng, groups=8, longest=20)
    some = with_values(step, rng, logp_current=[-np.inf] * 9, logp_new=[-np.inf] * 9)
    nothing = np.full(len(step.tokens["seq_id"]), -np.inf, dtype=np.float32)
    half = np.where(np.arange(len(nothing)) % 2 == 0, nothing, step.tokens["logp_current"])
    return [some, step.with_tokens(logp_current=half), step.with_tokens(logp_current=nothing, logp_new=nothing)]


def far_apart(rng: np.random.Generator) -> list[Step]:
    """Log-ratios of up to 1,000 nats in both directions; the reference is near the current policy."""
    steps = []
    for nats in (1000.0, -1000.0, 300.0, -300.0, 30.0):
        b = np.full(60, -1500.0)
        c = b + 0.1 * rng.standard_normal(60)
        c[[7, 31]] += np.array([nats, nats / 2])
        n = c + 0.1 * rng.standard_normal(60)
        n[11] -= nats
        step = plain_step(b, c, n, sequence=np.arange(60) // 5, group=np.arange(60) // 10)
        near = {"logp_behavior_train": b, "logp_reference": b, "logp_teacher": b}
        noisy = {name: values + 0.05 * rng.standard_normal(60) for name, values in near.items()}
        steps.append(step.with_tokens(**{name: values.astype(np.float32) for name, values in noisy.items()}))
    return steps


def tied(rng: np.random.Generator) -> list[Step]:
    """Equal ratios on most tokens, zero advantages throughout, one group, one token."""
    b = -rng.exponential(1.0, 200) - 0.5
    c = np.where(np.arange(200) < 190, b, b + 0.25)
    still = plain_step(b, c, sequence=np.arange(200) // 10, group=np.arange(200) // 50, advantage=np.zeros(200))
    return [still, plain_step(b, c, sequence=np.arange(200) // 10, group=np.zeros(200)), plain_step([-1.0], [-0.9])]


def with_values(step: Step, rng: np.random.Generator, **values: list[float]) -> Step:
    """The step with the values of a column scattered over its rows."""
    columns = {name: step.tokens[name].copy() for name in values}
    for name, column in columns.items():
        column[rng.choice(len(column), len(values[name]), replace=False)] = values[name]
    return step.with_tokens(**columns)


RUNS: dict[str, Callable[[np.random.Generator], list[Step]]] = {
    run.__name__: run
    for run in (
        with_every_column, with_required_columns_only, with_either_clip_column, large, on_policy,
        with_a_bad_row_of_every_cause, with_many_bad_rows, with_bad_optional_columns, with_ratios_of_zero,
        far_apart, tied,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Both:
    """One step as both engines see it."""

    name: str
    values: pd.Series
    notes: Mapping[str, Note]
    batch: BatchMetrics


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Both]:
    """All steps of all kinds, numbered through: one run."""
    named = [(name, step) for seed, name in enumerate(RUNS) for step in RUNS[name](np.random.default_rng(seed))]
    steps = [replace(step, number=number) for number, (_, step) in enumerate(named)]
    folder = tmp_path_factory.mktemp("engines") / "run"
    summary = summarise(open_run(write_files(folder, [(table, 0, steps) for table in ("tokens", "sequences")])))
    return [
        Both(f"{name}, step {step.number}", summary.values.loc[step.number], summary.notes[step.number], by_torch(step))
        for (name, _), step in zip(named, steps, strict=True)
    ]


def largest_term(key: str, values: pd.Series) -> float:
    """What a difference is measured against, where the number itself is a difference of larger ones."""
    if key in ("chi2_token_raw", "chi2_seq_raw"):
        return 1.0
    if key == "kl_k1":
        return float(np.sqrt(2 * values["kl_k2"]))
    if key == "ratio_mean_z" and values["ratio_mean"] != 1:
        return abs(float(values[key] * values["ratio_mean"] / (values["ratio_mean"] - 1)))
    return 0.0


@in_one_loop("key", {key: key for key in SHARED})
def test_torch_and_sql_agree(both: list[Both], key: str) -> None:
    for step in both:
        expected = float(step.values[key])
        if np.isnan(expected):
            assert key not in step.batch and step.batch.notes[key], step.name
        elif key in COUNTS:
            assert step.batch[key] == expected, step.name
        else:
            tolerance = 1e-9 * largest_term(key, step.values)
            assert step.batch[key] == pytest.approx(expected, rel=1e-9, abs=tolerance), step.name


@in_one_loop("key", {key: key for key in SHARED})
def test_every_key_is_compared_on_several_steps(both: list[Both], key: str) -> None:
    assert sum(key in step.batch for step in both) > 3


def test_torch_and_sql_distrust_the_same_numbers_for_the_same_reasons(both: list[Both]) -> None:
    for step in both:
        noted = {key: note for key, note in step.notes.items() if note.kind in (Kind.UNRELIABLE, Kind.INFINITE)}
        # A batch does not know what the other steps of its run say.
        doubts = {key: note for key, note in noted.items() if not re.search(r" of \d+ steps ", note.text)}
        assert unreliable(step.batch) == {key: note for key, note in doubts.items() if key in SHARED}, step.name
        assert unreliable(step.batch).items() <= step.batch.notes.items()


def test_a_batch_has_all_of_the_catalogue_but_what_tokens_cannot_know() -> None:
    batch = by_torch(random_step(np.random.default_rng(0), groups=16, responses=8))
    assert set(batch) == {*COUNTED, *CATALOGUE} - OUT_OF_REACH.keys() - TWINLESS
    assert not OUT_OF_REACH.keys() & batch.notes.keys()
