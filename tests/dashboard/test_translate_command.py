"""`ratioscope translate` and `explain` of a framework's number: text, JSON, and one sentence for a user's mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.frameworks import DIALECTS, report
from ratioscope.analysis.frameworks.translation import Agreement
from ratioscope.analysis.runs.store import open_run
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.sections import frameworks as page
from ratioscope.dashboard.sections.subject import Subject
from tests.dashboard.conftest import make_steps
from tests.making.commands import Outcome as Ended
from tests.making.commands import command
from tests.making.runs import write_run

Ratioscope = Callable[..., Ended]


@pytest.fixture
def ratioscope(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ratioscope:
    """ratioscope("translate", folder) -> what the console command did."""
    return lambda *arguments: command(monkeypatch, capsys, *arguments)


@pytest.mark.parametrize("framework", DIALECTS)
def test_the_json_has_every_number_of_every_step(ratioscope: Ratioscope, gallery: Path, framework: str) -> None:
    folder = gallery / "finished"
    found = json.loads(ratioscope("translate", folder, "--to", framework, "--json").succeeded())
    assert (found["run"], found["steps"]) == ("finished", [0, 11])
    (described,) = found["frameworks"]
    assert described["framework"] == framework
    frame = report(open_run(folder), framework).set_index(["name", "step"])
    assert [number["name"] for number in described["numbers"]] == [row.name for row in DIALECTS[framework].rows]
    for number in described["numbers"]:
        assert number["outcome"] in {outcome.value for outcome in Agreement}
        assert number["nearest"] in CATALOGUE and number["metric"] in (None, number["nearest"])
        assert len(number["by_step"]) == 12
        for row in number["by_step"]:
            expected = frame.loc[(number["name"], row["step"])]
            for key in ("value", "our_value"):
                assert row[key] == pytest.approx(expected[key], nan_ok=True) if row[key] is not None else True
            assert (row["value"] is None) == bool(expected["note"] and expected["value"] != expected["value"])
    assert described["not_reproducible"] == DIALECTS[framework].not_reproducible


def test_the_text_of_a_range_names_the_steps_and_what_is_missing(ratioscope: Ratioscope, gallery: Path) -> None:
    out = ratioscope("translate", gallery / "lean", "--to", "prime-rl", "--steps", "2:4").succeeded()
    assert "Steps 2 to 4" in out and "prime-rl (PrimeIntellect-ai/prime-rl" in out
    assert "entropy not logged" in out
    assert "Cannot be reproduced from a log of tokens" in out


def test_the_framework_is_that_of_the_run_or_all(ratioscope: Ratioscope, gallery: Path, tmp_path: Path) -> None:
    of_trl = write_run(tmp_path / "of-trl", make_steps(2), producer={"name": "TRL", "trl": "1.0"})
    for folder, named in ((of_trl, ["trl"]), (gallery / "one-step", list(DIALECTS))):
        found = json.loads(ratioscope("translate", folder, "--json").succeeded())
        assert [each["framework"] for each in found["frameworks"]] == named


def test_what_cannot_be_is_said_before_all_numbers(ratioscope: Ratioscope, tmp_path: Path) -> None:
    steps = make_steps(2)
    steps[1].scalars["extra_actor_pg_clipfrac"] = 3.0
    folder = write_run(tmp_path / "run", steps)
    words = "extra_actor_pg_clipfrac is 3 in step 1, and a fraction is never above 1: 1 of 1 steps."
    assert ratioscope("translate", folder, "--to", "verl").succeeded().startswith(words)
    assert json.loads(ratioscope("translate", folder, "--to", "verl", "--json").succeeded())["first"] == [words]
    assert page.answer(Subject(open_folder(folder))).startswith(words)


def test_one_number_step_by_step(ratioscope: Ratioscope, gallery: Path) -> None:
    out = ratioscope("translate", gallery / "finished", "--to", "verl", "--key", "actor/ppo_kl").succeeded()
    assert "token mean of log old - log current" in out and "u_k is nearest" in out
    assert [line.split()[0] for line in out.splitlines()[-12:]] == [str(step) for step in range(12)]
    near = ratioscope("translate", gallery / "finished", "--key", "kl_k3", "--steps", "3:3").succeeded()
    assert all(
        name in near for name in ("rollout_corr/k3_kl of verl", "gen_kl_error of NeMo-RL", "mismatch_kl/all/mean")
    )


def test_a_setting_of_theirs_is_used_and_stated(ratioscope: Ratioscope, gallery: Path) -> None:
    def masked(*more: str) -> float:
        out = ratioscope("translate", gallery / "finished", "--to", "prime_rl", "--json", *more).succeeded()
        (described,) = json.loads(out)["frameworks"]
        assert described["parameters"]["eps"] == (0.01 if more else 0.3)
        values = {number["name"]: number["value"] for number in described["numbers"]}
        return float(values["is_masked/mean"])

    assert masked("--set", "eps=0.01") > masked()


def test_without_a_run_it_is_the_dictionary(ratioscope: Ratioscope) -> None:
    out = ratioscope("translate").succeeded()
    for dialect in DIALECTS.values():
        assert dialect.settings in out
        assert all(row.name in out and row.why in out for row in dialect.rows)
    found = json.loads(ratioscope("translate", "--to", "TRL", "--json").succeeded())
    assert (found["run"], found["steps"]) == (None, None)
    assert all(number["value"] is None and number["by_step"] == [] for number in found["frameworks"][0]["numbers"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{run}", "--to", "verll"), "did you mean verl"),
        (
            ("{run}", "--to", "trl", "--set", "clip_maxi=2"),
            "not a parameter of TRL; did you mean clip_max",
        ),
        (("{run}", "--to", "trl", "--set", "summary=2"), "'summary' is not a parameter of TRL"),
        (("{run}", "--to", "trl", "--set", "clip_max=nan"), "write NAME=VALUE with a number"),
        (("{run}", "--set", "clip_max=2"), "name it with --to"),
        (("{run}", "--key", "actor/ppo_kll"), "did you mean actor/ppo_kl"),
        (("{run}", "--steps", "5"), "write FIRST:LAST"),
        (("--steps", "1:2"), "name its folder"),
        (("{run}/nowhere",), "there is no such folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    ratioscope: Ratioscope, gallery: Path, arguments: tuple[str, ...], reason: str
) -> None:
    assert reason in ratioscope("translate", *(each.format(run=gallery / "one-step") for each in arguments)).failed()


def test_explain_knows_what_frameworks_log(ratioscope: Ratioscope) -> None:
    out = ratioscope("explain", "actor/ppo_kl").succeeded()
    assert out.startswith("actor/ppo_kl in verl") and "u_k is nearest" in out
    assert "clip_ratio/high_mean in TRL" in ratioscope("explain", "train/clip_ratio/high_mean").succeeded()
    assert "cannot be reproduced" in ratioscope("explain", "rollout_corr/rollout_rs_token").succeeded()
    both = ratioscope("explain", "entropy").succeeded()
    assert both.startswith("Entropy (entropy)") and "entropy in TRL" in both
    assert "in verl      rollout_corr/k3_kl" in ratioscope("explain", "kl_k3").succeeded()
