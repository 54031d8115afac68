"""`python -m tests.benchmarks [NAME ...]`: the named benchmarks, or all that take minutes."""

import sys
from importlib import import_module

# Each is imported when it is run: one brings Streamlit along, another TRL.
BENCHMARKS = (
    "training",
    "pretrained",
    "recording",
    "reading",
    "scanning",
    "diagnosing",
    "sharding",
    "listing",
    "importing",
    "what_if",
    "dashboard",
    "pages",
    "comparing",
    "reporting",
    "laboratory",
)
# An hour, unless told: not one of all.
LONG = ("soak",)


def run(name: str) -> None:
    """Run one of `BENCHMARKS` or `LONG`; it prints its times and ratios."""
    print(name, flush=True)
    import_module(f"tests.benchmarks.{name}").run()


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in (*BENCHMARKS, *LONG)]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}; there are: {', '.join((*BENCHMARKS, *LONG))}.")
    for name in sys.argv[1:] or BENCHMARKS:
        run(name)
