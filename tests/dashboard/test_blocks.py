"""One content for page and report: a page draws the blocks of its section, and never reads text as Markdown."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.dashboard.sections import SECTIONS
from ratioscope.dashboard.sections.model import Block, Paragraph, Table, cell_text
from ratioscope.dashboard.sections.subject import Subject, attempt, flat
from ratioscope.errors import RatioscopeError
from tests.making.pages import charts, sentences
from tests.making.runs import random_step, write_run
from tests.making.samples import NAMES, SAMPLE_RUNS

Look = Callable[..., AppTest]

PAGES = {name: name for name in ("drift", "ratios", "clipping", "variance", "staleness", "tokens", "linter")}


@pytest.mark.parametrize(("page", "section"), [*PAGES.items(), ("overview", "learning")])
def test_what_a_report_draws_and_says_is_on_the_page(look: Look, gallery: Path, page: str, section: str) -> None:
    content = SECTIONS[section].content(Subject(open_folder(gallery / "finished")))
    at = look(page, "finished")
    drawn = charts(at)
    for chart in content.charts:
        assert json.loads(chart.figure) in drawn, chart.key
    said = sentences(at)
    assert [block.text for block in content.blocks if isinstance(block, Paragraph) and block.text not in said] == []
    if page != "overview":
        assert f"**{content.answer}**" in said


@pytest.mark.parametrize("page", ["drift", "variance", "staleness"])
def test_tables_of_a_report_are_on_the_page(look: Look, gallery: Path, page: str) -> None:
    """But for the numbers that the page has in tiles."""
    content = SECTIONS[page].content(Subject(open_folder(gallery / "finished")))
    shown = [(list(frame.value.columns), frame.value.to_numpy().tolist()) for frame in look(page, "finished").dataframe]
    for block in content.blocks:
        if isinstance(block, Table) and block.title != "In numbers":
            assert (list(block.head), [list(map(cell_text, row)) for row in block.rows]) in shown, block.title


def _script() -> None:
    from ratioscope.dashboard.components.blocks import draw, draw_computed
    from ratioscope.dashboard.sections.model import Paragraph, Table
    from ratioscope.errors import RatioscopeError

    def fails() -> list[Paragraph]:
        raise RatioscopeError("No *such* step.")

    text = "**bold** $x$ <b> [a](http://b)"
    draw(
        Paragraph(text, lead=text), Paragraph(text, small=True), Table(text, ("Name",), ((text,),), text, {"Name": "."})
    )
    draw_computed(fails, height=100)


def test_text_is_never_read_as_markdown() -> None:
    at = AppTest.from_function(_script).run()
    assert not at.exception
    for element in (*at.markdown, *at.caption):
        bare = element.value.replace("\\*", "").replace("\\$", "").replace("\\[", "").replace("\\<", "")
        assert not set("$<[") & set(bare), element.value
    assert [text.value for text in at.text] == ["No *such* step."]
    assert at.dataframe[0].value["Name"].tolist() == ["**bold** $x$ <b> [a](http://b)"]


def test_a_paragraph_names_files_within_the_run() -> None:
    subject = Subject(open_folder(SAMPLE_RUNS / NAMES[0]))
    folder = subject.opened.run.folder

    def fails() -> list[Block]:
        raise RatioscopeError(f"{folder}: no token, see {folder / 'tokens' / 'a.parquet'}.")

    (said,) = attempt(subject, fails)
    assert isinstance(said, Paragraph) and said.text == "No token, see tokens/a.parquet."


def test_a_flat_chart_is_one_line_of_a_report(tmp_path: Path) -> None:
    made = [random_step(np.random.default_rng(number), number, spread=0.01) for number in range(6)]
    steps = [step.with_tokens(clipped=np.zeros(len(step.tokens["seq_id"]), dtype=bool)) for step in made]
    section = SECTIONS["clipping"].section(Subject(open_folder(write_run(tmp_path / "run", steps))))
    told = [block.text for block in section.blocks if isinstance(block, Paragraph)]
    assert [
        text
        for text in told
        if text.startswith("Clip fraction") and " 0.0%; " in text and text.endswith(" in every step.")
    ]
    assert not [chart.key for chart in section.charts if flat(chart)]


@pytest.mark.parametrize(("name", "fixed"), [("offline-grpo-seed0", True), ("sync_offset10-grpo-seed0", False)])
def test_the_reward_of_a_fixed_data_set_is_not_called_learning(name: str, fixed: bool) -> None:
    said = SECTIONS["learning"].content(Subject(open_folder(SAMPLE_RUNS / name))).answer
    assert ("training reward is that of the fixed data set" in said) == fixed
