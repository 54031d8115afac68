"""The cases from the command line.

python -m tests.cases OUT [NAME ...]                    # write their logs; names are beginnings
python -m tests.cases score OUT [NAME ...]              # what ratioscope says of each, and whether it is right
python -m tests.cases score OUT --held-out              # of those alone that nothing was tuned with
python -m tests.cases score OUT --record                # and keep it, for docs/cases.md and the test
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.cases import score


def main(arguments: list[str]) -> int:
    """Write or score the cases; 0, or 2 where no case has such a name."""
    scoring = arguments[:1] == ["score"]
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--held-out", action="store_true", help="those alone that nothing was tuned with")
    parser.add_argument("--record", action="store_true", help="keep the verdicts")
    asked = parser.parse_args(arguments[scoring:])
    beginnings = tuple(asked.names) or ("",)
    names = [
        name
        for name, (case, _) in score.logs().items()
        if name.startswith(beginnings) and (score.kind_of(case).startswith("held-out") or not asked.held_out)
    ]
    if not names:
        print(f"No case begins with {' or '.join(beginnings)}.", file=sys.stderr)
        return 2
    if not scoring:
        with ProcessPoolExecutor(2) as pool:
            for run in pool.map(score.made, names, [asked.folder] * len(names)):
                print(run)
        return 0
    found = {}
    for name, each in score.verdicts(names, asked.folder):
        found[name] = each
        text = f"{each.rule} ({each.severity}): {each.sentence}" if each.sentence else "-"
        print(f"{each.verdict:12}{name:44}{text[:150]}", flush=True)
    for kind, counts in score.counted(found).items():
        print(f"{kind}: {score.in_words(counts)}")
    if asked.record:
        score.record(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
