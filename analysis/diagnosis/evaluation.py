"""Whether evaluations can be compared one with the next."""

from ratioscope.analysis.diagnosis.evidence import RunEvidence, steps_of
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.evaluation_turns import evaluation_turns
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import half_width, percent


@rule("evaluation_turns", order=256, page="overview", group=None, words="evaluations that take turns", cause=False)
def evaluations_take_turns(evidence: RunEvidence) -> Finding | None:
    """Evaluation accuracy repeats with a period of a few evaluations, beyond its noise, and the reward does not."""
    turns = evaluation_turns(evidence.summary)
    if turns is None:
        return None
    accuracy = evidence.values["eval_accuracy"].dropna()
    noise = f" (each value is {half_width(turns.noise, share=True)})" if turns.noise else ""
    why = (
        "The training reward has no clear period, so what is evaluated takes turns: its prompts, settings or weights."
        if turns.reward_known
        else "The training reward is not logged at these steps: whether the policy swings, too, is unknown."
    )
    return Finding(
        severity=Severity.WARNING,
        sentence=f"Evaluation accuracy swings by {100 * turns.swing:.0f} points with a period of {turns.period} "
        f"evaluations{noise}.",
        metric="eval_accuracy",
        steps=steps_of(accuracy),
        numbers=(Number("swing", turns.swing), evidence.latest("eval_accuracy")),
        why=f"The place in the period explains {percent(turns.explained)} of how evaluations differ from their "
        f"neighbours. {why}",
        do=f"Evaluate on the same prompts each time. Until then compare means of {turns.period} successive "
        "evaluations.",
        source="torchtitan #3602",
    )
