"""What the files of the last `make test` took, the longest first: `make test-times`.

Every run leaves its record, a JUnit file, in test-artifacts/; the time of what tests share is in that of the first one.
"""

import os
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "test-artifacts" / "times.xml"


def by_file() -> dict[str, dict[str, float]]:
    """Seconds by file (as a module, `tests.floor.test_gates`) and test; empty before the first run."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    if RECORD.exists():
        for case in ElementTree.parse(RECORD).iter("testcase"):
            found[case.get("classname") or case.attrib["name"]][case.attrib["name"]] += float(case.attrib["time"])
    return found


def main() -> int:
    files = by_file()
    if not files:
        print("No test run is on record: make test", file=sys.stderr)
        return 1
    print("seconds  tests  file                                                  its longest test")
    for name, tests in sorted(files.items(), key=lambda file: -sum(file[1].values())):
        longest = max(tests, key=tests.__getitem__)
        shown = longest if len(longest) <= 60 else f"{longest[:59]}…"
        print(f"{sum(tests.values()):7.1f}  {len(tests):5}  {name:52}  {tests[longest]:.1f} {shown}")
    everything = [seconds for tests in files.values() for seconds in tests.values()]
    print(f"{sum(everything):7.1f}  {len(everything):5}  all, of {len(files)} files")
    return 0


if __name__ == "__main__":
    try:
        ended = main()
        sys.stdout.flush()
    except BrokenPipeError:  # of `| head`, which has read what it wanted; Python writes what is left when it ends
        ended = 0
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(ended)
