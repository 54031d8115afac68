"""Advice names the settings that the run's own framework has."""

from types import SimpleNamespace
from typing import Any, cast

from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.setup import Setup, setup_of
from ratioscope.run_format.manifest import Manifest


def fresher(schedule: dict[str, Any], lag_within: int | None = None, **manifest: Any) -> str:
    old_data = cast(Facts, SimpleNamespace(fresh=False, lag_within=lag_within))
    setup = setup_of(Manifest(name="run", schedule=schedule, **manifest))
    return setup.fresher(old_data, within=lag_within is not None)


def test_fresher_data_by_the_settings_that_there_are() -> None:
    schedule = {"sync_interval": 20, "sync_offset": 0}
    for within, said in ((None, "(20 now)"), (10, "to 11 (20 now)"), (0, "to 1 (20 now)"), (25, "(20 now)")):
        assert fresher(schedule, within) == f"Lower sync_interval {said}."
    trl = {"sync_interval": 8, "sync_offset": 0, "steps_per_generation": 4, "num_iterations": 2}
    of_trl = fresher(trl, source={"framework": "TRL"})
    assert of_trl == "Make fewer updates of a generation (steps_per_generation 4, num_iterations 2 now)."
    assert "sync_" not in fresher({"sync_interval": 20}, source={"framework": "verl"})
    for given, said in (
        ({}, "Find out why batches wait"),
        ({"mixture": [0]}, "Find out why batches wait"),
        ({"mixture": [0, 4]}, "Mix fewer or newer versions."),
        ({"actors": 2}, "Let the actors take new weights more often, or shorten their queue."),
        ({"sync_offset": 1}, "Lower sync_offset (1 now)."),
    ):
        assert fresher({"sync_interval": 1, "sync_offset": 0} | given).startswith(said)


def parts(passes: int, **chosen: str) -> Setup:
    parameters = {"epochs": passes, "minibatches": 1}
    return setup_of(Manifest(name="run", algorithm={"parts": chosen, "parameters": parameters}))


def test_a_remedy_has_an_effect_for_the_loss_that_was_run() -> None:
    """A clip centred at ρ_k was offered to a loss with one pass, for which the trainer refuses it."""
    assert parts(1, gate="none", weight="none").recentre == parts(1, gate="one_side", weight="ratio").recentre == ""
    assert "centred at ρ_k" in parts(4, gate="none", weight="none").recentre
    assert parts(4, gate="adaptive", weight="ratio").recentre == ""
    assert parts(1, gate="one_side").has_upper_bound and not parts(1, gate="adaptive").has_upper_bound


def test_a_bounded_weight_is_not_said_to_be_none() -> None:
    """ "This loss does not multiply by such ratios" was said of truncated products and of VESPO."""
    for level, weight in (("sequence", "truncated"), ("sequence", "gamma_kernel"), ("token", "truncated")):
        setup = parts(1, level=level, weight=weight, gate="none")
        assert setup.bounded and "is bounded" in setup.bounded_words and not setup.unbounded
    assert not parts(1, weight="none").bounded and not parts(1, weight="ratio").bounded
