"""Every setting and preset of the trainer with its words, read from where each is declared.

`ratioscope train --help`, `ratioscope explain NAME` and docs/training.md are made of this; nothing here needs torch.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from ratioscope.sources import titled
from ratioscope.trainer.algorithms.parameters import ALGORITHM_PARAMETERS, FOR_ALL
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.settings.config import SettingsGroup, TrainConfig

PRESET_FOLDER = Path(__file__).parent / "presets"
RUN, PARAMETERS = "run", "algorithm.parameters"
"""Sections of the settings that stand in none, and of the numbers of algorithms."""
_ALGORITHMS_OWN = "the algorithm's"
_KINDS = {bool: "true or false", str: "text", int: "whole", float: "number", list: "list", dict: "table"}
# Larger bounds are those of a computer's numbers.
_LARGEST_SHOWN = 2**31


@dataclass(frozen=True)
class TrainerSetting:
    """One setting, as it is given in a TOML file and on the command line."""

    path: str
    """As TOML has it: schedule.sync_interval."""
    default: str
    allowed: str
    words: str

    @property
    def section(self) -> str:
        """Table of the TOML file; `RUN` for none."""
        return self.path.rpartition(".")[0] or RUN

    @cached_property
    def name(self) -> str:
        """What has to be typed: without its section, where no other setting has that name."""
        if self.path == "algorithm.name":
            return "algorithm"
        last = self.path.rpartition(".")[2]
        others = [path for path in settings() if path.rpartition(".")[2] == last and not path.startswith("warm_start.")]
        return last if others == [self.path] else self.path


@cache
def settings() -> dict[str, TrainerSetting]:
    """Every setting by its path, in the order of declaration."""
    rows = []
    for name, field in TrainConfig.model_fields.items():
        group = _group(field)
        inside = {f"{name}.{leaf}": each for leaf, each in group.model_fields.items()} if group else {name: field}
        rows += [_setting(path, each) for path, each in inside.items()]
    rows += [
        TrainerSetting(f"{PARAMETERS}.{name}", _ALGORITHMS_OWN, row.range, titled(row.meaning))
        for name, row in ALGORITHM_PARAMETERS.items()
    ]
    return {row.path: row for row in rows}


@cache
def presets() -> dict[str, str]:
    """What each preset is for, by its name."""
    return {path.stem: str(read["notes"]) for path, read in ((path, _read(path.stem)) for path in _files())}


def sections() -> dict[str, tuple[str, list[TrainerSetting]]]:
    """Settings by section, each with what the section is about."""
    groups = {name: group for name, field in TrainConfig.model_fields.items() if (group := _group(field))}
    about = {name: (group.__doc__ or "").partition("\n\n")[0].replace("`", "") for name, group in groups.items()}
    about = {RUN: "The run as a whole.", **about, PARAMETERS: "Numbers of the algorithm's parts."}
    rows = settings().values()
    return {name: (titled(words), [row for row in rows if row.section == name]) for name, words in about.items()}


def names() -> list[str]:
    """Whatever `explain_name` knows."""
    rows = settings().values()
    return [*dict.fromkeys([*presets(), *(row.name for row in rows), *(row.path for row in rows)])]


def explain_name(name: str) -> str:
    """Presets and settings of that name, as text; "" for none."""
    found = [
        _explained(row) for row in settings().values() if name in (row.name, row.path, row.path.rpartition(".")[2])
    ]
    if name in presets():
        found.insert(0, _preset(name))
    return "\n\n".join(found)


def settings_text() -> str:
    """Every setting, one line each, by section."""
    lines = []
    for section, (about, rows) in sections().items():
        lines += [
            f"{section}: {about}",
            *(f"  {row.name}={row.default}  {row.words} ({row.allowed})" for row in rows),
            "",
        ]
    return "\n".join(lines[:-1])


def presets_text() -> str:
    """Every preset, one line each."""
    width = max(map(len, presets()))
    return "\n".join(f"  {name:<{width}}  {words}" for name, words in presets().items())


def _files() -> list[Path]:
    return sorted(PRESET_FOLDER.glob("*.toml"))


def _read(preset: str) -> dict[str, Any]:
    return tomllib.loads((PRESET_FOLDER / f"{preset}.toml").read_text(encoding="utf-8"))


def leaves(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a TOML file by the paths of settings."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inside = isinstance(value, dict) and name not in settings()
        found |= {f"{name}.{leaf}": each for leaf, each in value.items()} if inside else {name: value}
    return found


def _group(field: FieldInfo) -> type[SettingsGroup] | None:
    """The section that a field is; None for a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, SettingsGroup) else None


def _setting(path: str, field: FieldInfo) -> TrainerSetting:
    default = field.get_default(call_default_factory=True)
    own = default is None and path.startswith("algorithm.")
    return TrainerSetting(
        path, _ALGORITHMS_OWN if own else _toml(default), _allowed(field), titled(field.description or "")
    )


def _toml(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _allowed(field: FieldInfo) -> str:
    """The values that a field takes, in words."""
    kind: Any = next((each for each in get_args(field.annotation) if each is not NoneType), field.annotation)
    if get_origin(field.annotation) is Literal:
        *most, last = get_args(field.annotation)
        return f"{', '.join(most)} or {last}"
    if get_origin(field.annotation) in (list, dict):
        kind = get_origin(field.annotation)
    words = [_KINDS[kind]] if kind is not float else []
    bounds = {
        word: getattr(each, sign)
        for each in field.metadata
        for sign, word in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "to below"))
        if hasattr(each, sign)
    }
    words += [f"{word} {bound:g}" for word, bound in bounds.items() if bound < _LARGEST_SHOWN]
    return " ".join(words)


def _explained(row: TrainerSetting) -> str:
    """A setting as text: words, default, range, which presets and algorithms set it, how it is typed."""
    lines = [f"{row.path} (setting of the trainer)", "", f"  {row.words}", ""]
    last = row.path.rpartition(".")[2]
    facts = {"default": row.default, "allowed": row.allowed}
    if row.section == PARAMETERS:
        takers = [f"{name} ({each.parameters[last]:g})" for name, each in ALGORITHMS.items() if last in each.parameters]
        facts["taken by"] = ("any algorithm; " if last in FOR_ALL else "") + ", ".join(takers)
    set_by = [f"{name} ({_toml(values[row.path])})" for name, values in _set_by_presets().items() if row.path in values]
    facts["presets"] = ", ".join(set_by)
    facts["type"] = f"ratioscope train PRESET {row.name}=VALUE"
    return "\n".join([*lines, *(f"  {label:<9} {text}" for label, text in facts.items() if text)])


@cache
def _set_by_presets() -> dict[str, dict[str, Any]]:
    return {name: leaves(_read(name)) for name in presets()}


def _preset(name: str) -> str:
    """A preset as text: what it is for, and what it sets."""
    values = {path: value for path, value in _set_by_presets()[name].items() if path != "notes"}
    rows = [f"  {path} = {_toml(value)}  {settings()[path].words}" for path, value in values.items()]
    lines = [
        f"{name} (preset of the trainer)",
        "",
        f"  {presets()[name]}",
        "",
        *rows,
        "",
        f"  type      ratioscope train {name}",
    ]
    return "\n".join(lines)
