"""Gradient probes: what bias and variance of the gradient estimate cost, in the terms of the SGA lemma (S1 2).

frame = probes(run)                                          # one row a probe
progress(frame.iloc[0], learning_rate=1e-3, smoothness=10)   # A + B - C, for one pair or for whole grids
answer(frame.iloc[0], learning_rate=1e-3, smoothness=10)     # one sentence

The lemma is for the plain step theta + eta g of an L-smooth objective, not for Adam's step: its numbers say how good
the gradient is, not what the run's optimiser made of it.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.intervals import LEVEL
from ratioscope.errors import RatioscopeError
from ratioscope.tails import Array

TERMS = ("gradient_norm_squared", "gradient_dot_bias", "bias_norm_squared", "variance", "cosine", "rescaling")
NOT_ADAM = "The lemma is for θ + ηĝ, not for Adam's step."


def probes(run: Run) -> pd.DataFrame:
    """The run's probes in step order, one row each; empty where it made none.

    Columns: those of the probes table, and for each of TERMS <term>_low and <term>_high, a 95 % interval by t with
    batches - 1 degrees of freedom (NaN: no standard error), and note, why a term or interval is missing. Squared
    norms may be below 0 and the cosine beyond 1: they are debiased, and shown as they are.
    """
    frame = run.read("probes").sort_values(["step", "estimator"], ignore_index=True)
    degrees = frame["batches"].astype(float).sub(1).where(lambda values: values > 0)
    quantile = pd.Series(stdtrit(degrees, (1 + LEVEL) / 2), index=frame.index)
    for term in TERMS:
        value, half = frame[term].astype(float), quantile * frame[f"{term}_se"].astype(float)
        frame[f"{term}_low"], frame[f"{term}_high"] = value - half, value + half
    return frame.assign(note=[_note(row) for _, row in frame.iterrows()])


def _note(row: "pd.Series[float]") -> str:
    missing = [term for term in TERMS if pd.isna(row[term])]
    unsure = [term for term in TERMS if term not in missing and pd.isna(row[f"{term}_high"])]
    notes = []
    if missing:
        notes.append(f"undefined: {', '.join(missing)} (not logged, or a debiased squared norm is not positive)")
    if unsure:
        notes.append(f"no standard error: {', '.join(unsure)} (fewer than three batches, or undefined without one)")
    return "; ".join(notes)


@dataclass(frozen=True)
class StepProgress:
    """The lemma at steps eta and smoothness L, arrays of their common shape; reward units, NaN where undefined.

    Errors are by the delta method with the four estimates as independent: their covariances are not logged. Those of
    the inner product and the norm are in truth negative, so errors of `total` tend to be too large.
    """

    learning_rate: Array
    smoothness: Array
    true_progress: Array
    """A = eta (1 - L eta / 2) |grad J|^2."""
    bias_error: Array
    """B = eta (1 - L eta) <grad J, Bias>."""
    noise_penalty: Array
    """C = L eta^2 / 2 (Var + |Bias|^2)."""
    noise_of_variance: Array
    """The part of C that is variance."""
    total: Array
    """A + B - C: the expected gain is at least that."""
    true_progress_error: Array
    bias_error_error: Array
    noise_penalty_error: Array
    total_error: Array
    """Standard errors."""
    note: str = f"{NOT_ADAM} Errors take the four estimates as independent."


def progress(probe: "pd.Series[float]", learning_rate: ArrayLike, smoothness: ArrayLike) -> StepProgress:
    """The lemma's terms for one row of `probes`.

    Args:
        learning_rate: eta of the plain gradient step, any shape.
        smoothness: L, a shape that broadcasts with it.

    Raises:
        RatioscopeError: a negative learning rate, or a smoothness that is not positive.
    """
    eta, smooth = np.broadcast_arrays(np.asarray(learning_rate, dtype=float), np.asarray(smoothness, dtype=float))
    if (eta < 0).any() or not (smooth > 0).all():
        raise RatioscopeError("The lemma needs a learning rate of at least 0 and a smoothness L above 0.")
    gradient, product, bias, variance = (float(probe[term]) for term in TERMS[:4])
    errors = [float(probe[f"{term}_se"]) for term in TERMS[:4]]
    on_gradient, on_product, on_noise = eta * (1 - smooth * eta / 2), eta * (1 - smooth * eta), smooth * eta**2 / 2
    a, b, c = on_gradient * gradient, on_product * product, on_noise * (variance + bias)
    a_error, b_error = np.abs(on_gradient) * errors[0], np.abs(on_product) * errors[1]
    c_error = on_noise * np.hypot(errors[2], errors[3])
    return StepProgress(
        learning_rate=eta, smoothness=smooth,
        true_progress=a, bias_error=b, noise_penalty=c, noise_of_variance=on_noise * variance, total=a + b - c,
        true_progress_error=a_error, bias_error_error=b_error, noise_penalty_error=c_error,
        total_error=np.sqrt(a_error**2 + b_error**2 + c_error**2),
    )  # fmt: skip


@dataclass(frozen=True)
class BestStep:
    """The learning rate at which the lemma promises most, and what it promises there; 0 and 0 where it never does."""

    learning_rate: float
    progress: float


def best_step(probe: "pd.Series[float]", smoothness: float) -> BestStep:
    """The maximum over eta >= 0 of A + B - C = eta <grad J, E g> - L eta^2 / 2 E|g|^2; NaN where a term is missing.

    Args:
        smoothness: L, positive.
    """
    gradient, product, bias, variance = (float(probe[term]) for term in TERMS[:4])
    slope, second_moment = gradient + product, variance + bias + 2 * product + gradient
    if np.isnan(slope) or np.isnan(second_moment) or (slope > 0 and second_moment <= 0):
        return BestStep(np.nan, np.nan)
    if slope <= 0:
        return BestStep(0.0, 0.0)
    return BestStep(slope / (smoothness * second_moment), slope**2 / (2 * smoothness * second_moment))


def _error_of_bias_minus_variance(probe: "pd.Series[float]", learning_rate: float, smoothness: float) -> float:
    """Standard error of what bias takes minus what variance takes; their estimates as independent."""
    along, noise = learning_rate * (1 - smoothness * learning_rate), smoothness * learning_rate**2 / 2
    return float(
        np.sqrt(
            (along * probe["gradient_dot_bias_se"]) ** 2
            + (noise * probe["bias_norm_squared_se"]) ** 2
            + (noise * probe["variance_se"]) ** 2
        )
    )


def answer(probe: "pd.Series[float]", learning_rate: float, smoothness: float) -> str:
    """Whether bias or variance takes more of the progress that the true gradient would make, in a sentence."""
    found = progress(probe, learning_rate, smoothness)
    ideal, total, error = float(found.true_progress), float(found.total), float(found.total_error)
    if np.isnan(total):
        return f"The probe lacks a term of the lemma, so neither bias nor variance can be assessed. {NOT_ADAM}"
    variance = float(found.noise_of_variance)
    bias = float(found.noise_penalty) - variance - float(found.bias_error)
    apart = 2 * _error_of_bias_minus_variance(probe, learning_rate, smoothness)
    if bias <= 0 and variance <= 0:
        opening = "Neither bias nor variance costs progress"
    elif abs(bias - variance) > apart:
        opening = f"{'Bias' if bias > variance else 'Variance'} dominates"
    else:
        opening = "This probe cannot tell whether bias or variance dominates"
    left = (
        f"{number(total)} is left" if abs(total) > 2 * error else "what is left is not significantly different from 0"
    )
    text = (
        f"{opening}: of a true progress of {number(ideal)} per step, bias {'takes' if bias > 0 else 'adds'} "
        f"{number(abs(bias))} and variance takes {number(variance)}; {left} (standard error {number(error)})."
    )
    if abs(total) <= 2 * error:
        return f"{text} {NOT_ADAM}"
    best = best_step(probe, smoothness).learning_rate
    if best > 0:
        text += f" The bound is largest at a learning rate of {number(best)}."
    elif best == 0:
        text += " The estimate points downhill: no learning rate helps."
    return f"{text} {NOT_ADAM}"
