"""One process's share of a run: summarise the files of some of its steps, into the cache that the environment names.

python -m tests.making.summarise_part RUN OUTPUT STEP ...
"""

import sys
from dataclasses import replace
from pathlib import Path

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise


def main(folder: str, output: str, *steps: str) -> None:
    run, numbers = open_run(folder), set(map(int, steps))
    files = {table: tuple(f for f in found if f.name.first_step in numbers) for table, found in run.files.items()}
    summarise(replace(run, files=files)).values.to_pickle(Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
