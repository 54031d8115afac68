"""Configurations from TOML presets, with `key=value` overrides on top."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ratioscope.errors import RatioscopeError
from ratioscope.toml_file import read_toml
from ratioscope.trainer.algorithms import own
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from ratioscope.trainer.settings import elsewhere
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.table import PARAMETERS, PRESET_FOLDER, leaves, presets, settings


def load_settings(preset: str, overrides: Iterable[str] = ()) -> TrainConfig:
    """A preset by name or by path, or an algorithm on-policy by its name, with `key=value` overrides.

    A key is a dotted path (`schedule.sync_interval`) or a name that only one section has (`sync_interval`);
    a parameter of the algorithm (`epsilon_low`) is one, too; `algorithm=grpo` means `algorithm.name=grpo`.

    Raises:
        RatioscopeError: no such preset, bad TOML, unknown key, or a value that does not fit.
    """
    overrides = list(overrides)
    path = Path(preset) if preset.endswith(".toml") else PRESET_FOLDER / f"{preset}.toml"
    named = preset in (*ALGORITHMS, *ALIASES) or own.is_own(preset) or elsewhere.algorithm(preset)
    if named and not path.exists():
        path, overrides = PRESET_FOLDER / "on_policy.toml", [f"algorithm={preset}", *overrides]
    close = elsewhere.nearest(preset, [*presets(), *ALGORITHMS])
    there = f"there are: {', '.join(presets())}, and every algorithm by its name"
    values = read_toml(path, missing=f"There is no preset {preset!r}{close}; {there}.")
    # What a preset of ours sets beside the point is not the user's slip; what stands in a file of theirs is.
    return build(values, overrides, [] if path.parent == PRESET_FOLDER else leaves(values))


def build(values: dict[str, Any], overrides: Iterable[str] = (), given: Iterable[str] = ()) -> TrainConfig:
    """A checked configuration from nested values and `key=value` overrides; raises as `load_settings`.

    `given` are the dotted paths of those values that somebody chose: with the overrides, what must have an effect.
    """
    given, overrides = list(given), list(overrides)
    # A part of the user's own may have parameters that nobody else knows.
    open_ended = any(map(own.is_own, (*overrides, str(values.get("algorithm")))))
    for override in overrides:
        key, separator, text = override.partition("=")
        if override.startswith("-"):
            here = elsewhere.setting(key.strip("-"))
            raise RatioscopeError(
                f"There is no option {key!r} (see --help), and settings are written key=value, without dashes{here}."
            )
        if not separator or not key:
            raise RatioscopeError(f"{override!r} is not of the form key=value.")
        given.append(_resolve(key, open_ended=open_ended))
        section, _, leaf = given[-1].rpartition(".")
        place = values
        for part in filter(None, section.split(".")):
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise RatioscopeError(f"{override!r} cannot be set: {part} is {place!r}, not a section.")
        place[leaf] = _parse(text)
    algorithm = values.get("algorithm")
    if isinstance(algorithm, dict):
        if str(algorithm.get("name")) in ALIASES:
            algorithm["name"] = ALIASES[str(algorithm["name"])]
        for key, choice in algorithm.items():
            if isinstance(choice, str) and own.is_own(choice):  # the run may be resumed from another folder
                algorithm[key] = str(Path(choice).expanduser().absolute())
    # They need torch and transformers, which take seconds to import: what was mistyped has been said before.
    from ratioscope.trainer.algorithms.parts import refresh
    from ratioscope.trainer.settings.checks import check_given, check_settings

    refresh()
    try:
        config = TrainConfig.model_validate(values)
    except ValidationError as error:
        raise RatioscopeError(_sentence(error)) from None
    check_settings(config)
    check_given(config, given)
    return config


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"There is no setting {key!r}{elsewhere.setting(key) or elsewhere.nearest(key, settings())}."
    return f"{key}: {first['msg']} (got {first['input']!r:.80})."


def _resolve(key: str, *, open_ended: bool) -> str:
    """The dotted path that a key stands for; what nothing is called may be a parameter of a part from a file."""
    paths = [path for path in settings() if not path.startswith(f"{PARAMETERS}.")]
    parameters = {name for algorithm in ALGORITHMS.values() for name in algorithm.parameters}
    by_name = {row.name: row.path for row in settings().values()}
    if key in by_name:
        return by_name[key]
    if key in paths or key.startswith(("algorithm.parameters.", "task.options.")):
        return key
    if key in parameters:  # of an own algorithm, or called as another setting is, too
        return f"{PARAMETERS}.{key}"
    # Nobody means the warm start who does not say so: its settings have to be spelled out, as has task.seed.
    matches = [path for path in paths if path.rpartition(".")[2] == key and not path.startswith("warm_start.")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RatioscopeError(f"{key!r} is ambiguous: {' or '.join(matches)}.")
    if open_ended and key.isidentifier():
        return f"algorithm.parameters.{key}"
    if here := elsewhere.setting(key):
        raise RatioscopeError(f"There is no setting {key!r}{here}.")
    if f"warm_start.{key}" in paths:
        raise RatioscopeError(f"There is no setting {key!r}; the one of the warm start is warm_start.{key}.")
    leaves = [path.removeprefix(f"{key}.") for path in paths if path.startswith(f"{key}.")]
    if leaves:
        raise RatioscopeError(
            f"There is no setting {key!r}, it is a section of: {', '.join(f'{key}.{leaf}' for leaf in leaves)}."
        )
    known = [*sorted([*paths, *parameters]), *(path.rpartition(".")[2] for path in paths)]
    last = key.rpartition(".")[2]
    likely = elsewhere.nearest(last if last in known else key, known)
    listed = f"; settings are: {', '.join(sorted(paths))}, and those that `ratioscope explain` says of an algorithm"
    raise RatioscopeError(f"There is no setting {key!r}{likely or listed}.")


def _parse(text: str) -> Any:
    """A TOML value where the text is one, a number that TOML spells otherwise (".5"), or the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    try:
        return float(text)
    except ValueError:
        return text
