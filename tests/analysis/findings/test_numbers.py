"""Numbers in sentences: three digits, no more than the interval supports, shares that never lie at their ends."""

from math import inf, nan

import pytest

from ratioscope.analysis.findings.numbers import bracketed, level_change, number, percent, rounded_level


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((0.31234,), "0.312"),
        ((0.5,), "0.5"),
        ((1234.5,), "1,230"),
        ((999.7,), "1,000"),
        ((0.000781,), "0.000781"),
        ((0.000781, -0.02, 0.021), "0.001"),
        ((0.3, 0.1, 0.5), "0.30"),
        ((0.5 + 1e-11, 0.5, 0.5 + 2e-11), "0.5"),  # equal but for rounding
        ((123456.0, 120000.0, 127000.0), "123,000"),
        ((-0.0004, -0.02, 0.02), "0.000"),
        ((0.00001234,), "1.2e-05"),
        ((4.2e7,), "4.2e+07"),
        ((0.0,), "0"),
        ((inf,), "∞"),
        ((nan,), "–"),
    ],
)
def test_numbers_have_the_digits_that_they_deserve(given: tuple[float, ...], text: str) -> None:
    assert number(*given) == text


def test_an_interval_is_written_to_the_digits_that_it_supports_and_keeps_its_side_of_0() -> None:
    assert bracketed(0.31, 0.17234, 0.45) == "0.31 [0.17, 0.45]"
    assert bracketed(0.1, 0.0003, 0.21) == "0.10 [0.0003, 0.21]"
    assert bracketed(1234.0, 1100.0, 1300.0) == "1,230 [1,100, 1,300]"
    assert bracketed(1.0003, 1.0001, 1.0005) == "1.0003 [1.0001, 1.0005]"
    assert bracketed(0.25, nan, nan) == bracketed(0.25, 0.25, 0.25) == "0.25"


def test_a_share_is_never_rounded_to_none_or_all() -> None:
    shares = {0.0: "0%", 1e-6: "<0.1%", 0.001: "0.1%", 0.3333: "33.3%", 0.5: "50%", 0.99999: ">99.9%", 1.0: "100%"}
    assert {share: percent(share) for share in shares} == shares
    assert percent(nan) == "–"


def test_a_level_in_a_headline_has_a_decimal_where_that_tells_it_apart() -> None:
    assert [rounded_level(share, share=True) for share in (0.0, 0.004, 0.01, 0.664)] == ["0%", "0.4%", "1%", "66%"]
    assert rounded_level(0.664, share=False) == "0.664"
    for before, after, said in ((0.8, 0.27, "80 → 27%"), (0.801, 0.804, "80.1 → 80.4%"), (0.664, 0.664, "66 → 66%")):
        assert level_change(before, after, share=True) == said
    assert level_change(0.8, 0.27, share=False) == "0.8 → 0.27"
