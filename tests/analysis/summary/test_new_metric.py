"""A new mean: an entry in the catalogue and a line in the oracle, nothing else, and every reader has it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.summary.sums import optional_columns
from tests.making.runs import random_step, write_run
from tests.oracles import brute_force

ENTRY = """    Metric(
        key="abs_log_ratio_new",
        title="Mean absolute log-ratio of the new policy",
        symbol=r"\\overline{|\\ell_{k+1}|}",
        formula=r"\\mathrm{mean}\\,|\\log\\rho_{k+1}|",
        definition="Mean size of the new policy's log-ratio.",
        source="usual",
        reading="Near 0 the new policy is the sampler's.",
        unit="nats",
        over=NEW,
        mean=Mean(abs(LOG_RHO_NEW)),
    ),
"""
KEY = "abs_log_ratio_new"

READ = """
import json, os, sys
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import compiled
from ratioscope.analysis.summary.strata import stratify
from ratioscope.analysis.summary.summary import summarise, summary_json
from ratioscope.catalogue import explain
from ratioscope.dashboard.components.metric_choice import METRICS
from ratioscope.dashboard.formats import metric_label
from ratioscope.dashboard.components.tile import tooltip
from ratioscope.dashboard.figures.series import over_steps
from ratioscope.dashboard.theme import LIGHT
key, *folders = sys.argv[1:]
run, lean, plain = map(open_run, folders)
summary, strata = summarise(run), stratify(run, "advantage")
slow = [summarise(each).values[key].tolist() for each in (run, plain)]
compiled._FEWEST = compiled._WORTH_LOADING = 0
os.environ["RATIOSCOPE_CACHE"] += "/another"
rows = strata.metric(key)
print(json.dumps({
    "slow": slow,
    "fast": [summarise(each).values[key].tolist() for each in (run, plain)],
    "json": summary_json(run, summary)["steps"],
    "lean": summary_json(lean, summarise(lean))["steps"],
    "strata": {"labels": rows["label"].tolist(), "n": rows["n_tokens"].tolist(), "values": rows["value"].tolist()},
    "explain": explain(key),
    "choice": metric_label(key) if key in METRICS else "",
    "tooltip": tooltip(key),
    "figure": [list(map(float, trace.y)) for trace in over_steps(summary, [key], LIGHT).data if trace.mode == "lines"],
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    steps = [random_step(rng, step, groups=6, responses=4, spread=0.2) for step in range(2)]
    return write_run(tmp_path_factory.mktemp("run") / "run", steps)


@pytest.fixture(scope="module")
def read(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the package with the entry says of a run, and of one without the column that it needs."""
    place = tmp_path_factory.mktemp("package")
    package = Path(__file__).parents[3] / "ratioscope"
    shutil.copytree(package, place / "ratioscope", ignore=shutil.ignore_patterns("__pycache__"))
    module = place / "ratioscope" / "catalogue" / "total_variation.py"
    head, tail = module.read_text(encoding="utf-8").split("ENTRIES = (\n")
    module.write_text(f"{head}ENTRIES = (\n{ENTRY}{tail}", encoding="utf-8")
    rng = np.random.default_rng(3)
    lean = write_run(place / "lean", [random_step(rng).with_tokens(logp_new=None)])
    steps = [random_step(rng, step, groups=6, responses=4, spread=0.2) for step in range(2)]
    plain = write_run(place / "plain", [step.with_tokens(**dict.fromkeys(optional_columns())) for step in steps])
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, KEY, str(folder), str(lean), str(plain)],
        env=os.environ | {"PYTHONPATH": str(place), "RATIOSCOPE_CACHE": str(place / "cache")},
        cwd=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_value_and_interval_are_the_oracles(
    folder: Path, read: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    means = brute_force._token_means
    monkeypatch.setattr(
        brute_force,
        "_token_means",
        lambda rows: means(rows) | {KEY: (rows, lambda r: abs(brute_force._log_rho_new(r)))},
    )
    for number, step in enumerate(read["json"]):
        rows, term = brute_force._token_means(
            [r for r in brute_force.rows_of(folder, "tokens") if r["step"] == number]
        )[KEY]
        assert step[KEY] == pytest.approx(np.mean([term(row) for row in rows]), rel=1e-9)
        assert step["intervals"][KEY] == pytest.approx(brute_force.mean_interval(folder, number, KEY), rel=1e-8)


def test_the_compiled_scan_has_it_too_with_and_without_columns_that_few_logs_have(read: dict[str, Any]) -> None:
    for slow, fast in zip(read["slow"], read["fast"], strict=True):
        assert len(fast) == 2 and min(fast) > 0 and fast == pytest.approx(slow, rel=1e-12)


def test_without_its_column_it_is_missing_for_the_reason_that_others_have(read: dict[str, Any]) -> None:
    (step,) = read["lean"]
    assert step[KEY] is None and KEY not in step["intervals"]
    assert step["notes"][KEY] == step["notes"]["u_k"] == "logp_new is not logged"


def test_strata_are_parts_of_the_whole(read: dict[str, Any]) -> None:
    *parts, whole = zip(read["strata"]["n"], read["strata"]["values"], strict=True)
    assert read["strata"]["labels"][-1] == "all" and len(parts) > 1
    assert sum(n * value for n, value in parts) / whole[0] == pytest.approx(whole[1], rel=1e-9)


def test_it_is_explained_chosen_and_drawn(read: dict[str, Any]) -> None:
    title = "Mean absolute log-ratio of the new policy"
    assert f"{title} ({KEY})" in read["explain"] and "nats" in read["explain"]
    assert read["choice"] == f"{title} (|ℓ_k+1|)" and "Near 0 the new policy" in read["tooltip"]
    assert [step[KEY] for step in read["json"]] == pytest.approx(read["figure"][-1], rel=1e-6)
