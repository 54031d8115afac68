"""Which runs may share a ranking: accuracies and rewards of different tasks are different quantities."""

from collections.abc import Mapping, Sequence
from typing import Any

from ratioscope.analysis.compare.configuration import flatten_settings
from ratioscope.analysis.compare.grouping import Setting
from ratioscope.analysis.compare.reward_scale import RewardScale, reward_scale

# What may change while the question to the model and its reward stay the same.
_SAME_TASK = frozenset({"evaluation_prompts", "response_length", "seed", "size"})
NOT_STATED = "task not stated"


def is_task_key(key: str) -> bool:
    """Whether a key of a configuration (`task.digits`) says which task it is."""
    section, _, name = key.partition(".")
    return section == "task" and name not in _SAME_TASK


def tasks(settings: Sequence[Setting], metric: str = "") -> list[str]:
    """The task of each setting in words, the same words for the same task; all empty where there is only one.

    A task is what the manifest says of it, but for how many prompts there are, which ones, and how long answers may
    be. A log that does not state its task separates nothing, unless the others have several. Of the reward, runs that
    show different ones (`RewardScale`) have different tasks, too.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    named = _named(settings)
    if metric != "reward":
        return named
    scales: dict[str, list[RewardScale]] = {}
    places = []
    for name, setting in zip(named, settings, strict=True):
        scale, known = reward_scale(setting.members[0].run), scales.setdefault(name, [])
        place = next((place for place, other in enumerate(known) if scale.fits(other)), len(known))
        if place == len(known):
            known.append(scale)
        elif known[place].values < scale.values:
            known[place] = scale
        places.append(place)
    return [
        ", ".join(filter(None, (name, scales[name][place].words * (len(scales[name]) > 1))))
        for name, place in zip(named, places, strict=True)
    ]


def _named(settings: Sequence[Setting]) -> list[str]:
    found = [_identity(setting.members[0].run.manifest.task) for setting in settings]
    stated = list(dict.fromkeys(identity for identity in found if identity))
    if len(stated) < 2:
        return [""] * len(settings)
    words = {identity: _words(identity, stated) for identity in stated}
    return [words.get(identity, NOT_STATED) for identity in found]


_Identity = tuple[tuple[str, str], ...]


def _identity(task: Mapping[str, Any]) -> _Identity:
    return tuple(sorted((key, str(value)) for key, value in flatten_settings(task) if key not in _SAME_TASK))


def _words(identity: _Identity, among: Sequence[_Identity]) -> str:
    """Its name, with what tells it from others of that name."""
    own = dict(identity)
    name = own.pop("name", "task")
    others = [dict(other) for other in among if dict(other).get("name", "task") == name]
    telling = [f"{key} {value}" for key, value in own.items() if any(other.get(key) != value for other in others)]
    return f"{name} ({', '.join(telling)})" if telling else name
