"""A run beside a framework's numbers: every outcome, and names as people and manifests write them."""

import math
from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis import frameworks
from ratioscope.analysis.frameworks import DIALECTS, report
from ratioscope.analysis.frameworks.naming import framework_key, numbers_named, numbers_near, written_by
from ratioscope.analysis.frameworks.translation import Agreement, Translation, translate
from ratioscope.analysis.frameworks.writing import translation_text
from ratioscope.analysis.runs.store import open_run
from ratioscope.errors import RatioscopeError
from ratioscope.run_format.manifest import Manifest
from tests.making.runs import Step, random_step, write_run
from tests.making.samples import run_of


def steps(n: int = 3) -> list[Step]:
    """Steps without a reference, the last without entropy."""
    rng = np.random.default_rng(5)
    made = [random_step(rng, number).with_tokens(logp_reference=None) for number in range(n)]
    return [*made[:-1], made[-1].with_tokens(entropy=None)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("translated") / "run", steps())


@pytest.fixture(scope="module")
def found(folder: Path) -> Translation:
    return translate(open_run(folder), "verl")


def test_every_outcome_is_what_the_numbers_say(found: Translation) -> None:
    lines = {line.name: line for line in found.lines}
    assert lines["rollout_corr/k3_kl"].outcome is Agreement.EQUAL
    assert lines["rollout_corr/log_ppl_diff"].outcome is Agreement.DIFFERENT
    assert lines["actor/ppo_kl"].outcome is Agreement.ALONE
    assert lines["actor/kl_loss"].outcome is Agreement.MISSING
    assert lines["actor/kl_loss"].missing == "logp_reference"
    for line in found.lines:
        frame = line.by_step
        both = frame["value"].notna() & frame["our_value"].notna()
        if line.outcome in (Agreement.EQUAL, Agreement.DIFFERENT):
            close = [
                math.isclose(t, o, rel_tol=1e-6, abs_tol=1e-9) for t, o in frame[both][["value", "our_value"]].values
            ]
            assert all(close) == (line.outcome is Agreement.EQUAL), line.name
        if line.row.same and line.outcome is not Agreement.MISSING:
            assert line.outcome is Agreement.EQUAL, line.name


def test_parts_of_groups_have_no_spread_of_a_group() -> None:
    lines = {line.name: line for line in translate(run_of("trl-smollm2-gcd"), "trl").lines}
    assert lines["frac_reward_zero_std"].outcome is Agreement.UNDEFINED
    assert lines["frac_reward_zero_std"].note.startswith("groups span steps")
    assert lines["entropy"].outcome is Agreement.EQUAL


def test_a_number_is_shown_where_both_have_it_last(found: Translation) -> None:
    (entropy,) = (line for line in found.lines if line.name == "actor/entropy")
    assert (entropy.step, entropy.missing, entropy.outcome) == (1, "", Agreement.EQUAL)
    assert entropy.by_step["missing"].tolist() == ["", "", "entropy"]
    assert math.isnan(entropy.at(2)[0]) and not math.isnan(entropy.at(1)[0])


def test_the_furthest_step_is_that_of_the_largest_difference(found: Translation) -> None:
    (line,) = (line for line in found.lines if line.name == "rollout_corr/log_ppl_diff")
    assert line.furthest == line.by_step["difference"].abs().idxmax()
    (same,) = (line for line in found.lines if line.name == "rollout_corr/kl")
    assert same.furthest is None


def test_every_line_and_reason_is_in_the_text(found: Translation) -> None:
    shown = translation_text(found)
    for line in found.lines:
        assert line.name in shown and (line.row.why in shown or line.row.same), line.name
    assert all(name in shown and why in shown for name, why in found.dialect.not_reproducible.items())
    assert "logp_reference not logged" in shown
    assert "nan" not in shown


def test_without_a_logged_gate_a_number_says_what_it_assumes(folder: Path, tmp_path: Path) -> None:
    """With several passes an update it would be a guess: undefined, with the column that is missing."""
    one = translate(open_run(folder), "verl")
    (line,) = (line for line in one.lines if line.name == "actor/ppo_kl")
    assert (line.by_step["value"] == 0).all()
    assert line.note == "logp_gate not logged: as at the start of the update"
    algorithm = {"name": "grpo", "parameters": {"epochs": 4, "minibatches": 1}}
    several = translate(open_run(write_run(tmp_path / "several", steps(), algorithm=algorithm)), "verl")
    for line in several.lines:
        if "gate" in line.row.needs:
            assert line.outcome is Agreement.MISSING and "logp_gate" in line.missing, line.name
            assert line.by_step["value"].isna().all()


def test_steps_that_are_read_one_by_one_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report(open_run(folder), "trl")
    monkeypatch.setattr(frameworks, "_TOKENS_AT_ONCE", 1)
    assert report(open_run(folder), "trl").equals(whole)


def test_no_step_in_the_range_is_no_error(folder: Path) -> None:
    nothing = translate(open_run(folder), "areal", 50, 60)
    assert nothing.steps is None
    assert "No step with a usable token" in translation_text(nothing)


@pytest.mark.parametrize(("name", "key"), [("verl", "verl"), ("NeMo-RL", "nemo_rl"), (" prime-rl", "prime_rl")])
def test_frameworks_are_known_by_their_names(name: str, key: str) -> None:
    assert framework_key(name) == key


def test_an_unknown_framework_is_a_sentence() -> None:
    with pytest.raises(RatioscopeError, match="'verll' is not a framework whose numbers are known; did you mean verl"):
        framework_key("verll")


@pytest.mark.parametrize(
    ("manifest", "key"),
    [
        (Manifest("run", producer={"name": "veRL trainer", "verl": "0.5"}), "verl"),
        (
            Manifest("run", producer={"name": "mine"}, libraries={"torch": "2", "nemo-rl": "0.3"}),
            "nemo_rl",
        ),
        (Manifest("run", libraries={"trl": "1", "verl": "0.5"}), ""),
        (Manifest("run", producer={"name": "ratioscope trainer"}), ""),
        (Manifest("run", producer={"name": "reverland"}), ""),
    ],
)
def test_the_framework_that_a_manifest_names(manifest: Manifest, key: str) -> None:
    assert written_by(manifest) == key


def test_numbers_are_found_by_name_with_and_without_a_prefix() -> None:
    for framework, dialect in DIALECTS.items():
        for row in dialect.rows:
            assert (framework, row) in [(named.framework, named.row) for named in numbers_named(row.name)]
    (named,) = numbers_named("train/clip_ratio/high_mean")
    assert (named.framework, named.name) == ("trl", "clip_ratio/high_mean")
    (missing,) = numbers_named("rollout_corr/rollout_rs_seq_max")
    assert missing.row is None and missing.reason
    assert numbers_named("s_k") == [] and numbers_named("") == []
    assert {named.name for named in numbers_near("u_k")} >= {"actor/ppo_kl", "approx_kl/avg", "probs_ratio"}
