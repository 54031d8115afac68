"""A mismatch that begins behind a number of tokens is named, with the manifest's word for it; a growth is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Array, Columns, Log, Shape, mixed, simulate, write
from tests.making.loops import in_one_loop

SHAPE = Shape(65, lag=1, drift=0.02, steps=12, noise=0.02)
PLACE = 36
By = Callable[[NDArray[Any], NDArray[Any]], Array]
"""Size of a difference of logits, by position in the response and with the prompt."""


def prompts(responses: Columns) -> None:
    """Of four to 33 tokens."""
    responses["prompt_tokens"] = 4 + (mixed(responses["prompt_id"], 66) % np.uint64(30)).astype(np.int64)


def said(folder: Path, by: By, **model: Any) -> Finding:
    elsewhere = np.random.default_rng(67).standard_normal((SHAPE.states, SHAPE.vocabulary))

    def trainer(log: Log, which: str, logits: Array) -> Array:
        position = log.tokens["position"]
        return np.asarray(logits + by(position, position + log.of_token("prompt_tokens"))[:, None]
                          * elsewhere[log.state])  # fmt: skip

    log = simulate(SHAPE, setup=prompts, trainer=trainer)
    log.manifest["model"] = {"name": "small", "max_position_embeddings": 4096} | model
    return asked(open_run(write(log, folder)), "mismatch_cause")[0]


def behind(position: NDArray[Any], absolute: NDArray[Any]) -> Array:
    return np.where(absolute >= PLACE, 0.4, 0.0)


def straight_behind(position: NDArray[Any], absolute: NDArray[Any]) -> Array:
    return 0.015 * np.maximum(absolute - PLACE, 0)


def test_a_place_is_named_by_the_manifest(tmp_path: Path) -> None:
    found = said(tmp_path / "run", behind, rope_scaling={"original_max_position_embeddings": PLACE, "factor": 4.0})
    assert found.of_cause == "window_left_out", found.sentence
    assert f"behind token {PLACE} of prompt and response" in found.sentence
    assert f"the manifest's original_max_position_embeddings is {PLACE}" in found.why
    slowly = said(tmp_path / "slowly", straight_behind, sliding_window=PLACE)
    assert slowly.of_cause == "window_left_out" and f"sliding_window is {PLACE}" in slowly.why, slowly.sentence


def test_a_place_is_named_without_the_manifest(tmp_path: Path) -> None:
    found = said(tmp_path / "run", behind, sliding_window=64)
    assert found.of_cause == "from_a_place_on" and "manifest" not in found.why, found.sentence
    assert any(f"token {at} of prompt and response" in found.sentence for at in range(PLACE - 2, PLACE + 3))
    of_response = said(tmp_path / "response", lambda position, absolute: np.where(position >= 22, 0.4, 0.0))
    assert of_response.of_cause == "from_a_place_on" and "of the response" in of_response.sentence


NEAR_MISSES: dict[str, By] = {
    "a line": lambda position, absolute: 0.008 * absolute,
    "a line of the response": lambda position, absolute: 0.008 * position,
    "a square": lambda position, absolute: 1e-4 * absolute**2,
    "a power": lambda position, absolute: 0.01 * np.exp(absolute / 20),
    "a root": lambda position, absolute: 0.05 * np.sqrt(absolute),
    "a stretch": lambda position, absolute: np.where(absolute // 8 == PLACE // 8, 0.6, 0.0),
    "all": lambda position, absolute: np.full(len(absolute), 0.3),
    "twice as much": lambda position, absolute: np.where(absolute >= PLACE, 0.3, 0.15),
}


@in_one_loop("by", NEAR_MISSES)
def test_a_near_miss_is_not_named(tmp_path: Path, by: By) -> None:
    found = said(tmp_path / str(id(by)), by, sliding_window=PLACE)
    assert found.of_cause not in ("window_left_out", "from_a_place_on"), found.sentence
