"""Where the system's Chromium is, for the browser tests and the Makefile.

`python -m tests.find_chromium` prints its path; `--quiet` only sets the exit code (0 found, 1 not);
`--pytest-arguments` prints the arguments that leave the browser tests out on a machine without one.
"""

import sys

from ratioscope.dashboard.report.chromium import find_chromium

__all__ = ["find_chromium"]


def main() -> int:
    path = find_chromium()
    if "--pytest-arguments" in sys.argv:
        if path is None:
            print("No Chromium found: the browser tests are left out (apt install chromium).", file=sys.stderr)
            print("--ignore=tests/browser")
        return 0
    if path is not None and "--quiet" not in sys.argv:
        print(path)
    return 0 if path is not None else 1


if __name__ == "__main__":
    sys.exit(main())
