"""Presets of frameworks: every row is a rule that applies, and says what its framework's default says."""

import pytest
import torch

from ratioscope.analysis.frameworks.presets import PRESETS, Preset
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.what_if import Tokens, apply, change_sentence, load_tokens, parse
from tests.making.loops import in_one_loop
from tests.making.samples import run_of


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    """The end of a run, after its last weight sync: data of 0 to 9 updates ago."""
    return load_tokens(run_of("sync_interval20-grpo-seed0"), 140, 149)


def named(name: str) -> Preset:
    return next(preset for preset in PRESETS if preset.name == name)


def test_every_framework_has_presets_and_every_preset_a_name_of_its_own() -> None:
    assert [framework for framework in FRAMEWORKS.values() if any(p.framework is framework for p in PRESETS)] == list(
        FRAMEWORKS.values()
    )
    assert len({preset.name for preset in PRESETS}) == len(PRESETS)
    assert all(preset.framework.source and preset.setting for preset in PRESETS)
    on = {preset.framework.title for preset in PRESETS if preset.default}
    assert on == {"TRL", "Trinity-RFT", "AReaL", "prime-rl", "SkyRL", "NeMo-RL", "open-instruct", "tinker"}


@in_one_loop("preset", {preset.name: preset for preset in PRESETS})
def test_every_preset_applies_to_a_run(preset: Preset, tokens: Tokens) -> None:
    assert parse(str(preset.rule)) == preset.rule
    outcome = apply(preset.rule, tokens)
    values = outcome.values
    assert 0 < values["kept_tokens"] <= 1 and 0 < values["ess"] <= 1 and not values["bias_proxy"] < 0
    text = change_sentence(apply(named("TRL: sequence_mask, clip_max 3.0").rule, tokens), outcome)
    assert text.endswith(".") and "nan" not in text


def test_bounds_are_the_numbers_that_a_framework_states(tokens: Tokens) -> None:
    band = named("SkyRL: sequence mask geometric, 0.99 to 1.01").rule
    assert (band.gate_parameters["floor"], band.gate_parameters["cap"]) == (0.99, 1.01)
    masked = apply(named("OpenRLHF: seq-mask-tis: seq mask by ratio, 0.5 to 5").rule, tokens)
    geometric = tokens.level("geometric").rho
    inside = (geometric >= 0.5) & (geometric <= 5) | ~tokens.signal
    assert torch.equal(masked.decision.value == 1, inside)
    kept = tokens.signal & inside
    assert torch.allclose(masked.applied[kept], tokens.level("token").rho[kept])


def test_truncation_at_a_lower_cap_takes_more_away(tokens: Tokens) -> None:
    names = ("SkyRL: tis_ratio_type=sequence, 5.0", "TRL: sequence_truncate, clip_max 3.0",
             "verl: decoupled_seq_is", "ROLL: is_weight sequence, cap 1.2")  # fmt: skip
    taken = [apply(named(name).rule, tokens).values["bias_proxy"] for name in names]
    assert taken == sorted(taken) and taken[0] < taken[-1]
