"""The Linter page: its verdict, its cards, what is not logged, and when it checks again."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope import RunRecorder
from ratioscope.analysis.diagnosis import kept
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.findings.words import judged_without
from ratioscope.analysis.linter import CHECKS, Finding, lint
from ratioscope.analysis.linter.columns import declared_columns, impossible_values, undefined_metrics
from ratioscope.analysis.linter.verdict import log_verdict, ranges
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.sections import overview
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.views import linter as view
from tests.analysis.linter.test_wrong_rows import rank_of_other_tokens
from tests.cases.world import apply_loss, write
from tests.dashboard.conftest import make_steps
from tests.making.pages import charts, sentences, visit
from tests.making.runs import Step, write_run

Look = Callable[..., AppTest]


def tables_of(at: AppTest) -> list[pd.DataFrame]:
    """What grids hold, and what is written as Markdown, as it is read."""
    written = [table.value.map(lambda text: re.sub(r"\\([^\sa-zA-Z0-9])", r"\1", text)) for table in at.table]
    return [*(frame.value for frame in at.dataframe), *written]


def damaged() -> list[Step]:
    """Steps 0, 1, 4, 5 with a NaN, an infinity and a positive log-probability among their tokens."""
    steps = [step for step in make_steps(6) if step.number not in (2, 3)]
    behavior = steps[1].tokens["logp_behavior"].copy()
    behavior[[0, 1, 2]] = [np.nan, -np.inf, 0.5]
    return [steps[0], steps[1].with_tokens(logp_behavior=behavior), *steps[2:]]


def test_the_verdict_and_every_remark_are_on_the_page(gallery: Path, look: Look) -> None:
    remarks = lint(open_run(gallery / "finished"))
    at = look("linter", "finished")
    said = sentences(at)
    assert f"**{log_verdict(remarks)}**" in said
    tables = "\n".join(str(frame.to_dict("records")) for frame in tables_of(at))
    for remark in remarks:
        if not remark.severity:
            assert remark.sentence in tables
        else:
            assert f"**{remark.sentence}**" in said
            assert f"**Do** — {remark.do}" in said
            assert remark.severity.word in said
    assert f"ratioscope check {gallery / 'finished'}" in said
    assert "Steps 0 to 11 were checked." in said


def test_sentences_of_a_table_are_read_whole(gallery: Path, look: Look) -> None:
    """A grid cuts a long cell off, on a phone the whole second column."""
    assert any("Looks for" in table.value for table in look("linter", "finished").table)
    assert not any("Looks for" in frame.value for frame in look("linter", "finished").dataframe)
    causes = overview.causes(Subject(open_folder(gallery / "finished")))
    assert causes and all(table.sentences for table in causes)


def test_faults_are_found_counted_and_shown_with_their_rows(root: Path) -> None:
    write_run(root / "damaged", damaged())
    at = visit("linter", run="damaged")
    said = sentences(at)
    assert "**This log cannot be trusted as it is" in said
    assert "Steps: 2–3" in said  # those that are missing
    counts = next(frame.value for frame in at.dataframe if "Cause" in frame.value)
    found = counts.set_index(["Column", "Cause"])["Values"].astype(int).to_dict()
    assert found == {("logp_behavior", "NaN"): 1, ("logp_behavior", "-∞"): 1, ("logp_behavior", "above 0"): 1}
    examples = [frame.value for frame in at.dataframe if list(frame.value) == ["step", "seq_id", "position"]]
    assert (1, 0) in [tuple(frame.iloc[0][["step", "seq_id"]]) for frame in examples]


@pytest.mark.parametrize("page", ["overview", "linter", "clipping", "staleness"])
def test_every_page_says_which_rows_it_leaves_out(root: Path, page: str) -> None:
    log, _ = rank_of_other_tokens()
    opened = open_folder(write(apply_loss(log), root / "rank", "all"))
    assert opened.run.left_out
    at = visit(page, run="rank")
    assert judged_without(opened.run.left_out) in [text.value for text in at.text]


def test_impossible_values_are_those_of_the_columns(root: Path) -> None:
    rng, steps = np.random.default_rng(0), damaged()
    entropy = steps[0].tokens["entropy"].copy()
    entropy[rng.integers(0, len(entropy), 3)] = np.inf
    steps[0] = steps[0].with_tokens(entropy=entropy)
    found = impossible_values(open_run(write_run(root / "run", steps)))
    rows = sum(len(step.tokens["seq_id"]) for step in steps)
    assert found.set_index(["column", "cause"])["values"][("entropy", "+∞")] == np.isinf(entropy).sum()
    assert found["share"].to_list() == pytest.approx((found["values"] / rows).to_list())
    assert impossible_values(open_run(root / "run"), 4, 5).empty


def test_what_is_not_logged_and_what_it_costs(gallery: Path, look: Look) -> None:
    run = open_run(gallery / "lean")
    logged = declared_columns(run).set_index(["table", "column"])["logged"]
    assert logged["tokens", "logp_new"] == 0
    assert logged["tokens", "logp_behavior"] == 1
    assert np.isnan(logged["probes", "variance"])
    costs = undefined_metrics(summarise(run)).set_index("reason")["metrics"]
    assert "Update drift" in costs["logp_new is not logged"]
    assert costs["entropy is not logged"] == "Entropy"
    shown = tables_of(look("linter", "lean"))
    assert any("Metrics" in frame and "Update drift" in str(frame["Metrics"].to_list()) for frame in shown)


def test_a_noise_floor_that_was_not_measured_is_said(look: Look) -> None:
    assert "The noise floor was not measured" in sentences(look("linter", "finished"))


def test_a_noise_floor_is_drawn_where_it_was_measured(root: Path) -> None:
    steps = [replace(step, scalars=step.scalars | {"noise_floor_dtype": 0.002}) for step in make_steps(3)]
    write_run(root / "measured", steps)
    at = visit("linter", run="measured")
    assert [trace["name"] for trace in charts(at)[0]["data"]][-1] == "noise floor, bfloat16"
    assert "bfloat16, at most 0.002" in sentences(at)


def test_the_whole_of_a_live_run_is_checked_again_on_demand_only(
    live: RunRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "CHECKED_TOKENS_LIVE", 1)
    at = visit("linter", run=live.folder.name)
    assert "Step 4 was checked." in sentences(at)
    at = at.toggle(key="wholelog").set_value(True).run()
    assert "Steps 0 to 4 were checked." in sentences(at)
    step = make_steps(6)[5]
    live.record_step(step.number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
    live.flush()
    at = at.run()
    assert "Steps 0 to 4 were checked." in sentences(at)
    assert "gone from step 4 to 5" in sentences(at)
    at = at.button(key="check-again").click().run()
    assert not at.exception
    assert "Steps 0 to 5 were checked." in sentences(at)


def test_a_run_is_checked_once_for_each_state(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def counted(*arguments: Any) -> list[Finding]:
        calls.append(arguments)
        return lint(*arguments)

    monkeypatch.setattr(view, "lint", counted)
    write_run(root / "run", make_steps(2))
    visit("linter", run="run")
    assert len(calls) == 0  # the run was judged when it was opened
    at = visit("linter", run="run", **{"from": "1", "to": "1"})
    at.run()
    visit("linter", run="run", **{"from": "1", "to": "1"})
    assert len(calls) == 1


def test_a_long_log_is_checked_from_its_end_and_whole_on_demand(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root / "run", make_steps(6))
    tokens = summarise(open_run(root / "run")).values["n_tokens"]
    monkeypatch.setattr(kept, "CHECKED_TOKENS", int(tokens.iloc[-2:].sum()))
    monkeypatch.setattr(kept, "_SMALL", 0)
    at = visit("linter", run="run")
    assert "Steps 4 to 5 were checked." in sentences(at)
    at.toggle(key="wholelog").set_value(True)
    assert "Steps 0 to 5 were checked." in sentences(at.run())


def test_steps_without_tokens_cannot_be_checked(gallery: Path, look: Look) -> None:
    look("linter", "finished")
    at = visit("linter", run="finished", **{"from": "500", "to": "600"})
    assert "Whether this log can be trusted is unknown" in sentences(at)


def test_verdicts_in_words(gallery: Path) -> None:
    remarks = [remark for remark in lint(open_run(gallery / "finished")) if not remark.severity]
    assert log_verdict(remarks).startswith("No check found a problem in this log.")
    assert len({remark.rule for remark in remarks}) <= len(CHECKS)
    assert ranges([3, 1, 2, 9]) == "1–3, 9"
    assert ranges([]) == ""
    assert ranges(range(0, 40, 2)).endswith(" and 8 more")
