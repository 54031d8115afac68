"""What a report holds, whatever the run: every page, every definition, where it is from; and the same each time."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ratioscope import Manifest, RatioscopeError, __version__
from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.findings.course import learning
from ratioscope.analysis.findings.finding import Severity
from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.translation import translate
from ratioscope.analysis.overview.lights import NAMES
from ratioscope.analysis.overview.verdict import QUESTIONS
from ratioscope.catalogue import ENTRIES
from ratioscope.dashboard import notebook
from ratioscope.dashboard.cli import app
from ratioscope.dashboard.formats import plain_number
from ratioscope.dashboard.report.build import default_pages, full_pages, run_report
from ratioscope.dashboard.report.html import html
from ratioscope.dashboard.report.json_report import SCHEMA, json_text
from ratioscope.dashboard.report.markdown import markdown
from ratioscope.dashboard.sections import ON_REQUEST, SECTIONS, SHORT, setting
from ratioscope.dashboard.sections.model import FindingBlock, Paragraph, Quantity, Report, Table
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.sources import titled
from tests.dashboard.report.conftest import SAMPLES
from tests.dashboard.report.reading import Page, read
from tests.making.runs import random_step, write_run

UNLOGGED = ("logp_new", "clip_side", "clipped", "gate", "entropy", "logp_behavior_train")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that lack something, or hold something impossible."""
    folder, rng = tmp_path_factory.mktemp("strange"), np.random.default_rng(1)
    steps = [random_step(rng, number) for number in range(4)]
    lean = [step.with_tokens(**dict.fromkeys(UNLOGGED)) for step in steps]
    broken = [step.with_tokens(logp_current=np.full(len(step.tokens["seq_id"]), np.nan)) for step in steps]
    return {
        "one step": write_run(folder / "one", steps[:1]),
        "only what must be": write_run(folder / "lean", lean),
        "no usable token": write_run(folder / "broken", broken),
    }


@pytest.mark.parametrize("kind", ["one step", "only what must be", "no usable token"])
def test_every_page_is_written_whatever_is_logged(strange: dict[str, Path], kind: str) -> None:
    report = run_report(open_folder(strange[kind]), pages=list(SECTIONS))
    assert [section.key for section in report.sections] == list(SECTIONS)
    assert all(section.answer for section in report.sections)
    asked = [question for question, _ in report.verdict]
    assert asked == [*NAMES, *(question for question in QUESTIONS if question in asked)] and asked[3] == QUESTIONS[0]
    assert not re.search(r"\b(nan|None|inf)\b", read(html(report)).text.split("Provenance")[0])
    jsonschema.validate(json.loads(json_text(report)), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_short_form_answers_first_and_folds_what_is_looked_up(opened: Opened, report: Report) -> None:
    brief = run_report(opened)
    assert [section.key for section in brief.sections] == ["findings"]  # which have the figures
    shown = [(light.name, light.words) for light in report.lights]
    assert list(brief.verdict[:3]) == shown and [name for name, _ in shown] == list(NAMES)
    assert brief.verdict == report.verdict
    assert dict(brief.provenance)["Command"] == f"ratioscope report {opened.run.folder}"
    assert (brief.brief, report.brief) == (True, False)
    assert read(html(brief)).text.count("Definitions of the") == 1
    definitions = [f"**{metric.title}** $" for metric in report.methods]
    assert all(found in markdown(report, "files") for found in definitions)
    assert not any(found in markdown(brief, "files") for found in definitions)
    cautions = [caution.text for caution in setting.cautions(Subject(opened))]
    assert list(brief.remarks) == cautions and not report.remarks  # which has the section that says them
    grave = [found for found in opened.findings if found.severity > Severity.NOTICE]
    (table,) = [block for block in brief.sections[0].blocks if isinstance(block, Table)]
    assert [block.finding for block in brief.sections[0].blocks if isinstance(block, FindingBlock)] == grave
    assert [row[0] for row in table.rows] == [found.sentence for found in opened.findings[len(grave) :]]


def test_the_short_form_of_a_run_that_rises_shows_how_it_went() -> None:
    healthy = open_folder(SAMPLES / "sync_interval20-grpo-seed0")
    brief = run_report(healthy)
    assert brief.verdict[0][1].startswith("Rising. ")
    assert [section.key for section in brief.sections] == list(SHORT)
    assert len(list(brief.charts)) == 2


def test_what_the_verdict_says_of_a_finding_is_not_repeated_by_it() -> None:
    report = run_report(open_folder(SAMPLES / "offline-reinforce-seed0"))
    assert report.subtitle == (
        "reinforce; offline; learning rate 0.0001; llama of 225 k parameters; task addition; steps 0 to 149"
    )
    blocks = [block for section in report.sections for block in section.blocks if isinstance(block, FindingBlock)]
    assert {block.finding.rule for block in blocks if block.told} == {"reward_collapse"}
    [told] = [block.finding for block in blocks if block.told]
    for text in (markdown(report, "files"), read(html(report)).text):
        assert text.count("in the verdict above") == text.count(told.why) == text.count(told.do) == 1


def test_nothing_is_said_twice_of_a_run(report: Report) -> None:
    said = [block.text for section in report.sections for block in section.blocks if isinstance(block, Paragraph)]
    assert len(said) == len(set(said))


def test_the_page_of_frameworks_is_there_when_it_is_asked_for_or_the_run_names_one(
    opened: Opened, report: Report, tmp_path: Path
) -> None:
    assert [section.key for section in report.sections] == list(full_pages([opened]))
    assert not {*ON_REQUEST} & {*full_pages([opened])}
    asked = run_report(opened, framework="trl", steps=(2, 5))
    assert asked.sections[-1].key == "frameworks"
    assert dict(asked.provenance)["Command"].endswith("--steps 2:5 --framework trl")
    steps = [random_step(np.random.default_rng(0), number) for number in range(2)]
    of_verl = open_folder(write_run(tmp_path / "of-verl", steps, producer={"name": "verl"}))
    assert "frameworks" in full_pages([of_verl])
    assert "frameworks" not in full_pages([of_verl, opened])
    assert default_pages([opened] * 4, "verl") == ("frameworks",)


def test_the_page_of_frameworks_has_every_number_beside_ours(opened: Opened) -> None:
    """Of all frameworks where none is named."""
    (section,) = run_report(opened, pages=["frameworks"]).sections
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert len(tables) == 2 * len(DIALECTS)
    for (framework, dialect), table, never in zip(DIALECTS.items(), tables[::2], tables[1::2], strict=True):
        found = {line.name: line for line in translate(opened.run, framework).lines}
        assert {row[0] for row in table.rows} == {row.name for row in dialect.rows}
        for name, value, _, ours, _, why in table.rows:
            line = found[str(name)]
            theirs, our_value = line.at(line.step)
            assert value == ("–" if theirs != theirs else plain_number(theirs))
            shown = line.row.ours and line.step is not None
            assert ours == "–" if not shown else isinstance(ours, Quantity) and ours.value == our_value
            assert str(why).endswith(line.row.why)
        assert dict(never.rows) == dict(dialect.not_reproducible)
        assert dialect.settings in table.note


def test_a_run_without_steps_has_nothing_to_report(tmp_path: Path) -> None:
    Manifest(name="empty", status="interrupted").write(tmp_path)
    with pytest.raises(RatioscopeError, match="no step is on disk"):
        run_report(open_folder(tmp_path))


def test_the_json_keeps_to_its_schema(report: Report, pair: Report) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json_text(report)), schema)
    jsonschema.validate(json.loads(json_text(pair)), schema)


def test_every_definition_that_is_used_is_explained(report: Report, page: Page) -> None:
    explained = {metric.key for metric in report.methods}
    shown = {key for _, key, _, _ in page.numbers} | {key for chart in report.charts for key in chart.metrics}
    assert shown & ENTRIES.keys() <= explained
    for metric in report.methods:
        assert metric.definition in page.text
        assert titled(metric.source) in page.text
    formulas = [tag for tag, _ in page.elements if tag == "math"]
    assert len(formulas) == 2 * len(report.methods)


def test_provenance_says_how_the_report_came_about(report: Report, opened: Opened, page: Page) -> None:
    provenance = dict(report.provenance)
    assert provenance["Command"] == f"ratioscope report {opened.run.folder} --full"
    assert provenance["ratioscope"] == __version__
    assert re.match(r"[0-9a-f]{16} ", provenance["Data signature"])
    assert "12 steps" in provenance["Rows"]
    assert provenance["Excluded"] == "nothing"
    assert all(f"{name} = {value:g}" in page.text for name, value in asdict(opened.limits).items())


def test_what_was_left_out_is_counted(strange: dict[str, Path]) -> None:
    report = run_report(open_folder(strange["no usable token"]), pages=["setting"])
    assert "tokens with NaN" in dict(report.provenance)["Excluded"]


def test_a_range_of_steps_is_what_all_pages_are_about(opened: Opened) -> None:
    report = run_report(opened, steps=(3, 7), pages=["setting", "learning", "drift", "staleness"])
    steps = {cell.step for section in report.sections for block in section.blocks
             for row in getattr(block, "rows", ()) for cell in row if not isinstance(cell, str)}  # fmt: skip
    assert steps <= set(range(3, 8))
    assert report.subtitle == "grpo; steps 3 to 7"
    assert "--steps 3:7" in dict(report.provenance)["Command"]
    assert run_report(opened, steps=(None, 7), pages=["setting"]).subtitle == "grpo; steps 0 to 7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pages": ["drifd"]}, "'drifd' is not a page of the report; did you mean drift"),
        ({"steps": (50, 60)}, "it has the steps 0 to 11"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_sentence(opened: Opened, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RatioscopeError, match=re.escape(message)):
        run_report(opened, **options)


def test_figures_have_both_modes_and_their_numbers_once(page: Page, report: Report) -> None:
    for chart in report.charts:
        figure = page.figures[chart.key]
        assert figure["data"], chart.key
        assert figure["dark"], chart.key
        assert all(path[0] in ("data", "layout") for path, _ in figure["dark"])
        assert not any(path[-1] == "bdata" and path[-2] in ("x", "y") for path, _ in figure["dark"]), chart.key
        assert chart.takeaway, chart.key


def test_a_report_of_several_runs_begins_with_who_is_best_and_a_picture(pair: Report) -> None:
    sentences = [sentence for _, sentence in pair.verdict]
    assert sentences[:2] == ["Best: grpo (85%, 1 seed).", "Worse: reinforce (8.2%), collapsed."]
    assert sentences[2].startswith("Not known: the effect of seeds (one each")
    assert sentences[3] == ("Worse: behind the best (95%, these seeds). Collapsed: lost 25%+ of its best.")
    assert len(sentences) == 4
    assert [section.key for section in pair.sections][:3] == ["standing", "runs", "course"]
    dots = next(pair.charts)
    assert dots.key == "dots" and pair.sections[0].blocks[0] == dots
    assert isinstance(dots.data, pd.DataFrame) and list(dots.data["to the best"]) == ["best", "worse, collapsed"]
    assert [section.group for section in pair.sections if section.group] == [
        name
        for name in ("sync_interval20-grpo-lr0.0003-seed0", "sync_interval20-reinforce-lr0.0003-seed0")
        for _ in range(2)
    ]
    assert len({chart.key for chart in pair.charts}) == len(list(pair.charts))


def test_runs_of_one_name_in_two_folders_stay_apart(tmp_path: Path) -> None:
    """Told by their ids, of which the command line makes sure that no two are the same."""
    rng = np.random.default_rng(2)
    folders = [
        write_run(tmp_path / algorithm / "seed0", [random_step(rng, number) for number in range(3)],
                  algorithm={"name": algorithm}, seed=0)
        for algorithm in ("grpo", "reinforce")
    ]  # fmt: skip
    output = tmp_path / "both.json"
    command = ["report", *map(str, folders), "-o", str(output), "--quiet", "--pages", "findings,learning"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    contents = json.loads(output.read_text(encoding="utf-8"))
    assert {section["run"] for section in contents["sections"]} == {"", *map(str, folders)}
    assert contents["subtitle"] == "2 settings, by evaluation accuracy"


def test_the_command_names_the_thresholds_that_were_chosen(opened: Opened, tmp_path: Path) -> None:
    file = tmp_path / "strict.toml"
    file.write_text("[thresholds]\nepsilon = 0.05\n")
    report = run_report(open_folder(opened.run.folder, thresholds=file), pages=["setting"])
    assert f"--thresholds {file}" in dict(report.provenance)["Command"]
    assert report.thresholds["epsilon"] == 0.05


def test_scores_of_a_reward_model_are_no_shares(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    steps = [replace(random_step(rng, number), scalars={"policy_version": number}) for number in range(8)]
    for step in steps:
        step.sequences["reward"] = (step.sequences["reward"] * 12 - 5 + step.number).astype(np.float32)
    opened = open_folder(write_run(tmp_path / "scored", steps))
    reward = opened.summary.values["reward"]
    ends = f"{reward.iloc[:4].mean():.3g} to {reward.iloc[-4:].mean():.3g}"
    said = learning(opened.summary, opened.limits)
    assert said.endswith(f"Training reward shows no clear trend: {ends} (means of the first and last 4 steps).")
    report = run_report(opened, pages=["learning"])
    (chart,) = [chart for chart in report.charts if "reward" in chart.metrics]
    assert chart.metrics == ("reward",)
    (section,) = report.sections
    cells = [cell for row in section.blocks[0].rows for cell in row]  # type: ignore[union-attr]
    assert not any("%" in cell.text for cell in cells if not isinstance(cell, str) and cell.key == "reward")


def test_a_notebook_has_the_verdict_without_a_report(
    opened: Opened, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook, "run_report", None)
    assert notebook.OpenRun(opened).verdict == "\n".join(map(" ".join, report.verdict))
