"""S3's figure 3 in small: a stale sampler ruins REINFORCE; clipping prevents it, importance weights add nothing."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training.loop import Trainer
from tests.making.training import table

# The same clip with importance weights and without; GRPO only has its advantages normalised besides.
CLIPPED = ("rec_oneside_is", "rec_oneside_nois")
UPDATES, SYNC_INTERVAL = 30, 15
# Three times the usual: what takes 150 updates there shows in 30.
LEARNING_RATE = 3e-4


class Curve(NamedTuple):
    """What figure 3 shows of one run."""

    start: float
    """Accuracy after the first update."""
    end: float
    """Mean accuracy over the last interval between two synchronisations."""
    clip_fraction: list[float]
    """Of each update."""


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> dict[str, Curve]:
    """S3's batch of 12 x 8 on the default task."""
    found = {}
    for algorithm in ("reinforce", *CLIPPED):
        folder: Path = tmp_path_factory.mktemp("figure_3") / algorithm
        config = load_settings(
            "sync_interval",
            [
                f"algorithm={algorithm}",
                f"sync_interval={SYNC_INTERVAL}",
                f"updates={UPDATES}",
                "evaluate_every=5",
                "exact=false",
                f"learning_rate={LEARNING_RATE}",
            ],
        )
        Trainer(config, folder).run(lambda progress: None)
        accuracy = table(folder, "steps")["eval_accuracy"].to_pylist()
        late = [value for value in accuracy[-SYNC_INTERVAL:] if value is not None]
        tokens = table(folder, "tokens").group_by("step").aggregate([("clipped", "mean")])
        clip_fraction = tokens.sort_by("step")["clipped_mean"].to_pylist()
        found[algorithm] = Curve(accuracy[0], sum(late) / len(late), clip_fraction)
    return found


def test_reinforce_collapses(curves: dict[str, Curve]) -> None:
    assert curves["reinforce"].end < curves["reinforce"].start - 0.08
    assert curves["reinforce"].end < min(curves[algorithm].end for algorithm in CLIPPED) - 0.12


@pytest.mark.parametrize("algorithm", CLIPPED)
def test_clipped_variants_stay_above_their_start(curves: dict[str, Curve], algorithm: str) -> None:
    assert curves[algorithm].end > curves[algorithm].start


def test_importance_sampling_makes_no_difference(curves: dict[str, Curve]) -> None:
    with_weights, without = (curves[algorithm].end for algorithm in CLIPPED)
    assert abs(with_weights - without) < 0.08


@pytest.mark.parametrize("algorithm", CLIPPED)
def test_the_clip_fraction_climbs_between_synchronisations_and_falls_at_each(
    curves: dict[str, Curve], algorithm: str
) -> None:
    intervals = np.array(curves[algorithm].clip_fraction).reshape(-1, SYNC_INTERVAL)
    fresh, stale = intervals[:, :3].mean(axis=1), intervals[:, -5:].mean(axis=1)
    assert stale.mean() > 1.4 * fresh.mean()
    assert (stale > fresh).all()
    assert np.allclose(intervals[:, 0], 0.0)


def test_reinforce_clips_nothing(curves: dict[str, Curve]) -> None:
    assert not any(curves["reinforce"].clip_fraction)
