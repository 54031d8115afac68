"""A sampler that goes on behind the end token is named; turns, and tokens that end nothing, are not."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import END, Policy, Shape, simulate, write

EOS = 1


def goes_on(policy: Policy) -> None:
    """Where a response may end, it has a token that does not end it."""
    policy.base[: policy.n_closing, EOS] = policy.base[: policy.n_closing, END]
    policy.base[policy.n_closing :, EOS] = -35.0
    policy.base[:, END] = -35.0


def found(folder: Path, *, stops: bool = False, eos: object = EOS, turns: int = 0, **sampler: Any) -> list[Finding]:
    shape = Shape(85, lag=0, steps=12, longest=48, closing=0.08, turns=turns)
    log = simulate(shape, prepare=None if stops else goes_on)
    log.manifest["model"] = {"name": "base", "eos_token_id": eos}
    log.manifest["sampler"] |= sampler
    return [each for each in asked(open_run(write(log, folder)), "selection") if each.of_cause]


def test_ends_that_are_passed_are_named(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "run", stop_token_ids=[END])
    assert one.of_cause == "ends_are_passed" and one.steps == tuple(range(12))
    assert "hold token 1, the manifest's eos_token_id" in one.sentence and "stop_token_ids do not hold it" in one.why
    (ignored,) = found(tmp_path / "ignored", eos=[EOS, 99], ignore_eos=True)
    assert "token 1 or 99" in ignored.sentence and "ignore_eos" in ignored.why


def test_what_stops_has_turns_or_no_such_end_is_not_named(tmp_path: Path) -> None:
    assert found(tmp_path / "stops", stops=True, eos=END) == []
    assert found(tmp_path / "turns", turns=8) == []
    assert found(tmp_path / "unknown", eos=None) == []
    assert found(tmp_path / "none", eos=99) == []


def test_a_token_that_some_pass_and_others_end_with_is_not_named(tmp_path: Path) -> None:
    """As a thought ends with the token that ends the answer, too."""
    log = simulate(Shape(86, lag=0, steps=12, longest=48, closing=0.08))
    log.manifest["model"] = {"eos_token_id": END}
    middle = (log.tokens["position"] == 5) & (log.lengths()[log.row] > 8)
    log.tokens["token_id"] = np.where(middle, END, log.tokens["token_id"])
    assert not [each for each in asked(open_run(write(log, tmp_path / "run")), "selection") if each.of_cause]
