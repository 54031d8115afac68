"""Limits: where they come from, that each one moves a verdict, and the files that move them."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.diagnosis import RULES, RunEvidence
from ratioscope.analysis.findings.limits import Limits, limits_of, moved_limits, read_limits, refuse_own
from ratioscope.catalogue import EPSILON, EPSILON_STALE, THRESHOLDS
from ratioscope.catalogue.thresholds import explain
from ratioscope.errors import RatioscopeError
from ratioscope.sources import SOURCES
from tests.analysis.diagnosis.test_rules import FROM_TOKENS, MADE_UP, RAMP, finding_of, made_up, spread

every_threshold = pytest.mark.parametrize("name", THRESHOLDS)


def test_limits_are_the_rows_of_the_catalogue_and_what_follows_from_them() -> None:
    assert asdict(Limits()) == {name: row.value for name, row in THRESHOLDS.items()}
    moved = Limits(epsilon=0.1, epsilon_stale=0.8, mult_prob_error=1.2, chi2=2.0)
    assert (moved.update, moved.staleness) == (0.05, 0.4)
    assert (moved.engine, moved.log_chi2) == pytest.approx((0.1, np.log(3.0)))


@every_threshold
def test_every_threshold_is_complete_and_lies_in_its_range(name: str) -> None:
    row = THRESHOLDS[name]
    assert row.name == name and row.meaning and row.source
    assert row.lowest <= row.value <= row.highest
    assert row.lowest < row.highest


def test_the_seeds_and_the_frameworks_give_these_values() -> None:
    """S0 key parameters; verl's health limits; NeMo-RL's alert."""
    assert 0.1 <= EPSILON.value <= 0.2
    assert 0.3 <= EPSILON_STALE.value <= 0.5
    assert 2 <= THRESHOLDS["version_window"].value <= 4
    verl = {"mean_ratio_low": 0.5, "mean_ratio_high": 2, "ess": 0.3, "chi2": 1, "kl": 0.1}
    assert {name: THRESHOLDS[name].value for name in verl} == verl
    assert THRESHOLDS["mult_prob_error"].value == 1.05
    assert all(
        row.source.split()[0] in {*SOURCES, "verl,", "NeMo-RL,", "Vehtari", "chosen", "usual"}
        for row in THRESHOLDS.values()
    )


def test_all_thresholds_are_explained() -> None:
    text = explain()
    for row in THRESHOLDS.values():
        assert row.name in text and row.meaning in text and row.source in text


# A threshold, the rule that it belongs to, and a value at which the rule's fault is none any more.
LOOSE = {
    "epsilon": ("update_large", 0.4),
    "epsilon_stale": ("staleness_high", 1.0),
    "staleness_growth": ("staleness_growing", 3.0),
    "kl": ("kl_high", 1.0),
    "mean_ratio_z": ("denominator_wrong", 10.0),
    "mult_prob_error": ("engine_mismatch", 1.2),
    "dropped_share": ("survivor_bias", 0.5),
    "khat": ("heavy_tail", 2.0),
    "tail_share": ("heavy_tail", 0.9),
    "ess": ("ess_collapse", 0.1),
    "chi2": ("variance_regime", 10.0),
    "mean_ratio_trifle": ("denominator_wrong", 0.2),
    "clip_saturated": ("clip_saturated", 0.9),
    "zero_signal": ("zero_signal", 0.9),
    "entropy_share": ("entropy_collapse", 0.01),
    "reward_fall": ("reward_collapse", 0.9),
    "left_out": ("rows_left_out", 0.1),
}


@pytest.mark.parametrize("name", LOOSE)
def test_a_threshold_moves_the_verdict(name: str) -> None:
    rule, value = LOOSE[name]
    evidence = MADE_UP[rule][0]
    assert RULES[rule](evidence) is not None
    moved = RunEvidence(evidence.summary, None, Limits(**{name: value}), evidence.remarks)
    assert RULES[rule](moved) is None


def test_the_other_thresholds_move_a_verdict_too(tmp_path: Path) -> None:
    def fires(rule: str, evidence: RunEvidence, **moved: float) -> bool:
        return RULES[rule](RunEvidence(evidence.summary, evidence.run, Limits(**moved))) is not None

    engine = made_up(s_k_engine_bounded=0.015, s_k_version_bounded=0.002, u_k=0.01)
    assert fires("engine_mismatch", engine) and not fires("engine_mismatch", engine, engine_to_update=2.0)
    for mean, name, value in ((0.4, "mean_ratio_low", 0.3), (2.5, "mean_ratio_high", 3.0)):
        off = made_up(ratio_mean=mean)
        assert fires("denominator_wrong", off) and not fires("denominator_wrong", off, **{name: value})
    few = made_up(ess_token=np.where(np.arange(len(RAMP)) < 5, 0.1, 0.9))
    assert not fires("ess_collapse", few) and fires("ess_collapse", few, step_share=0.05)
    support = made_up(ratio_mean=0.97, ratio_mean_z=-5.0)
    moved = RunEvidence(support.summary, None, Limits(missing_mass=0.01))
    assert finding_of("truncated_support", moved).severity > finding_of("truncated_support", support).severity
    mixture = spread(tmp_path / "run", 0.5)
    narrow = RunEvidence(mixture.summary, mixture.run, Limits(version_window=2.0))
    assert "window" in finding_of("trust_region_infeasible", narrow).why
    assert "window" not in finding_of("trust_region_infeasible", mixture).why
    assert not fires("trust_region_infeasible", mixture, epsilon=0.6)


def test_every_threshold_is_shown_to_matter() -> None:
    others = {"engine_to_update", "mean_ratio_low", "mean_ratio_high", "step_share", "missing_mass", "version_window"}
    assert set(LOOSE) | others == set(THRESHOLDS)
    assert not set(FROM_TOKENS) & {rule for rule, _ in LOOSE.values()}


# Files ------------------------------------------------------------------------------------------------------------


def write(folder: Path, text: str, name: str = "ratioscope.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_moves_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    limits = read_limits(write(tmp_path, "[thresholds]\nepsilon = 0.1\nversion_window = 2\n"))
    assert limits == Limits(epsilon=0.1, version_window=2.0)
    assert read_limits(write(tmp_path, "")) == Limits()


def test_the_nearest_file_beside_the_run_or_above_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "project" / "runs" / "one"
    run.mkdir(parents=True)
    assert limits_of(run) == Limits()
    for folder, epsilon in ((tmp_path, 0.01), (tmp_path / "project", 0.05), (run, 0.15)):
        write(folder, f"[thresholds]\nepsilon = {epsilon}\n")
        assert limits_of(run).epsilon == epsilon
    (run / "ratioscope.toml").unlink()
    monkeypatch.chdir(run.parent)
    for place in (Path("one"), Path("one/../one"), Path("../runs/one")):
        assert limits_of(place).epsilon == 0.05
    said = moved_limits(Path("one"), limits_of(Path("one")))
    where = f"{tmp_path / 'project' / 'ratioscope.toml'}"
    assert said == f"The limits are not the defaults: {where} sets epsilon 0.05 instead of 0.2."
    assert moved_limits(Path("one"), Limits()) == ""
    refuse_own(Path("one"))
    link = tmp_path / "elsewhere"
    link.symlink_to(run, target_is_directory=True)
    assert limits_of(link).epsilon == 0.05


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[thresholds]\nepsilon_stal = 0.5\n", "'epsilon_stal' is not a threshold; did you mean epsilon_stale"),
        ("[thresholds]\nqwertyuiop = 1\n", "is not a threshold; there are: epsilon, epsilon_stale, "),
        ("[thresholds]\nepsilon = 'wide'\n", "epsilon is 'wide', it must be a number."),
        ("[thresholds]\nepsilon = true\n", "epsilon is True, it must be a number."),
        ("[thresholds]\nepsilon = 2\n", "it must lie between 0.001 and 0.99."),
        ("[thresholds]\nepsilon = nan\n", "it must lie between 0.001 and 0.99."),
        ("[thresholds]\nkl = inf\n", "it must lie between 0 and 100."),
        ("thresholds = 3\n", "must be a table"),
        ("epsilon = 0.1\n", "thresholds belong in the table [thresholds]."),
        ("[thresholds\n", "cannot be read as TOML"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(RatioscopeError) as raised:
        read_limits(file)
    sentence = str(raised.value)
    assert words in sentence and sentence.startswith(str(file)) and "\n" not in sentence


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=r"missing\.toml: there is no such file\.$"):
        read_limits(tmp_path / "missing.toml")
