"""Is it learning, and what does that cost?"""

from ratioscope.analysis.findings.course import course
from ratioscope.dashboard.figures.series import learning_curves
from ratioscope.dashboard.sections.model import Section
from ratioscope.dashboard.sections.subject import Subject, key_numbers, over_steps


def section(subject: Subject) -> Section:
    """Reward, accuracy, entropy, length."""
    summary = subject.summary
    charts = (
        *((keys[0], name, keys, unit) for name, keys, unit in learning_curves(summary)),
        ("entropy", "Entropy and KL to the initial policy", ["entropy", "kl_to_initial"], "nats"),
        ("length", "Mean length of the responses", ["response_length"], "tokens"),
    )
    blocks = tuple(
        over_steps(subject, keys, key=key, title=title, unit=unit, takeaway=course(summary, *keys))
        for key, title, keys, unit in charts
        if summary.values[keys].notna().any(axis=None)
    )
    numbers = key_numbers(subject, ("reward", "eval_accuracy", "entropy", "kl_to_initial", "response_length",
                                    "zero_advantage_group_fraction", "grad_norm"))  # fmt: skip
    answer = course(summary, "eval_accuracy" if summary.values["eval_accuracy"].notna().any() else "reward")
    return Section("learning", "Learning", "Is it learning, and what does it cost?", answer, (numbers, *blocks))
