"""A framework's number is not computed from columns that are not logged, whatever its row says that it needs."""

from pathlib import Path

import pytest

from ratioscope.analysis.frameworks import report
from ratioscope.analysis.runs.store import open_run
from tests.making.sources import write_source

ABSENT = {"behavior": "logp_current", "current": "logp_behavior"}


@pytest.mark.parametrize("source", ABSENT)
def test_no_number_is_made_of_a_column_that_is_not_logged(tmp_path: Path, source: str) -> None:
    run = open_run(write_source(tmp_path / source, source))
    found = report(run, "verl").set_index("name")
    for name in ("rollout_corr/kl", "rollout_corr/rollout_is_ratio_fraction_high", "training/rollout_probs_diff_max"):
        assert found.loc[name, "value"].isna().all()
        assert set(found.loc[name, "missing"]) == {ABSENT[source]}
    (known,) = {"rollout_corr/rollout_ppl", "rollout_corr/training_ppl"} & set(found.index[found["value"].notna()])
    assert known == {"behavior": "rollout_corr/rollout_ppl", "current": "rollout_corr/training_ppl"}[source]
