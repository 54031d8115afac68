"""Is the reference one policy, and the one that training began with, by the KL to it."""

import numpy as np
import pandas as pd

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.linter.alignment import shifted
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.copies import copied_columns
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.own_token import own_token
from ratioscope.analysis.linter.stand_ins import constant_columns
from ratioscope.analysis.linter.units import scale
from ratioscope.analysis.linter.verdict import ranges
from ratioscope.analysis.linter.zeros import zero_filled

_FEWEST_TOKENS = 200
_BEFORE = 3
"""Steps whose median says where the KL was."""
_CLEAR_KL = 1e-3
"""Nats a token: more than number formats make."""
_DROPPED = 0.1
"""Of the KL before: no usual update takes a policy so far back."""
_OF_UPDATE = "Look at what the update of the step before began from: an optimiser's own copy of the weights, say."
_OF_REFERENCE = "If that was not meant, load the reference that training began with where a run is resumed."
_OTHER_MODEL = 0.01
"""Nats a token at the start, where the policy is the model that training began with."""


@check(order=278, needs=(("logp_reference",), ("logp_current",)), page="drift", of_the_run=True)
def reference(evidence: LogEvidence) -> list[Finding]:
    """The KL to the reference begins at 0 and does not return there at once, by a new reference or by an update."""
    if other := evidence.problems(copied_columns, constant_columns, zero_filled, shifted, own_token, scale):
        return not_checked(f"Columns are not what they seem: {', '.join(other)}.")
    of_step = _kl_to_reference(evidence)
    kl = of_step["kl"]
    if not len(kl):
        return not_checked(f"No step has {_FEWEST_TOKENS} tokens with both log-probabilities.")
    before = kl.rolling(_BEFORE, min_periods=1).median().shift()
    low = (before > _CLEAR_KL) & (kl < _DROPPED * before)
    dropped = kl[low & ~low.shift(fill_value=False)]
    numbers = (
        estimated("KL in the first step, nats a token", float(kl.iloc[0])),
        estimated("largest KL, nats a token", float(kl.max())),
    )
    found = []
    # An update of the step before that took the policy there has the old reference beside it.
    new = of_step["new_kl"].shift()[dropped.index]
    went_back = new < _DROPPED * before[dropped.index]
    for which, what, do in (
        (went_back, "The policy went back nearly to the reference", _OF_UPDATE),
        (new.notna() & ~went_back, "The reference was replaced", _OF_REFERENCE),
        (new.isna(), "The reference was replaced, or the policy went back to it,", _OF_REFERENCE),
    ):
        if steps := tuple(map(int, dropped.index[which])):
            earlier, now = (number(float(each[steps[0]]), digits=2) for each in (before, kl))
            found.append(
                Finding(
                    f"{what} in step{'s' * (len(steps) > 1)} {ranges(steps)}: the KL to it falls from {earlier} to "
                    f"{now}.",
                    Severity.NOTICE, do, numbers, steps, ("logp_reference",), source="NeMo-RL #3722; SkyRL #2149",
                )
            )  # fmt: skip
    start = float(kl.iloc[0])
    if start > _OTHER_MODEL and of_step["newest"].iloc[0] == 0:
        found.append(
            Finding(
                "The reference is not the policy that training began with: the KL to it is "
                f"{number(start, digits=2)} nats a token before any update.",
                Severity.NOTICE,
                "If it should be, load it from the checkpoint that training began with, its adapter included.",
                numbers, (int(kl.index[0]),), ("logp_reference",), source="TRL #3194, #3196",
            )
        )  # fmt: skip
    return found or passed(
        "The KL to the reference does not return to 0 at once, and begins there if logged.", *numbers
    )


def _kl_to_reference(evidence: LogEvidence) -> pd.DataFrame:
    """KL of the policy before and behind the update to the reference, by step, in nats a token, and the newest
    sampler's version.

    By the estimate that is never negative (k3), over tokens of any age; steps with too few of them are left out.
    """
    of_step = evidence.frame(
        "select step, count(*) as n, avg(exp(least(apart, 20)) - 1 - apart) as kl, max(behavior_version) as newest, "
        "avg(exp(least(apart_new, 20)) - 1 - apart_new) filter (isfinite(apart_new)) as new_kl "
        "from (select step, behavior_version, logp_reference::double - logp_current::double as apart, "
        "logp_reference::double - logp_new::double as apart_new from token) "
        "where isfinite(apart) group by step order by step"
    ).set_index("step")
    return of_step[(of_step["n"] >= _FEWEST_TOKENS) & np.isfinite(of_step["kl"])]
