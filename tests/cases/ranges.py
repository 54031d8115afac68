"""What marks come to on logs without a fault, below the limits: `python -m tests.cases.ranges OUT`.

`ranges.json` keeps, of each mark, its limit, on how many healthy logs and on how many sick but true ones it could be
read, and the largest value on either. A fall has marks only where something fell, as in some of the sick ones, whose
causes these are.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ratioscope.analysis.diagnosis.evidence import RunEvidence
from ratioscope.analysis.findings.mark import MARKS
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.runs.database import one_thread
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from tests.cases.score import kind_of, logs, made

RECORDED = Path(__file__).with_name("ranges.json")
KINDS = ("healthy", "sick but true")


def values(name: str, folder: Path) -> dict[str, float]:
    """The marks of one log that could be read."""
    with one_thread(), relations(run := open_run(made(name, folder))) as connection:
        of_log, of_run = LogEvidence(run, connection), RunEvidence(summarise(run), run)
        seen = {
            mark.name: mark(of_log if ".linter." in mark.function.__module__ else of_run) for mark in MARKS.values()
        }
    return {name: each.reading.value for name, each in seen.items() if each.known}


def _rounded(value: float) -> float:
    """Four digits, and the largest number there is for infinity, which JSON lacks."""
    return float(f"{min(value, sys.float_info.max):.4g}")


def ranges(folder: Path) -> dict[str, dict[str, Any]]:
    """Of each mark its limit, and its largest value on logs of either kind."""
    kinds = {name: kind_of(case) for name, (case, _) in logs().items()}
    names = [name for name, kind in kinds.items() if kind in KINDS]
    with ProcessPoolExecutor(2) as pool:
        read = dict(zip(names, pool.map(values, names, [folder] * len(names)), strict=True))
    found: dict[str, dict[str, Any]] = {}
    for mark in MARKS.values():
        found[mark.name] = {"limit": mark.limit}
        for kind in KINDS:
            of = [read[name][mark.name] for name in names if kinds[name] == kind and mark.name in read[name]]
            found[mark.name][kind] = {"logs": len(of), "largest": _rounded(max(of)) if of else None}
    return found


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in ranges(Path(sys.argv[1])).items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print("\n".join(lines))
