"""Facts in words, as every room says them: the same cause has the same name everywhere, and the same number."""

from collections.abc import Iterable, Sequence
from math import isfinite

from ratioscope.analysis.findings.facts import LOG_CHI2, Cause, DriftLevel, Facts
from ratioscope.analysis.findings.numbers import capital, percent
from ratioscope.analysis.runs.left_out import LeftOut

_PATH = "the path from the sampler to the new policy"
_RECOMPUTED = "the sampler's own log-probs are not logged: the trainer's stand for them, without the engine's part"
_NOT_RECOMPUTED = "the sampling version is not recomputed in this log, so engine and age cannot be separated"

NO_UPDATE = "no log-prob of the new policy can be used, so the update is unknown"

BEYOND = "beyond what this sample can show"
"""In place of an estimate of a total variation above 1."""


MOST_LISTED = 3
"""Of anything more than these, and one, are counted, not named."""


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """ "a, b and c"; with semicolons nothing comes before the last."""
    if len(items) < 2 or separator != ", ":
        return separator.join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def named_part(kind: str, labels: Sequence[str]) -> str:
    """ "rank 3", "server a and b"; the labels alone where each says the kind itself: "server-2"."""
    said = all(label.lower().startswith(kind.lower()) for label in labels)
    return listed(labels) if said else f"{kind} {listed(labels)}"


def some(items: Iterable[str], separator: str = ", ", most: int = MOST_LISTED) -> str:
    """The first ones, and how many more there are; a single one more takes no more room than its number."""
    items = list(items)
    more = len(items) - most
    return listed([*items[:most], f"{more} more"] if more > 1 else items, separator)


def judged_without(parts: Sequence[LeftOut]) -> str:
    """Which rows the numbers of a run leave out, a sentence that may quote the log; "" for none."""
    if not parts:
        return ""
    share = percent(sum(part.share for part in parts))
    return f"Judged without {share} of the tokens: {listed([part.words for part in parts], '; ')}."


def tv_text(value: float) -> str:
    """A total variation; an estimate above 1 is of a tail too heavy for it and is not quoted."""
    return f"{value:.2g}" if value <= 1 else BEYOND


def at_most(name: str, level: DriftLevel) -> str:
    """The largest value over the steps, against the limit."""
    if not level.n_known:
        return f"{name} unknown"
    largest = tv_text(level.largest)
    if largest == f"{level.limit:.2g}":  # on which side of the limit it is, is to be seen
        largest = f"{level.largest:.3g}"
    within = ", within noise" if level.largest > level.limit and not level.over else ""
    return f"{name} at most {largest} (limit {level.limit:g}{within})"


def over_limit(level: DriftLevel, facts: Facts) -> str:
    """In how many steps the limit is exceeded beyond noise; a chart may show more, so that it is said."""
    return in_steps(len(level.over), facts) + " beyond noise" * (len(level.over) < level.n_above)


def in_steps(n: int, facts: Facts) -> str:
    return f"in {n} of {facts.n_steps} steps"


def largest_part(facts: Facts) -> str:
    """What the path is made of, without a full stop; empty where no step has a usable token."""
    path = facts.path
    if not path.parts:
        return ""
    if not isfinite(path.total):
        return f"A mean ratio is infinite, so the parts of {_PATH} are unknown"
    largest = path.largest
    if largest is None:
        return "Sampler, policy and updated policy are the same" if facts.updates_logged else "Sampler and policy agree"
    words, numbers = largest.cause.words, ""
    if len(path.parts) == 1:
        return f"The only part of {_PATH} that can be measured is {words} ({tv_text(largest.value)})"
    if all(part.value <= 1 for part in path.parts):
        numbers = f" ({tv_text(largest.value)} of {path.total:.2g})"
    verb = "make up" if largest.cause is Cause.ENGINE_OR_AGE else "makes up"
    return f"{capital(words)} {verb} {largest.share:.0%} of {_PATH}{numbers}"


def what_is_missing(facts: Facts) -> list[str]:
    """What the log leaves open about the path, clause by clause."""
    path = facts.path
    if not path.parts:
        return []
    found = []
    if not facts.split:
        found.append(_NOT_RECOMPUTED if facts.engine_in_ratios else _RECOMPUTED)
    if not facts.updates_logged:
        found.append(NO_UPDATE)
    if path.n_steps < facts.staleness.n_known:
        found.append(f"only {path.n_steps} of {facts.n_steps} steps have all these parts")
    return found


def why_not_age(facts: Facts) -> str:
    """Whose staleness it is on data of the current policy; empty where there is age, or nothing to explain."""
    if not facts.fresh or not facts.engine_in_ratios or not facts.staleness.mean > 0:
        return ""
    return "no batch is old (lag 0), so staleness is engine mismatch, or the log is wrong"


def whose_staleness(facts: Facts) -> str:
    """Which cause staleness has, in a sentence; empty where it is unknown."""
    if not facts.path.parts:
        return ""
    if not facts.engine_in_ratios:
        return as_sentence(f"staleness is {Cause.AGE.words}: {_RECOMPUTED}")
    if facts.fresh:
        return as_sentence(why_not_age(facts))
    if facts.path.part(Cause.AGE) and not facts.path.part(Cause.ENGINE):
        return as_sentence(f"staleness is {Cause.AGE.words}: in {facts.n_agreeing} steps on fresh data there is none")
    if not facts.split:
        return as_sentence(f"staleness is {Cause.ENGINE_OR_AGE.words}: {_NOT_RECOMPUTED}")
    larger, smaller = sorted(
        (part for part in facts.path.parts if part.cause is not Cause.UPDATE), key=lambda part: -part.value
    )
    return (
        f"The larger part of staleness is {larger.cause.words}: {tv_text(larger.value)} against "
        f"{tv_text(smaller.value)} of {smaller.cause.words} (means)."
    )


def chi2_key(facts: Facts) -> str:
    """Which of the two numbers of χ² of whole responses is quoted: the larger of their medians over the steps."""
    measured, predicted = (facts.medians[key] for key in LOG_CHI2)
    return LOG_CHI2[not (facts.log_chi2 == measured and not predicted > measured)]


def chi2_source(facts: Facts) -> str:
    """Where that number is from."""
    return dict(zip(LOG_CHI2, ("measured", "as the tokens predict it"), strict=True))[chi2_key(facts)]


# Below so many effective groups intervals hold only as far as the groups are alike (docs/metrics.md, uncertainty).
FEW_GROUPS = 12


def are_few(effective: float) -> bool:
    """Whether so many effective groups, rounded, are below `FEW_GROUPS`: twelve groups of nearly one size are not."""
    return round(effective) < FEW_GROUPS


def few_groups(effective: float) -> str:
    """What to say beside an interval of a step with this `effective_groups`; empty where there are enough."""
    return f"{effective:.2g} effective prompt groups" if isfinite(effective) and are_few(effective) else ""


def as_sentence(clause: str) -> str:
    """A clause as a sentence; empty stays empty."""
    return f"{capital(clause)}." if clause else ""
