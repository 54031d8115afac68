"""The worked example whose answers are known in closed form: three actions, one state, three policies.

b = (.5, .3, .2), c = (.4, .4, .2), n = (.3, .45, .25). A log that holds every action as often as b says has sample
means equal to the expectations. Logs are float32: against the same numbers computed from the rounded logs the summary
holds to 1e-9, against the printed ones to 1e-6.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.making.runs import plain_step, write_run

B, C, N = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]), np.array([0.3, 0.45, 0.25])
TIMES = np.array([5, 3, 2])
PRINTED = {
    "s_k": 0.1,
    "s_k_bounded": 0.1,
    "u_k": 0.1,
    "u_k_bounded": 0.1,
    "tv_new_behavior": 0.2,
    "tv_new_behavior_bounded": 0.2,
    "ratio_mean": 1.0,
    "chi2_token": 0.0533333333,
    "chi2_token_raw": 0.0533333333,
    "kl_k1": 0.0252671539,
    "kl_k3": 0.0252671539,
    "kl_reverse": 0.0258154085,
    "ess_token": 1 / (1 + 0.0533333333),
}


def rounded(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """log p as the log file holds it."""
    return np.log(probability).astype(np.float32).astype(float)


def summary_of(tmp_path: Path, current: NDArray[np.float64], new: NDArray[np.float64], length: int) -> dict[str, float]:
    """The example with sequences of independent steps, each as often as the behavior policy draws it; one group."""
    sequences = [
        sequence for sequence in product(range(3), repeat=length) for _ in range(int(np.prod(TIMES[list(sequence)])))
    ]
    actions = np.array(sequences).ravel()
    step = plain_step(
        np.log(B)[actions], np.log(current)[actions], np.log(new)[actions],
        sequence=np.repeat(np.arange(len(sequences)), length), group=np.zeros(len(actions)),
    )  # fmt: skip
    return summarise(open_run(write_run(tmp_path / "run", [step]))).values.loc[0].to_dict()


def test_the_printed_answers_come_out(tmp_path: Path) -> None:
    values = summary_of(tmp_path, C, N, 1)
    assert {key: values[key] for key in PRINTED} == pytest.approx(PRINTED, abs=1e-6)


def test_the_answers_hold_to_nine_digits_for_the_rounded_logs(tmp_path: Path) -> None:
    values = summary_of(tmp_path, C, N, 1)
    b, c, n = rounded(B), rounded(C), rounded(N)
    rho, rho_new = np.exp(c - b), np.exp(n - b)
    mean = TIMES / 10
    expected = {
        "s_k": mean @ abs(rho - 1) / 2,
        "u_k": mean @ abs(rho_new - rho) / 2,
        "tv_new_behavior": mean @ abs(rho_new - 1) / 2,
        "chi2_token": mean @ (rho - 1) ** 2,
        "kl_k1": mean @ (b - c),
        "kl_reverse": mean @ (rho * (c - b) - rho + 1),
    }
    for key, value in expected.items():
        assert values[key] == pytest.approx(value, rel=1e-9), key


def test_the_new_policy_as_the_current_one_has_its_own_printed_answers(tmp_path: Path) -> None:
    values = summary_of(tmp_path, N, N, 1)
    assert values["chi2_token"] == pytest.approx(0.1675, abs=1e-6)
    assert values["kl_k1"] == pytest.approx(0.0891445692, abs=1e-6)
    assert values["u_k"] == 0


def total_variation(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    return float(abs(p - q).sum() / 2)


# The sampler draws the first two of four actions; the update moves probability into them, out of them, or both ways.
TRUNCATED, POLICY = np.array([0.6, 0.4]), np.array([0.4, 0.3, 0.2, 0.1])
INWARDS, OUTWARDS, BOTH = np.array([[0.5, 0.28, 0.15, 0.07], [0.38, 0.26, 0.25, 0.11], [0.45, 0.25, 0.12, 0.18]])


@pytest.mark.parametrize("new", [INWARDS, OUTWARDS, BOTH], ids=["inwards", "outwards", "both"])
def test_a_sampler_that_excludes_actions(tmp_path: Path, new: NDArray[np.float64]) -> None:
    """Bounded distances from the sampler are exact; those between two policies are not known, whatever the form."""
    sampler = np.concatenate([TRUNCATED, [0, 0]])
    actions = np.repeat([0, 1], [6, 4])
    step = plain_step(*(np.log(p)[actions] for p in (TRUNCATED, POLICY, new)), sequence=np.arange(10))
    values = summarise(open_run(write_run(tmp_path / "run", [step]))).values.loc[0]
    for key, policy in (("s_k", POLICY), ("tv_new_behavior", new)):
        assert values[f"{key}_bounded"] == pytest.approx(total_variation(policy, sampler), abs=1e-6)
        missing = policy[2:].sum()
        assert values[key] == pytest.approx(total_variation(policy, sampler) - missing / 2, abs=1e-6)
    lost, gained = (np.maximum(change[:2], 0).sum() for change in (POLICY - new, new - POLICY))
    truth, moved = total_variation(POLICY, new), abs(POLICY[2:].sum() - new[2:].sum())
    assert values["u_k_bounded"] == pytest.approx(lost, abs=1e-6)
    assert values["u_k"] == pytest.approx((lost + gained) / 2, abs=1e-6)
    assert max(lost, gained) <= truth + 1e-12
    if new is not BOTH:  # the excluded actions as one: exact when all of them lose, or all gain
        assert max(lost, gained) == pytest.approx(truth) == values["u_k"] + moved / 2
    # The update as a bounded headline: exact when mass leaves the support, and twice as wrong as U_k when it enters.
    wrong = {key: truth - values[key] for key in ("u_k", "u_k_bounded")}
    if new is OUTWARDS:
        assert wrong["u_k_bounded"] == pytest.approx(0, abs=1e-6) and wrong["u_k"] > 0.01
    if new is INWARDS:
        assert wrong["u_k_bounded"] == pytest.approx(2 * wrong["u_k"], abs=1e-6) and wrong["u_k"] > 0.01
    # The path holds all the same.
    assert values["tv_new_behavior_bounded"] <= values["s_k_bounded"] + values["u_k_bounded"] + 1e-9


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize(("current", "chi2"), [(C, 0.8 / 15), (N, 0.1675)], ids=["c", "n"])
def test_sequence_chi_square_is_the_power_of_the_token_one(
    tmp_path: Path, current: NDArray[np.float64], chi2: float, length: int
) -> None:
    values = summary_of(tmp_path, current, N, length)
    exact = (1 + chi2) ** length - 1
    assert values["chi2_seq"] == pytest.approx(exact, abs=1e-6)
    assert values["log1p_chi2_seq"] == pytest.approx(length * np.log1p(chi2), abs=1e-6)
    assert values["ess_seq"] == pytest.approx(1 / (1 + exact), abs=1e-6)
    assert values["chi2_token"] == pytest.approx(chi2, abs=1e-6)


@pytest.mark.parametrize("length", [2, 3])
def test_sequence_chi_square_holds_to_nine_digits_for_the_rounded_logs(tmp_path: Path, length: int) -> None:
    values = summary_of(tmp_path, C, N, length)
    rho = np.exp(rounded(C) - rounded(B))
    weight, probability = np.ones(1), np.ones(1)
    for _ in range(length):
        weight, probability = np.outer(weight, rho).ravel(), np.outer(probability, TIMES / 10).ravel()
    assert values["chi2_seq"] == pytest.approx(probability @ (weight - 1) ** 2, rel=1e-9)


def test_a_run_without_a_step_has_numbers_of_no_other_kind(tmp_path: Path) -> None:
    """Headlines ask each of them whether it is finite."""
    values = summarise(open_run(write_run(tmp_path / "run", []))).values
    assert not len(values) and set(values.dtypes) == {np.dtype(float)}
