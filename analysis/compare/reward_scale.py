"""Whether two runs were given the same reward: rewards of different definitions cannot be ranked.

A log does not state its reward. What it shows is the names of the reward's parts, and where answers are simply right or
wrong the few values that occur: 0 and 1 are not -1 and 1.
"""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from weakref import ref

from ratioscope.analysis.findings.numbers import number
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.run_format.schema import SEQUENCES

# A reward with more values than these is taken for a continuous one, of which the values say nothing.
_MOST_VALUES = 6


@dataclass(frozen=True)
class RewardScale:
    """What a log shows of its reward."""

    parts: frozenset[str]
    """The names of its parts; empty where none is logged."""
    values: frozenset[float]
    """The values that occur; empty where they are many."""
    lowest: float = -inf
    highest: float = inf
    """Of the values that occur; infinite where none does."""

    def fits(self, other: "RewardScale") -> bool:
        """Whether nothing shows that the rewards are different ones."""
        same_parts = not (self.parts and other.parts) or self.parts == other.parts
        return same_parts and (
            not (self.values and other.values) or self.values <= other.values or other.values <= self.values
        )

    @property
    def words(self) -> str:
        """The parts or the values."""
        if self.parts:
            return f"reward of {', '.join(sorted(self.parts))}"
        return f"reward in {{{', '.join(map(number, sorted(self.values)))}}}"


def reward_scale(run: Run) -> RewardScale:
    """The parts and values of a run's reward.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    files = run.files.get(SEQUENCES.name, ())
    if not files:
        return RewardScale(frozenset(), frozenset())
    digest = hashlib.sha256("\n".join(file.identity for file in files).encode(errors="surrogatepass"))
    return _scale(_Files(ref(run), digest.hexdigest()))


@dataclass(frozen=True)
class _Files:
    """A run by its files, which are all that is looked at."""

    run: ref[Run] = field(compare=False)
    """Weak: of a run that is written what is remembered would keep all states in memory."""
    digest: str


_SCALE = f"""
select distinct reward from sequence where isfinite(reward) limit {_MOST_VALUES + 1}
"""
_ENDS = "select min(reward), max(reward) from sequence where isfinite(reward)"


@lru_cache(maxsize=256)
def _scale(files: _Files) -> RewardScale:
    run = files.run()
    assert run is not None  # the caller has it
    with relations(run, tables=(SEQUENCES,)) as connection:
        names = connection.execute("select * from sequence limit 0").df().columns
        values = connection.execute(_SCALE).df()["reward"].tolist()
        ends = connection.execute(_ENDS).fetchone() if values else None
    parts = frozenset(name.removeprefix("reward_") for name in names if name.startswith("reward_"))
    few = frozenset(values) if len(values) <= _MOST_VALUES else frozenset()
    return RewardScale(parts, few, *(ends or ()))
