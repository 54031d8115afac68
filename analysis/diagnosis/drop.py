"""A fall that has begun, said at once: later values tell whether it stays, and a run can be stopped before."""

from ratioscope.analysis.diagnosis.collapse import causes_in_words, remedy_of
from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.cause import Family, rivals
from ratioscope.analysis.findings.drop import drop_of
from ratioscope.analysis.findings.fall import fall_of
from ratioscope.analysis.findings.finding import Finding, Number, Severity
from ratioscope.analysis.findings.numbers import capital, half_width, level
from ratioscope.catalogue import CATALOGUE


@rule("reward_drop", order=108, page="overview", group=None, outcome=True, cause=False, another_rule=True)
def reward_is_dropping(evidence: RunEvidence) -> Finding | None:
    """The level is below its best by the share that counts as a fall, and no fall that lasts is made out yet."""
    drop = drop_of(evidence.summary, evidence.limits)
    if drop is None or not drop.is_low or fall_of(evidence.summary, evidence.limits) is not None:
        return None
    title, share = CATALOGUE[drop.metric].title, CATALOGUE[drop.metric].share
    words = drop.words
    if evidence.is_live and not drop.lasting:
        sentence = f"Dropping now: {words}."
    else:
        sentence = f"{capital(words)}, {'and still low' if evidence.is_live else 'where the run ends'}."
    noise = f", and each value is {half_width(drop.noise, share=share)}" if drop.noise else ""
    back = f"step {drop.good_step}"
    causes = rivals(Family.FALL, evidence)
    origin = f"{causes_in_words(causes)} " if causes else ""
    do = f"Consider stopping, and go back to {back}." if evidence.is_live else f"Go back to {back}."
    if causes:
        do = f"{do} {remedy_of(evidence, causes[0][0])}"
    return Finding(
        severity=Severity.WARNING,
        sentence=sentence,
        metric=drop.metric,
        steps=drop.steps,
        numbers=(
            Number(f"{title}, best before", drop.best),
            Number(f"{title}, before the drop (step {drop.good_step})", drop.good),
            Number(f"{title}, lowest since (step {drop.lowest_step})", drop.lowest),
            evidence.latest(drop.metric),
        ),
        of_cause=causes[0][0].cause.name if causes else "",
        why=f"{origin}{drop.n_low} of {len(drop.steps)} values since step {drop.steps[0]} are below "
        f"{level(drop.limit, share=share)}, where a fall from {level(drop.best, share=share)} begins{noise}.",
        do=do,
        source="S3 figures 3 and 9; S1 3",
        limit=drop.limit,
    )
