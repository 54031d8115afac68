"""A soft cap of logits in one engine alone is named; a temperature and noise, which grow in a line or not, are not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Array, Call, Shape, simulate, write

SHAPE = Shape(61, lag=1, drift=0.02, steps=12)
CAP = 12.0


def said(folder: Path, sampler: Callable[[Call, Array], Array]) -> Finding:
    run = open_run(write(simulate(SHAPE, sampler=sampler), folder, "all"))
    return asked(run, "mismatch_cause")[0]


def capped(call: Call, logits: Array) -> Array:
    return np.asarray(CAP * np.tanh(logits / CAP))


def floored(call: Call, logits: Array) -> Array:
    """A hundredth of what is drawn is any token."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.log(0.99 * chances / chances.sum(axis=1, keepdims=True) + 0.01 / logits.shape[1])


@pytest.mark.parametrize("sampler", [capped, floored])
def test_what_raises_rare_tokens_in_the_sampler_alone_is_named(
    tmp_path: Path, sampler: Callable[[Call, Array], Array]
) -> None:
    found = said(tmp_path / "run", sampler)
    assert found.of_cause == "rare_tokens", found.sentence
    assert "of the rarest tokens less, by " in found.sentence + found.why


@pytest.mark.parametrize(
    "sampler",
    [
        lambda call, logits: logits / 1.3,
        lambda call, logits: logits / 0.8,
        lambda call, logits: logits + 0.6 * call.noise(),
        lambda call, logits: np.round(logits * 2) / 2,
    ],
    ids=["warmer", "colder", "noise", "rounded"],
)
def test_a_near_miss_is_not_named(tmp_path: Path, sampler: Callable[[Call, Array], Array]) -> None:
    assert said(tmp_path / "run", sampler).of_cause != "rare_tokens"
