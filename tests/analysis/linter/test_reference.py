"""The KL to the reference that is gone at once: the policy that went back is told from another reference."""

from pathlib import Path

import numpy as np
import pytest

from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Array, Log, Policy, Shape, simulate, write


@pytest.mark.parametrize("columns", ["with reference", "without the new policy"])
def test_a_policy_that_went_back_is_no_other_reference(tmp_path: Path, columns: str) -> None:
    """By the update ahead of it, which has the old reference beside it; without logp_new nothing tells them apart."""

    def undone(policy: Policy) -> None:
        policy.weights[9:] -= policy.weights[8]

    def replaced(log: Log, which: str, logits: Array) -> Array:
        of_restart = log.policy.logits(log.policy.weights[8], log.state)
        return np.where((log.tokens["step"] >= 8)[:, None], of_restart, logits) if which == "reference" else logits

    shape = Shape(9012, steps=14, lag=1, drift=0.1)
    back, other = simulate(shape, prepare=undone), simulate(shape, trainer=replaced)
    if columns != "with reference":
        del back.tokens["logp_new"], other.tokens["logp_new"]
    said = [
        asked(open_run(write(log, tmp_path / name, "with reference")), "reference")[0].sentence
        for name, log in (("back", back), ("other", other))
    ]
    if columns != "with reference":
        assert all("or the policy went back to it, in step" in sentence for sentence in said), said
        return
    assert said[0].startswith("The policy went back nearly to the reference in step 9"), said
    assert said[1].startswith("The reference was replaced in step 8"), said
