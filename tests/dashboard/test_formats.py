"""How numbers are written: three digits, fewer where the interval supports fewer, shares with one decimal."""

import math

import pytest

from ratioscope.analysis.findings.finding import Number
from ratioscope.analysis.findings.words import BEYOND
from ratioscope.dashboard.formats import count, estimate, interval, metric_value, plain_number, quote, share
from ratioscope.notes import Kind, Note

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (0.123456, "0.123"), (1.0, "1"), (12.345, "12.3"), (999.4, "999"), (999.7, "1,000"),
     (12_345.6, "12,300"), (-1_234.5, "-1,230"), (123_456.0, "123,000"), (0.000781, "0.000781"),
     (NAN, "–"), (INF, "∞"), (-INF, "-∞")],
)  # fmt: skip
def test_a_number_has_three_digits(value: float, written: str) -> None:
    assert plain_number(value) == written


@pytest.mark.parametrize(
    ("value", "low", "high", "written"),
    [(0.000781, -0.02, 0.02, "0.001 (-0.020 to 0.020)"), (-0.0001, -0.02, 0.02, "0.000 (-0.020 to 0.020)"),
     (0.345678, 0.3256, 0.3656, "0.346 (0.326 to 0.366)"), (0.345678, 0.1, 0.6, "0.35 (0.10 to 0.60)"),
     (7.81e-4, 7.7e-4, 7.9e-4, "0.000781 (0.000770 to 0.000790)"), (1e-8, -3e-6, 3e-6, "1.0e-08 (-3.0e-06 to 3.0e-06)"),
     (1.0003, 1.0001, 1.0005, "1.0003 (1.0001 to 1.0005)"),
     (100.0, 1.0, 300.0, "100 (1 to 300)"), (12_345.6, 12_000.0, 12_700.0, "12,300 (12,000 to 12,700)"),
     (0.02, NAN, NAN, "0.02"), (2.0, 2.0, 2.0, "2 (2 to 2)")],
)  # fmt: skip
def test_an_estimate_has_no_more_digits_than_its_interval_supports(
    value: float, low: float, high: float, written: str
) -> None:
    assert estimate("kl_k3", value, low, high) == written
    if math.isfinite(low):
        assert f"{plain_number(value, low, high)} ({interval('kl_k3', low, high)})" == written
        assert quote("kl_k3", Number("KL", value, low, high)).endswith(f"(95%: {written.partition('(')[2]}")


def test_shares_have_one_decimal_or_none() -> None:
    assert (share(0.12345), share(-0.0001), share(INF)) == ("12.3%", "0.0%", "∞")
    assert estimate("clip_fraction", 0.1234, 0.10, 0.14) == "12.3% (10.0% to 14.0%)"
    assert estimate("clip_fraction", 0.4321, 0.28, 0.58) == "43% (28% to 58%)"


def test_what_is_missing_or_unreliable_says_so() -> None:
    assert estimate("s_k", NAN) == "–"
    assert estimate("s_k", 0.12345, note=Note(Kind.UNRELIABLE, "the tail is too heavy")) == "0.123 (unreliable)"


def test_counts_have_three_digits_and_a_prefix() -> None:
    assert [count(value) for value in (950, 12_345, 4_560_000)] == ["950", "12.3 k", "4.56 M"]


def test_a_total_variation_above_1_is_never_said() -> None:
    for key in ("s_k", "u_k", "tv_new_behavior", "s_k_version_bounded"):
        assert estimate(key, 1.4, 0.9, 1.9) == "beyond what this sample can show (0.90 to 1.00)"
        assert estimate(key, 1.4, 1.2, 1.9) == "beyond what this sample can show"
        assert metric_value(key, 3e25) == "beyond what this sample can show"
    assert metric_value("chi2_token", 1.4) == "1.4" and metric_value("s_k_exact_z", 1.4) == "1.4"


def test_an_interval_that_is_open_below_takes_no_digits_away() -> None:
    assert estimate("ess_seq", 0.9962, 0.0, 0.9988) == "99.6% (at most 99.9%)"


def test_a_number_of_a_finding_is_written_as_its_own_metric() -> None:
    """Beside a distance, which is never above 1, stand numbers that may be: the length of a response."""
    beside = Number("Response length, median of these steps", 4.0, key="response_length")
    assert quote("s_k_bounded", beside).endswith("steps: 4")
    assert BEYOND in quote("s_k_bounded", Number("worst", 4.0))
