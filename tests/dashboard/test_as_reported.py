"""The pages' door to the frameworks: closed until it is asked for, then the metrics of the page and their series."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.translation import translate
from ratioscope.analysis.runs.store import open_run
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import PAGES
from tests.dashboard.conftest import make_steps
from tests.making.pages import charts, sentences, visit
from tests.making.runs import write_run

REPORTED = {name: page.reported for name, page in PAGES.items() if page.reported}
TITLES = {key: dialect.framework.title for key, dialect in DIALECTS.items()}


@pytest.fixture
def finished(gallery: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """finished("drift", framework="TRL") -> that page on the finished run."""
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([gallery])
    return partial(visit, run="finished")


def _shown(at: AppTest, title: str) -> list[str]:
    """Their names on the page; [] while the door is closed."""
    return next((list(each.value[f"In {title}"]) for each in at.dataframe if f"In {title}" in each.value), [])


@pytest.mark.parametrize("page", REPORTED)
def test_each_page_has_what_is_near_to_its_metrics(finished: Callable[..., AppTest], gallery: Path, page: str) -> None:
    at = finished(page, framework=TITLES["verl"])
    found = translate(open_run(gallery / "finished"), "verl")
    names = [line.name for line in found.lines if line.row.nearest in REPORTED[page]]
    assert sorted(_shown(at, "verl")) == sorted(names) != []
    said = sentences(at)
    assert "As verl reports it, steps 0 to 11" in said and found.dialect.settings in said
    drawn = [figure for figure in charts(at) if any(trace.get("name") in names for trace in figure["data"])]
    assert len(drawn) == 1


def test_every_number_of_every_framework_is_on_a_page() -> None:
    assert REPORTED["overview"] == CATALOGUE.keys()
    elsewhere = set().union(*(keys for page, keys in REPORTED.items() if page != "overview"))
    assert elsewhere <= CATALOGUE.keys()
    assert {"s_k", "u_k", "kl_k3", "ratio_max", "ess_seq", "clip_fraction_high"} <= elsewhere


# That each has its rows in the section is held of all: `test_report.py`. A page of all metrics takes seconds.
@pytest.mark.parametrize("framework", sorted(DIALECTS, key=lambda key: len(DIALECTS[key].rows))[:: len(DIALECTS) - 1])
def test_a_framework_and_steps_of_the_address_are_used(finished: Callable[..., AppTest], framework: str) -> None:
    at = finished("overview", framework=TITLES[framework], **{"from": "2", "to": "5"})
    assert f"As {TITLES[framework]} reports it, steps 2 to 5" in sentences(at)
    assert set(_shown(at, TITLES[framework])) == {row.name for row in DIALECTS[framework].rows}


@pytest.mark.parametrize("query", [{"framework": "<b>x</b>"}, {"framework": "TRL", "from": "900", "to": "901"}])
def test_nonsense_in_the_address_is_survived(finished: Callable[..., AppTest], query: dict[str, str]) -> None:
    finished("drift", **query)


def test_the_framework_that_a_run_names_comes_first(root: Path) -> None:
    write_run(root / "of-trl", make_steps(2), producer={"name": "TRL trainer"})
    at = visit("ratios", run="of-trl")
    at.session_state["as-reported"] = True
    assert _shown(at.run(), "TRL")
