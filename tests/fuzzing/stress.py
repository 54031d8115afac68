"""Extreme and honest runs: each is summarised, diagnosed, reported, and every page is drawn; time and memory by case.

python -m tests.fuzzing.stress [CASE ...]
"""

import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.dashboard.report.build import run_report
from ratioscope.dashboard.report.write import write
from ratioscope.dashboard.roots import serve_from
from tests.fuzzing.tables import check_values
from tests.making.pages import PAGES, visit
from tests.making.runs import Step, plain_step, random_step, write_run

_SEQUENCES = 1_000_000


def _random(number: int) -> Step:
    return random_step(np.random.default_rng(number), number, groups=6, responses=4, longest=30)


def _nats(number: int) -> Step:
    """Log-ratios of +1,000 and -1,000 nats in turn."""
    far = np.where(np.arange(240) % 2 == 0, -1001.0, -1.0)
    return plain_step(far, -1002.0 - far, -1.0 + 0 * far, number=number, sequence=np.arange(240) // 10)


def _equal(number: int) -> Step:
    same = np.full(240, -1.5)
    return plain_step(same, same, same, number=number, sequence=np.arange(240) // 10)


def _one_token(number: int) -> Step:
    return plain_step([-1.0], [-1.1], [-1.2], number=number)


def _one_group(number: int) -> Step:
    rng = np.random.default_rng(number)
    behavior = -rng.exponential(1.0, 240)
    current = np.minimum(behavior + 0.1 * rng.standard_normal(240), 0.0)
    return plain_step(behavior, current, current, number=number, sequence=np.arange(240) // 10, group=np.zeros(240))


def _many(number: int) -> Step:
    """A million responses of one token."""
    rng = np.random.default_rng(number)
    behavior = -rng.exponential(1.0, _SEQUENCES)
    current = np.minimum(behavior + 0.1 * rng.standard_normal(_SEQUENCES), 0.0)
    ids = np.arange(_SEQUENCES)
    return plain_step(behavior, current, number=number, sequence=ids, group=ids // 8)


def _texts(text: str) -> Callable[[int], Step]:
    def make(number: int) -> Step:
        step = _random(number)
        n = len(step.sequences["seq_id"])
        return replace(step, sequences=step.sequences | {"prompt": [text] * n, "response": [text] * n})

    return make


CASES: dict[str, tuple[Callable[[int], Step], int]] = {
    "1,000 nats": (_nats, 3),
    "all equal": (_equal, 3),
    "one token": (_one_token, 3),
    "one group": (_one_group, 3),
    "one step": (_random, 1),
    "a million sequences": (_many, 1),
    "100,000 characters": (_texts("a word and " * 9_091), 3),
    "right to left": (_texts("שלום عالم \u202e(abc) " * 50), 3),
    "emoji": (_texts("👩‍👩‍👧🏳️‍🌈é̂̂̂ " * 50), 3),
}
"""By name: a step, and how many of them."""


def look(name: str) -> bool:
    """Make the run of a case and look at it in every way, a line each; whether all of them held."""
    make, steps = CASES[name]
    with tempfile.TemporaryDirectory() as place:
        os.environ["RATIOSCOPE_CACHE"] = f"{place}/cache"
        run = Path(place) / "root" / "run"
        held = [_timed(name, "written", lambda: write_run(run, map(make, range(steps)), algorithm={"name": "grpo"}))]
        held.append(_timed(name, "summary", lambda: check_values(summarise(open_run(run)))))
        held.append(_timed(name, "diagnose", lambda: open_folder(run)))
        opened = open_folder(run)
        for kind in (".json", ".html"):
            target = Path(place) / f"report{kind}"
            held.append(_timed(name, f"report {kind}", lambda target=target: write(run_report(opened), target)))
        os.environ["RATIOSCOPE_ROOTS"] = ""
        serve_from([run.parent])
        held += [_timed(name, f"page {page}", lambda page=page: visit(page, run="run")) for page in PAGES]
    return all(held)


def _timed(name: str, what: str, do: Callable[[], object]) -> bool:
    began, failed = time.monotonic(), ""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - any error is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        failed = f"  BROKE {type(error).__name__}: {str(error)[:200]} ({last.filename}:{last.lineno})"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<20} {what:<16} {time.monotonic() - began:7.2f} s  {memory:6.0f} MB at most so far{failed}", flush=True
    )
    return not failed


def main(names: list[str]) -> int:
    """Each case in a process of its own, so that its memory is; the number of those that failed."""
    command = [sys.executable, "-m", "tests.fuzzing.stress", "--one"]
    return sum(subprocess.run([*command, name], check=False).returncode != 0 for name in names or CASES)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        logging.disable()
        sys.exit(not look(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
