"""How far an update moved the policy (S0 5.2)."""

import numpy as np

from ratioscope.analysis.diagnosis.evidence import RunEvidence, step_of, steps_of
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.rule import rule
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import over_limit, tv_text


@rule("update_large", order=170, page="drift", group=Group.UPDATE, words="large update", another_rule=True)
def update_is_large(evidence: RunEvidence) -> Finding | None:
    """U_k above epsilon / 2 (S0 5.2)."""
    level = evidence.facts.update
    limit, excess = level.limit, evidence.over(level)
    if not len(excess):
        return None
    worst = step_of(excess.idxmax())
    size = f"{excess.max() / limit:.1f} × the limit" if excess.max() <= 1 else tv_text(excess.max())
    clipped = evidence.values["clip_fraction"].loc[excess.index].mean()
    why = "Single updates move the policy further than a clip of width ε is meant to allow. "
    if np.isnan(clipped):
        why += "Clip masks are not logged, so what the gate did is unknown."
    elif evidence.setup.stops is False:
        why += "The loss has no gate that stops a token."
    elif clipped == 0:
        why += "No token was clipped in these steps."
    else:
        why += f"The gate removed {percent(clipped)} of the tokens' gradients there: "
        why += "a mask stops gradients, it does not bound steps."
    return Finding(
        severity=Severity.CRITICAL if excess.max() > 2 * limit else Severity.WARNING,
        sentence=f"Update drift is above its limit of {limit:g} {over_limit(level, evidence.facts)}, up to {size} "
        f"in step {worst}.",
        metric="u_k",
        steps=steps_of(excess),
        numbers=(evidence.number("u_k", worst, "worst"), evidence.latest("u_k")),
        why=why,
        do=f"{evidence.setup.smaller_updates}.{evidence.setup.recentre}",
        source="S0 5.2, 5.3",
        limit=limit,
    )
