"""Advice names the settings that the run's own framework has."""

from types import SimpleNamespace
from typing import Any, cast

from ratioscope.analysis.findings.facts import Facts
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.manifest import Manifest

OLD_DATA = cast(Facts, SimpleNamespace(fresh=False))


def fresher(schedule: dict[str, Any], **manifest: Any) -> str:
    return setup_of(Manifest(name="run", schedule=schedule, **manifest)).fresher(OLD_DATA)


def test_fresher_data_by_the_settings_that_there_are() -> None:
    assert "(smaller sync_interval, 20 now)" in fresher({"sync_interval": 20, "sync_offset": 0})
    trl = {"sync_interval": 8, "sync_offset": 0, "steps_per_generation": 4, "num_iterations": 2}
    of_trl = fresher(trl, source={"framework": "TRL"})
    assert of_trl == "Make fewer updates of a generation (steps_per_generation 4, num_iterations 2 now)."
    assert "sync_" not in fresher({"sync_interval": 20}, source={"framework": "verl"})
