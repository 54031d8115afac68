"""Where the engine's distance sits: the stratum that was made to hold it is found, and its shares add up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.engine.sentences import sits
from ratioscope.analysis.engine.where import DIMENSIONS, where_engine_differs
from ratioscope.analysis.findings.words import named_part
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from tests.making.engines import engine_steps
from tests.making.runs import Step, write_run


def test_the_server_that_differs_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def two_servers(step: Step) -> Step:
        engine = np.where(step.sequences["seq_id"] % 4 == 0, "server-b", "server-a")
        of_token = engine[step.tokens["seq_id"]] == "server-b"
        noise = np.where(of_token, 0.2, 0.01) * rng.standard_normal(len(of_token))
        train = np.minimum(step.tokens["logp_behavior"] + noise, -1e-6).astype(np.float32)
        return replace(step, sequences=step.sequences | {"engine": engine}).with_tokens(logp_behavior_train=train)

    write_run(tmp_path / "run", [two_servers(step) for step in engine_steps("noise", 0.0, steps=2)])
    found = where_engine_differs(open_run(tmp_path / "run"))
    assert found is not None and found.smallest is not None
    assert found.smallest.dimension == "engine" and found.smallest.labels == ("server-b",)
    assert found.smallest.share_of_tokens == pytest.approx(0.25)
    assert found.smallest.share_expected == pytest.approx(0.25, abs=0.05)
    remarks = lint(open_run(tmp_path / "run"))
    assert "of the mismatch is in server-b (2" in sits(remarks)
    for dimension in {holding.dimension for holding in found.holdings}:
        shares = found.of(dimension)[["share_of_tokens", "share_of_distance"]].sum()
        assert shares.to_numpy() == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["server-2"], "server-2"),
        (["Server-1", "server-2"], "Server-1 and server-2"),
        (["a", "server-2"], "server a and server-2"),
    ],
)
def test_a_part_that_says_its_kind_is_named_without_it(labels: list[str], words: str) -> None:
    assert named_part("server", labels) == words


def test_neighbouring_strata_are_named_as_one() -> None:
    label = DIMENSIONS["probability"].label
    assert label is not None
    assert [label(*ends) for ends in (("0", "0"), ("2", "3"), ("4", "5"))] == [
        "above 0.999",
        "0.5 to 0.99",
        "below 0.5",
    ]
    position = DIMENSIONS["position"].label
    assert position is not None and [position("0", "0"), position("2", "4")] == ["0", "2 to 7"]
