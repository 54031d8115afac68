"""`python -m tests.benchmarks [NAME ...]`: the named benchmarks, or all of them."""

import sys

from tests.benchmarks import comparing, dashboard, listing, pretrained, reading, reporting, scanning, training, what_if

BENCHMARKS = {
    "training": training,
    "pretrained": pretrained,
    "reading": reading,
    "scanning": scanning,
    "listing": listing,
    "what_if": what_if,
    "dashboard": dashboard,
    "comparing": comparing,
    "reporting": reporting,
}

if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}.")
    for name in sys.argv[1:] or BENCHMARKS:
        print(name, flush=True)
        BENCHMARKS[name].run()
