"""Which framework is meant, and which of its numbers: names as people, manifests and trackers write them."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.definition import TheirNumber
from ratioscope.errors import unknown
from ratioscope.run_format.manifest import Manifest

# Trackers put these before what a trainer logs: train/clip_ratio/high_mean, ppo_actor/update/approx_kl/avg.
_PREFIXES = ("train/", "eval/", "ppo_actor/update/", "ppo_actor/", "actor/update/")


@dataclass(frozen=True)
class Named:
    """What a framework has by a name: a number, or the reason why no log of tokens can give it."""

    framework: str
    """Key of `DIALECTS`."""
    name: str
    row: TheirNumber | None
    reason: str = ""


def framework_key(name: str) -> str:
    """The key of `DIALECTS`: NeMo-RL -> nemo_rl.

    Raises:
        RatioscopeError: there is none like it.
    """
    key = _plain(name)
    if key not in DIALECTS:
        raise unknown("a framework whose numbers are known", name, DIALECTS)
    return key


def written_by(manifest: Manifest) -> str:
    """The framework that a manifest names as the producer or, alone, among the libraries; "" where it does not."""
    words = {_plain(word) for word in str(manifest.producer.get("name", "")).split()}
    named = [key for key in DIALECTS if key in words] or [
        key for key in DIALECTS if key in {_plain(library) for library in manifest.libraries}
    ]
    return named[0] if len(named) == 1 else ""


def numbers_named(name: str) -> list[Named]:
    """What the frameworks report by this name, with or without the prefix of a tracker; [] for none."""
    found = list(_named(name))
    for prefix in _PREFIXES:
        found = found or list(_named(name.removeprefix(prefix)))
    return found


def numbers_near(key: str) -> list[Named]:
    """The frameworks' numbers that a metric of the catalogue is closest to."""
    return [
        Named(framework, row.name, row)
        for framework, dialect in DIALECTS.items()
        for row in dialect.rows
        if row.nearest == key
    ]


def _named(name: str) -> Iterator[Named]:
    for framework, dialect in DIALECTS.items():
        for row in dialect.rows:
            if name in (row.name, row.name.rpartition("/")[2]):
                yield Named(framework, row.name, row)
        if name not in {row.name for row in dialect.rows} and (row_of := dialect.row(name)) is not None:
            yield Named(framework, name, row_of)
        for names, reason in dialect.not_reproducible.items():
            if any(fnmatchcase(name, one) for one in names.split(", ")):
                yield Named(framework, names, None, reason)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")
