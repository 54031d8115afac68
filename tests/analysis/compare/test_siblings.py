"""Runs that differ in one setting, or in the seed alone."""

import time
from dataclasses import replace

from ratioscope import Manifest
from ratioscope.analysis.compare.siblings import siblings

PARTS = {"advantage": "group", "gate": "clip", "weight": "none"}


def _run(seed: int = 0, interval: int = 20, lr: float = 0.1, task: int = 2, **algorithm: object) -> Manifest:
    settings = {"name": "any", "parts": PARTS, "parameters": {"epsilon_low": 0.2, "epsilon_high": 0.2}} | algorithm
    return Manifest(
        name="run", seed=seed, algorithm=settings, schedule={"sync_interval": interval}, optimiser={"lr": lr},
        task={"name": "sums", "digits": task}, planned_updates=seed + 100,
    )  # fmt: skip


def test_what_differs_in_one_setting_is_found_and_nothing_else() -> None:
    runs = {
        "here": _run(),
        "same": _run(),
        "seed": _run(seed=1),
        "interval": _run(interval=5),
        "lr": _run(lr=0.2),
        "bound": _run(parameters={"epsilon_low": 0.1, "epsilon_high": 0.3}),
        "gate": _run(parts=PARTS | {"gate": "none"}, parameters={}),
        "task": _run(task=3),
        "seed and lr": _run(seed=1, lr=0.2),
        "lr and interval": _run(lr=0.2, interval=5),
        "two parts": _run(parts=PARTS | {"gate": "none", "weight": "is"}),
    }
    found = {sibling.run_id: sibling.words for sibling in siblings("here", runs)}
    assert list(found)[-1] == "seed"
    assert found == {
        "bound": "epsilon_low, epsilon_high: 0.2, 0.2 → 0.1, 0.3",
        "gate": "gate: clip (0.2, 0.2) → none",
        "lr": "optimiser.lr: 0.1 → 0.2",
        "interval": "schedule: sync_interval = 20 → sync_interval = 5",
        "seed": "seed: 0 → 1",
    }
    back = {sibling.run_id: sibling.words for sibling in siblings("gate", runs)}
    assert back["here"] == "gate: none → clip (0.2, 0.2)"


def test_runs_of_two_programs_or_of_an_unknown_algorithm_are_none() -> None:
    """An imported run of which a model is known, beside another program's with another model."""
    both = {"here": _run(), "there": replace(_run(lr=0.2), source={"framework": "TRL"})}
    assert siblings("here", both) == ()
    bare = {name: Manifest(name="run", model={"path": name}) for name in ("a", "b")}
    assert siblings("a", bare) == ()


def test_a_thousand_runs_are_looked_through_at_once() -> None:
    runs = {f"run {number}": _run(seed=number % 7, lr=number) for number in range(1000)}
    began = time.process_time()
    siblings("run 3", runs)
    assert time.process_time() - began < 0.5
