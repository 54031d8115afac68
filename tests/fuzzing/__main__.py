"""Fuzz for a number of minutes, and print by target how many kinds there were and what broke; exit code 1 if any did.

python -m tests.fuzzing [MINUTES] [TARGET ...]
"""

import logging
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzzing.corpus import KEPT
from tests.fuzzing.holding import answered
from tests.fuzzing.targets import TARGETS

_ROUND = 25  # examples of a target, before it is the next one's turn
_quiet = settings(
    max_examples=_ROUND, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)


class Tally:
    """Of one target."""

    def __init__(self, name: str) -> None:
        self.name, self.kinds, self.outcomes = name, set[str](), Counter[str]()
        self.broke: dict[str, object] = {}
        self.slowest = 0.0

    def ask(self, example: object) -> None:
        target = TARGETS[self.name]
        self.kinds.add(target.kind(example))
        began = time.monotonic()
        try:
            self.outcomes["sentence" if answered(target, example) else "numbers"] += 1
        except Exception as error:  # noqa: BLE001 - any error is what is looked for
            self.outcomes["broke"] += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__}: {str(error)[:160]!r} ({Path(last.filename).name}:{last.lineno})"
            if where not in self.broke:
                self.broke[where] = example
                print(f"{self.name}: {where}\n    {example!r:.400}", flush=True)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def line(self) -> str:
        said = self.outcomes
        return (
            f"{self.name:<12} {len(self.kinds):>6} {said.total():>9} {said['numbers']:>8} {said['sentence']:>9} "
            f"{said['broke']:>6} {self.slowest:>8.1f} s"
        )


def main(minutes: float, names: list[str]) -> int:
    """Round after round of every target, until the time is over."""
    tallies = {name: Tally(name) for name in names or TARGETS}
    for name, examples in KEPT.items():
        for example in examples if name in tallies else ():
            tallies[name].ask(example)
    end, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        number += 1
        for tally in tallies.values():
            if time.monotonic() < end:
                seed(time.time_ns())(_quiet(given(TARGETS[tally.name].examples)(tally.ask)))()
    print("target        kinds  examples  numbers  sentence  broke   slowest")
    print("\n".join(tally.line() for tally in tallies.values()))
    kinds, broke = (sum(len(getattr(each, what)) for each in tallies.values()) for what in ("kinds", "broke"))
    print(f"{kinds} kinds of strange input, {broke} of them broke something.")
    return int(broke > 0)


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore")
    given_minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with tempfile.TemporaryDirectory() as cache:
        os.environ["RATIOSCOPE_CACHE"] = cache
        sys.exit(main(given_minutes, sys.argv[2:]))
