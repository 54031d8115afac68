"""Every experiment as it is declared: what is drawn is computed, and what is said is read once."""

import inspect
import math
import re
from functools import cache
from pathlib import Path

import pytest

from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.laboratory.experiment import Experiment, Values
from ratioscope.analysis.laboratory.javascript import NotWritten, written
from ratioscope.analysis.laboratory.tools import capped_exp, normals, show, uniforms
from ratioscope.errors import RatioscopeError
from tests.analysis.laboratory.settings import settings
from tests.making.loops import in_one_loop

_COLOUR = re.compile(r"\\(blue|vermilion|violet|sky|amber|green|purple|grey)\{")


@cache
def computed(key: str) -> list[tuple[dict[str, float], Values]]:
    """The settings at which an experiment is tried, and what it is there; tests do not change it."""
    of = EXPERIMENTS[key]
    return [(at, of.at(**at)) for at in settings(of)]


@in_one_loop("of", EXPERIMENTS)
def test_what_is_drawn_is_computed(of: Experiment) -> None:
    assert list(inspect.signature(of.compute).parameters) == [slider.key for slider in of.sliders]
    assert 2 <= sum(not slider.folded for slider in of.sliders) <= 5
    assert 0 <= of.question.right < len(of.question.answers)
    shown, defined = (
        {number.key for number in of.numbers if not number.undefined or all_of} for all_of in (True, False)
    )
    marks = [mark for picture in of.pictures for mark in picture.marks]
    named = {key for mark in marks for key in (mark.x, mark.y, mark.other, mark.labels)}
    ends = {end for picture in of.pictures for axis in (picture.x, picture.y) for end in (axis.low, axis.high)}
    for at, found in computed(of.key):
        where = f"{of.key} at {at}"
        assert not (shown | named | {end for end in ends if isinstance(end, str)}) - {""} - found.keys(), where
        for key, value in found.items():
            each = value if isinstance(value, list) else [value]
            numbers = [number for number in each if not isinstance(number, str)]
            assert all(math.isfinite(number) or key not in defined for number in numbers), f"{where}: {key}"
        for mark in marks:
            if mark.kind not in ("rule", "map"):
                assert len(found[mark.x]) == len(found[mark.y]), f"{where}: {mark}"


@in_one_loop("of", EXPERIMENTS)
def test_a_screen_is_read_once(of: Experiment) -> None:
    assert len(of.prose.split()) <= 75
    said = [of.prose, of.question.because, *(str(found["says"]) for _, found in computed(of.key))]
    for text in said:
        for sentence in re.split(r"(?<=[.?!]) ", text):
            assert len(sentence.split()) <= 25, sentence
    coloured = set(_COLOUR.findall(of.formula))
    used = {mark.colour for picture in of.pictures for mark in picture.marks} | {number.colour for number in of.numbers}
    assert coloured <= used, "a symbol has the colour of its curve"


def test_docs_name_experiments_that_are_there() -> None:
    docs = Path(__file__).parents[3] / "docs"
    named = re.findall(r"ratioscope lab ([a-z_]+)", "".join(map(Path.read_text, docs.rglob("*.md"))))
    assert set(named) == set(EXPERIMENTS)


def test_a_wrong_number_is_one_sentence() -> None:
    of = EXPERIMENTS["rare_token"]
    with pytest.raises(RatioscopeError, match=r"rare_token has no number 'x'\. It has: e, R"):
        of.at(x=1)
    with pytest.raises(RatioscopeError, match=r"R of rare_token is 1e\+09; it must be from 1\.01 to 10000"):
        of.at(R=1e9)


def test_numbers_are_said_with_three_digits() -> None:
    assert [show(value) for value in (0, 1, -0.5, 1234.5, 999_950, 1e6, 12_345_678, 0.00012, 9.9e-5, -1e-9)] == [
        "0", "1", "−0.5", "1,230", "1e6", "1e6", "1.23e7", "0.00012", "9.9e−5", "−1e−9"
    ]  # fmt: skip
    assert show(math.inf) == "∞"
    assert show(math.nan) == "undefined"
    assert math.isfinite(capped_exp(1e6))


def test_draws_look_random() -> None:
    drawn = uniforms(20_000, 3)
    assert abs(sum(drawn) / len(drawn) - 0.5) < 0.01
    assert min(drawn) > 0
    assert max(drawn) < 1
    assert uniforms(5, 1) != uniforms(5, 2)
    z = normals(20_000, 1)
    assert abs(sum(z)) < 3 * len(z) ** 0.5
    assert abs(sum(value * value for value in z) / len(z) - 1) < 0.05


def test_what_has_no_counterpart_is_refused_by_line() -> None:
    def given_by_name(x: float) -> float:
        return max(x, key=abs)  # type: ignore[call-overload,no-any-return]

    with pytest.raises(NotWritten, match="given_by_name, line 2: no Call"):
        written(given_by_name)
