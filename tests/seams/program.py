"""A program: train with what `additions` adds, and ask everybody about it.

python -m tests.seams.program FOLDER, with a changed copy of the package in front of the path; prints JSON.
"""

import json
import os
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import torch
from streamlit.components.v2 import manifest_scanner

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.groups import Group
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.importers.detect import the_source
from ratioscope.analysis.importers.source import ImportProblem, Reading
from ratioscope.analysis.importers.writing import Options, import_run
from ratioscope.analysis.linter import lint
from ratioscope.analysis.overview.sentences import fine
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary import compiled
from ratioscope.analysis.summary.summary import summarise
from ratioscope.analysis.what_if import apply, load_tokens, own_rule, parse
from ratioscope.dashboard import app
from ratioscope.dashboard.report.build import full_pages, run_report
from ratioscope.dashboard.report.json_report import json_text
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import MENU
from ratioscope.trainer.training.loop import Trainer
from tests.making import pages
from tests.making.training import small

OTHER = "seam_filter(max_lag~1.0)*seam_weight"
# Of a whole report, what is asked of it.
REPORTED = ("findings", "seam")


def _said(at: Any) -> str:
    """Sentences of a page, and those in the lines that open."""
    return "\n".join((pages.sentences(at), *(door.label.replace("\\", "") for door in at.expander)))


def trained(folder: Path) -> None:
    """Two updates of the new algorithm."""
    schooling = ("warm_start.max_steps=20", "learning_rate=0.02", "sync_interval=2")
    Trainer(small("algorithm=seam", "updates=2", *schooling), folder).run(lambda progress: None, lambda: False)


def analysed(folder: Path) -> dict[str, Any]:
    """What analysis and report say."""
    run, opened = open_run(folder), open_folder(folder)
    own, tokens = own_rule(run).rule, load_tokens(run)
    assert own is not None
    return {
        "own": str(own),
        "logged": opened.summary.values["clip_fraction"].tolist(),
        "replayed": [numbers.values["clip_fraction"] for numbers in apply(own, tokens).by_step.values()],
        "permitted": apply(own, tokens).values["permitted_drift"],
        "filtered": apply(parse(OTHER), tokens).values["clip_fraction"],
        "metric": opened.summary.values["seam_metric"].tolist(),
        "metric, fast": fast(folder),
        "findings": {finding.rule: finding.sentence for finding in opened.findings},
        "fine": [
            fine(opened.summary, opened.facts(), findings)
            for findings in (opened.findings, [one for one in opened.findings if RULES[one.rule].group != Group.CLIP])
        ],
        "remarks": {remark.rule: remark.sentence for remark in lint(run)},
        "report": json_text(run_report(opened, pages=[page for page in full_pages([opened]) if page in REPORTED])),
    }


def fast(folder: Path) -> list[float]:
    """The new metric where the compiled scan is asked for, whatever the size of the run."""
    compiled._FEWEST = compiled._WORTH_LOADING = 0
    with TemporaryDirectory() as cache:  # what was summed before is not asked
        before, os.environ["RATIOSCOPE_CACHE"] = os.environ.get("RATIOSCOPE_CACHE", ""), cache
        values = summarise(open_run(folder)).values["seam_metric"].tolist()
        os.environ["RATIOSCOPE_CACHE"] = before
    return values


def opened_pages(run: str) -> dict[str, Any]:
    """Every page of the app, each with what a test asks it."""
    opened = {"overview": {"findings": "true"}, "linter": {"checks": "true"}}
    seen = {name: pages.visit(name, run=run, **opened.get(name, {})) for name in MENU}
    clipping, filtered = seen["clipping"], pages.visit("clipping", run=run, rule=OTHER)
    return {
        "menu": {name: page.title for name, page in seen["seam"].session_state["ratioscope"].pages.items()},
        "evidence": RULES["seam_finding"].page,
        "sentences": {name: _said(at) for name, at in seen.items()},
        "checks": "".join(str(table.value.to_csv()) for table in seen["linter"].table).replace("\\", ""),
        "gates": clipping.selectbox(key="whatif-gate").options,
        "weights": clipping.selectbox(key="whatif-weight").options,
        "slider": [clipping.select_slider(key="whatif-floor").label, clipping.select_slider(key="whatif-floor").value],
        "filtered": [filtered.selectbox(key=f"whatif-{part}").value for part in ("gate", "weight")],
        "tile": [seen["seam"].metric[0].label, seen["seam"].metric[0].help],
    }


def imported(folder: Path) -> dict[str, Any]:
    """What is made of another program's files, whole and damaged."""
    folder.mkdir(parents=True)
    turns = [{"logps": [-0.5, -0.25]}, {"logps": [-1.0]}]
    rows = [{"asked": "a", "said": "b", "points": points, "turns": turns} for points in ("3", True, None)]
    for step in (1, 2):
        (folder / f"seam_{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = the_source(folder)
    import_run(found, folder.with_name("imported"), Options())
    sequences = pq.read_table(folder.with_name("imported") / "sequences").to_pylist()
    said = []
    for broken in ('{"said": 1}\n', '{"said"', "null\n", json.dumps(rows[0] | {"turns": [{"logps": "x"}]}) + "\n"):
        (folder / "seam_2.jsonl").write_text(broken)
        try:
            said += [str(step.number) for step in found.read(Reading())]
        except ImportProblem as problem:
            said.append(str(problem).partition("seam_2.jsonl")[2])
    listed = [[row[name] for name in ("step", "reward", "group_id", "n_tokens")] for row in sequences]
    return {"title": found.importer.title, "rows": listed, "problems": said}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # As in tests/dashboard/conftest.py: otherwise every run of a script looks through all installed packages.
    manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)
    trained(folder)
    serve_from([folder.parent])
    theirs = imported(folder.parent.parent / "theirs")
    said = {"package": app.__file__, **analysed(folder), "imported": theirs, "pages": opened_pages(folder.name)}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
