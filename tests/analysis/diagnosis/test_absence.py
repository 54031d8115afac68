"""A run that nothing can be said of, or whose end is lost, is never silent: not in the rules, not in any command."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.absence import not_seen
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.overview.sentences import overview_headline
from ratioscope.run_format.manifest import Manifest
from tests.making.commands import command
from tests.making.faults import clean_steps
from tests.making.runs import Step, random_step, write_run

STEPS = 12


def steps(first_lost: int = STEPS, **lost: float) -> list[Step]:
    """Healthy steps; from `first_lost` on scalars or token columns have the given value."""
    made = []
    for step in clean_steps(np.random.default_rng(0), "stale", steps=STEPS, groups=10, longest=4):
        step.scalars.update(loss=0.1, grad_norm=1.0)
        if step.number >= first_lost:
            step.scalars.update({name: value for name, value in lost.items() if name in ("loss", "grad_norm")})
            tokens = {
                name: np.full_like(step.tokens[name], value) for name, value in lost.items() if name in step.tokens
            }
            step = step.with_tokens(**tokens)
        made.append(step)
    return made


def whole(folder: Path, **options: float) -> Path:
    return write_run(folder, steps(), **options)


def without(*tables: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        whole(folder)
        for table in tables:
            shutil.rmtree(folder / table)
        return folder

    return make


def torn(folder: Path) -> Path:
    whole(folder, flush_seconds=0)
    file = sorted((folder / "tokens").glob("*.parquet"))[-1]
    file.write_bytes(file.read_bytes()[:200])
    return folder


def lost(first: int, **values: float) -> Callable[[Path], Path]:
    return lambda folder: write_run(folder, steps(first, **values))


def loss_no_longer_logged(folder: Path) -> Path:
    """As a logger that writes nothing for NaN."""
    whole(folder)
    for file in (folder / "steps").glob("*.parquet"):
        table = pq.read_table(file)
        late = table["step"].to_numpy() >= 8
        kept = pa.array(table["loss"].to_numpy(), mask=late, type=table["loss"].type)
        pq.write_table(table.set_column(table.schema.names.index("loss"), table.schema.field("loss"), kept), file)
    return folder


def ended(**fields: str) -> Callable[[Path], Path]:
    """A run whose manifest says so."""

    def make(folder: Path) -> Path:
        manifest = Manifest.read(whole(folder))
        vars(manifest).update(fields)
        manifest.write(folder)
        return folder

    return make


# What was made: the rule that speaks, and whether anything is left that could be judged.
CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no step": (lambda folder: write_run(folder, []), "nothing_to_judge"),
    "neither tokens nor responses": (without("tokens", "sequences"), "nothing_to_judge"),
    "a manifest only": (without("tokens", "sequences", "steps"), "nothing_to_judge"),
    "NaN from the start": (lost(0, logp_current=np.nan), "nothing_to_judge"),
    "infinite advantages": (lost(0, advantage=np.inf), "nothing_to_judge"),
    "log-probs above 0": (lost(0, logp_behavior=1.0), "nothing_to_judge"),
    "NaN from step 9 on": (lost(9, logp_current=np.nan, logp_behavior=np.nan), "diverged"),
    "NaN in the last step": (lost(11, logp_current=np.nan), "diverged"),
    "loss NaN": (lost(9, loss=np.nan), "diverged"),
    "gradient norm infinite": (lost(9, grad_norm=np.inf), "diverged"),
    "loss no longer logged": (loss_no_longer_logged, "diverged"),
    "torn file": (torn, "files_left_out"),
    "failed": (ended(status="failed", status_reason="CUDA error"), "ended_badly"),
    "killed": (ended(status="running", heartbeat="2020-01-01T00:00:00+00:00"), "ended_badly"),
}
SEVERITY = {"files_left_out": Severity.WARNING, "ended_badly": Severity.WARNING}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_seen_is_a_finding_and_no_gate_passes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, rule = CASES[case]
    folder = make(tmp_path / "run")
    opened = open_folder(folder)
    found = {finding.rule: finding for finding in opened.findings}
    assert rule in found and found[rule].severity is SEVERITY.get(rule, Severity.CRITICAL)
    assert "nan" not in found[rule].sentence
    said = overview_headline(opened.facts(), opened.findings)
    assert found[rule].sentence in said
    for arguments in (["diagnose", folder, "--fail-on", "warning"], ["watch", folder, "--every", "0.05"]):
        outcome = command(monkeypatch, capsys, *arguments)
        assert outcome.code == 1 and found[rule].sentence in outcome.out
    if rule == "nothing_to_judge":  # the one finding that needs no --fail-on
        assert command(monkeypatch, capsys, "diagnose", folder).code == 1
        assert command(monkeypatch, capsys, "check", folder).code == 1


def test_responses_without_tokens_are_judged_by_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log of responses, which README offers, was "nothing to judge", critical, and exit 1."""
    folder = without("tokens")(tmp_path / "run")
    opened = open_folder(folder)
    assert {each.rule for each in opened.findings} == {"zero_signal"}  # all of a group earn the same
    assert not_seen(opened.summary, opened.facts())
    outcome = command(monkeypatch, capsys, "diagnose", folder)
    assert outcome.code == 0 and "Not logged, so not judged" in outcome.out
    assert command(monkeypatch, capsys, "check", folder).code == 0


def test_a_run_that_has_not_begun_is_not_sick(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [])
    manifest = Manifest.read(folder)
    manifest.status = "running"
    manifest.write(folder)
    opened = open_folder(folder)
    assert opened.run.status == "running" and opened.findings == []
    assert overview_headline(opened.facts(), []) == "No step is on disk yet."


def test_a_scalar_that_is_logged_now_and_then_has_not_stopped(tmp_path: Path) -> None:
    made = steps()
    for step in made:
        if step.number % 5:
            del step.scalars["loss"]
    assert not open_folder(write_run(tmp_path / "run", made)).findings


def test_a_hole_that_closes_again_is_no_divergence(tmp_path: Path) -> None:
    made = steps()
    made[4] = steps(0, logp_current=np.nan)[4]
    made[6].scalars["loss"] = float("nan")
    assert "diverged" not in {each.rule for each in open_folder(write_run(tmp_path / "run", made)).findings}


def test_what_is_not_logged_is_said_beside_an_empty_list_of_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = whole(tmp_path / "run")
    opened = open_folder(folder)
    unseen = not_seen(opened.summary, opened.facts())
    assert opened.summary.values[["clip_fraction", "entropy"]].isna().all(axis=None)
    assert unseen == [
        "whether staleness is the engine's or the age's (logp_behavior_train)",
        "what the gate did (clipped or clip_side)",
        "the entropy (entropy)",
    ]
    printed = command(monkeypatch, capsys, "diagnose", folder).succeeded()
    assert f"\n\nNo problem found in {STEPS} steps." in printed and all(words in printed for words in unseen)


def test_updates_that_are_skipped_now_and_then_are_no_divergence(tmp_path: Path) -> None:
    made = steps()
    for step in made[2::3]:  # the last one among them
        step.scalars["grad_norm"] = float("inf")
    assert not open_folder(write_run(tmp_path / "run", made)).findings


def test_a_norm_that_is_lost_is_no_policy_that_is(tmp_path: Path) -> None:
    """ "Every weight is lost" was said of runs whose log-probabilities are finite to the end."""
    for name, given, words in (
        ("moves", {}, "the updates are skipped, or only these numbers are lost"),
        ("stands", {"logp_new": "logp_current"}, "the policy stands still"),
        ("last", {}, "Only the last step"),
    ):
        made = steps(STEPS - 1 if name == "last" else 9, grad_norm=np.nan)
        made = [
            step.with_tokens(**{new: step.tokens[old] for new, old in given.items()}) if step.number >= 9 else step
            for step in made
        ]
        (found,) = (each for each in open_folder(write_run(tmp_path / name, made)).findings if each.rule == "diverged")
        assert "while log-probabilities stay finite" in found.sentence and words in found.why


def test_a_judge_that_fails_is_not_a_policy_that_diverged(tmp_path: Path) -> None:
    made = steps()
    for step in made[9:]:
        step.sequences["reward"] = np.full(len(step.sequences["reward"]), np.nan, dtype=np.float32)
    found = open_folder(write_run(tmp_path / "run", made)).findings
    assert [each.rule for each in found] == ["diverged"] and "no longer scored" in found[0].sentence


def test_a_broken_log_is_worse_than_a_bad_end(tmp_path: Path) -> None:
    """The list began with the warning, so that the run was listed, filtered and counted as one."""
    rng = np.random.default_rng(0)
    made = [random_step(rng, number) for number in range(STEPS)]
    folder = write_run(
        tmp_path / "run", [step.with_tokens(logp_behavior=step.tokens["logp_behavior"] * 0) for step in made]
    )
    manifest = Manifest.read(folder)
    manifest.status = "failed"
    manifest.write(folder)
    findings = open_folder(folder).findings
    assert [finding.rule for finding in findings] == ["log_broken", "ended_badly"]
