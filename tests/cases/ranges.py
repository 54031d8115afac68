"""What the linter's marks come to on logs without a fault, below the limits: `python -m tests.cases.ranges OUT`.

`ranges.json` keeps, of each mark that is read off a log, its limit, on how many healthy logs and on how many sick but
true ones it could be read, and the largest value on either.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ratioscope.analysis.findings.mark import MARKS, Mark
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from tests.cases.score import kind_of, logs, made

RECORDED = Path(__file__).with_name("ranges.json")


def marks_of_logs() -> list[Mark]:
    """The marks that are read off a log; those of a fall need its summary."""
    return [mark for mark in MARKS.values() if ".linter." in mark.function.__module__]


def values(name: str, folder: Path) -> dict[str, float]:
    """The marks of one log that could be read."""
    with relations(run := open_run(made(name, folder))) as connection:
        evidence = LogEvidence(run, connection)
        seen = {mark.name: mark(evidence) for mark in marks_of_logs()}
    return {name: each.reading.value for name, each in seen.items() if each.known}


def ranges(folder: Path) -> dict[str, dict[str, Any]]:
    """Of each mark its limit, and its largest value on logs of either kind."""
    kinds = {name: kind_of(case) for name, (case, _) in logs().items()}
    names = [name for name, kind in kinds.items() if kind != "faults"]
    with ProcessPoolExecutor(2) as pool:
        read = dict(zip(names, pool.map(values, names, [folder] * len(names)), strict=True))
    found: dict[str, dict[str, Any]] = {}
    for mark in marks_of_logs():
        found[mark.name] = {"limit": mark.limit}
        for kind in ("healthy", "sick but true"):
            of = [read[name][mark.name] for name in names if kinds[name] == kind and mark.name in read[name]]
            found[mark.name][kind] = {"logs": len(of), "largest": round(max(of), 4) if of else None}
    return found


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in ranges(Path(sys.argv[1])).items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print("\n".join(lines))
