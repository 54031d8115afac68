"""Kills and races of recorders: `python -m tests.making.kills KILLS RACES` prints a tally.

A writer is killed at a random moment, again and again in the same run, which is resumed each time: no step that its
reader has seen may be lost or written twice. Two writers start at once: one is accepted. It kills nothing but the
processes that it starts.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from ratioscope.run_format import schema
from ratioscope.run_format.manifest import Manifest

WRITER = """
import sys
from pathlib import Path
from ratioscope import RunRecorder
from tests.making.runs import numbered_step

folder = Path(sys.argv[1])
with RunRecorder(folder, resume=(folder / "run.json").exists(), flush_seconds=0.0, vocabulary=str) as recorder:
    print("open", flush=True)
    for number in range(recorder.last_step + 1, 10**6):
        step = numbered_step(number)
        recorder.record_step(number, tokens=step.tokens, sequences=step.sequences, scalars=step.scalars)
"""
RACER = """
import sys, time
from pathlib import Path
from ratioscope import RunFormatError, RunRecorder

print("ready", flush=True)
for folder in sys.stdin:
    try:
        recorder = RunRecorder(Path(folder.strip()))
    except RunFormatError:
        print("refused", flush=True)
    else:
        print("accepted", flush=True)
        sys.stdin.readline()
        recorder.close()
        continue
    sys.stdin.readline()
"""


def steps_in(folder: Path, table: str) -> list[int]:
    """The steps of every file, in order; a file that is not whole raises."""
    files = (folder / table).glob("*.parquet")
    return sorted(step for file in files for step in pq.read_table(file, columns=["step"])["step"].unique().to_pylist())


def killed(folder: Path, after: float) -> str:
    """What became of a run whose writer was killed so long after it had opened it."""
    before = steps_in(folder, "steps") if folder.exists() else []
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        opened = process.stdout.readline()
        time.sleep(after)
        seen = steps_in(folder, "steps")
        process.kill()
    if not opened:
        return "could not be resumed"
    found = {table: steps_in(folder, table) for table in schema.TABLES}
    steps = found["steps"]
    if steps[: len(seen)] != seen or seen[: len(before)] != before:
        return "lost a step"
    if any(len(set(each)) < len(each) or each[: len(steps)] != steps for each in found.values()):
        return "wrote a step twice, or left one out"
    return "whole" if Manifest.read(folder).live_status() == "interrupted" else "is not known to be dead"


def races(scratch: Path, times: int) -> Counter[str]:
    """How often how many of two writers were accepted."""
    tally: Counter[str] = Counter()
    command = [sys.executable, "-c", RACER]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for process in both:
            assert process.stdout is not None and process.stdout.readline()
        for number in range(times):
            for process in both:
                assert process.stdin is not None
                process.stdin.write(f"{scratch / str(number)}\n")
            for process in both:
                assert process.stdin is not None
                process.stdin.flush()
            said = [process.stdout.readline().strip() for process in both if process.stdout is not None]
            tally[f"{said.count('accepted')} accepted"] += 1
            for process in both:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
    finally:
        for process in both:
            process.kill()
            process.wait()
    return tally


def main() -> None:
    kills, times = int(sys.argv[1]), int(sys.argv[2])
    moments = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"races: {dict(races(Path(scratch) / 'races', times))}", flush=True)
        tally: Counter[str] = Counter()
        for number in range(kills):
            tally[killed(Path(scratch) / f"run{number // 20}", moments.uniform(0.0, 0.1))] += 1
        print(f"kills: {dict(tally)}", flush=True)


if __name__ == "__main__":
    main()
