"""Rules: a gate (or filter) and a weight with their parameters, and the string that carries one in a URL.

rule = Rule(gate="two_side", gate_parameters={"epsilon_low": 0.5, "epsilon_high": 4.0}, weight="ratio")
str(rule)                   # two_side(epsilon_low~0.5~epsilon_high~4.0)*ratio
parse(str(rule)) == rule
own_rule(run)               # what the run was trained with
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.rules.filters import FILTERS, FilterRow
from ratioscope.rules.gates import GATES, GateRow
from ratioscope.rules.parameters import Declared, inside_out
from ratioscope.rules.ratios import LEVELS
from ratioscope.rules.weights import WEIGHTS

STOPPING: dict[str, GateRow | FilterRow] = {**GATES} | {name: row for name, row in FILTERS.items() if not row.updates}
"""Everything that can stand in a rule's gate."""


@dataclass(frozen=True)
class Rule:
    """What a loss does with a token's gradient: weight x gate.

    Raises:
        RatioscopeError: an unknown name, a parameter that is missing, unknown or out of its range.
    """

    gate: str = "none"
    gate_parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    weight: str = "ratio"
    weight_parameters: Mapping[str, float] = field(default_factory=dict, hash=False)
    gate_level: str = "token"
    weight_level: str = "token"

    def __post_init__(self) -> None:
        for what, name, known in (
            ("a gate or filter", self.gate, STOPPING),
            ("a weight", self.weight, WEIGHTS),
            ("a level of a gate", self.gate_level, LEVELS),
            ("a level of a weight", self.weight_level, LEVELS),
        ):
            if name not in known:
                raise unknown(what, name, known)
        if self.gate in FILTERS and self.gate_level != "token":
            raise RatioscopeError(f"{self.gate} looks at whole responses by itself; leave its level at 'token'.")
        if WEIGHTS[self.weight].sequences and self.weight_level != "token":
            raise RatioscopeError(f"{self.weight} looks at whole responses by itself; leave its level at 'token'.")
        gate = _checked(STOPPING[self.gate], self.gate_parameters)
        weight = _checked(WEIGHTS[self.weight], self.weight_parameters)
        # In the order of declaration, so that equal rules have equal strings.
        object.__setattr__(self, "gate_parameters", gate)
        object.__setattr__(self, "weight_parameters", weight)

    def __str__(self) -> str:
        gate = _format(self.gate, self.gate_level, self.gate_parameters)
        return f"{gate}*{_format(self.weight, self.weight_level, self.weight_parameters)}"

    @property
    def words(self) -> str:
        """The rule for people: gate one_side (epsilon_low 0.2, epsilon_high 0.2), weight ratio."""
        gate = _in_words(self.gate, self.gate_level, self.gate_parameters)
        return f"gate {gate}, weight {_in_words(self.weight, self.weight_level, self.weight_parameters)}"

    @property
    def parameters(self) -> list[str]:
        """Names of what can be swept; a name that gate and weight share is one number, as in the trainer."""
        return list(dict.fromkeys([*self.gate_parameters, *self.weight_parameters]))

    @property
    def needs_sequences(self) -> bool:
        """Whether it can be judged on whole sequences only."""
        of_sequences = self.gate in FILTERS and FILTERS[self.gate].sequences
        of_sequences = of_sequences or WEIGHTS[self.weight].sequences
        return self.gate_level != "token" or of_sequences or self.shares_weights

    @property
    def shares_weights(self) -> bool:
        """Whether the tokens of a sequence have one weight."""
        return self.weight_level != "token" or WEIGHTS[self.weight].geometric

    def with_parameter(self, name: str, value: float) -> "Rule":
        """The same rule with another value wherever it has this parameter.

        Raises:
            RatioscopeError: it has no such parameter, or the value is out of its range.
        """
        if name not in self.parameters:
            raise _unknown_parameter(str(self), name, self.parameters)
        gate, weight = (
            dict(own) | ({name: value} if name in own else {}) for own in (self.gate_parameters, self.weight_parameters)
        )
        return replace(self, gate_parameters=gate, weight_parameters=weight)


def parse(text: str) -> Rule:
    """The rule of a string that `str(rule)` made.

    Raises:
        RatioscopeError: the text is not a rule.
    """
    parts = [_PART.fullmatch(part) for part in text.split("*")]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        raise RatioscopeError(f"{text!r} is not a rule; write it like two_side(epsilon_low~0.5~epsilon_high~4)*ratio.")
    (gate, gate_level, gate_text), (weight, weight_level, weight_text) = (part.groups() for part in parts if part)
    return Rule(
        gate, _numbers(text, gate_text), weight, _numbers(text, weight_text),
        gate_level or "token", weight_level or "token",
    )  # fmt: skip


class Own(NamedTuple):
    """The rule of a run; None, with the reason, where the run does not say enough to replay it."""

    rule: Rule | None
    reason: str = ""


def own_rule(run: Run) -> Own:
    """What the run was trained with, from its manifest: on the logged columns it gives the logged `clipped`."""
    parts, parameters = run.manifest.algorithm.get("parts"), run.manifest.algorithm.get("parameters")
    if not isinstance(parts, Mapping) or not isinstance(parameters, Mapping):
        return Own(None, f"{run.manifest.name} does not state its algorithm's parts and parameters.")
    missing = [part for part in ("gate", "weight", "level") if part not in parts]
    if missing:
        return Own(None, f"{run.manifest.name} does not state its algorithm's {' and '.join(missing)}.")
    gate, weight, level = (str(parts[part]) for part in ("gate", "weight", "level"))
    filtered = str(parts.get("filter", "none"))
    if filtered != "none" and (gate != "none" or filtered not in STOPPING):
        return Own(None, f"{run.manifest.name} has the filter {filtered} beside its gate; a rule has one of both.")
    gate, gate_level = (filtered, "token") if filtered != "none" else (gate, level)
    try:
        rule = Rule(
            gate, {name: float(parameters[name]) for name in STOPPING[gate].parameters},
            weight, {name: float(parameters[name]) for name in WEIGHTS[weight].parameters},
            gate_level, level,
        )  # fmt: skip
    except KeyError as error:
        return Own(None, f"{run.manifest.name} has {gate} and {weight}, of which {error} is not known here.")
    except RatioscopeError as error:
        return Own(None, f"{run.manifest.name} states a rule that cannot be replayed: {error}")
    except (TypeError, ValueError):
        return Own(None, f"{run.manifest.name} states parameters of {gate} and {weight} that are not numbers.")
    if gate != "none" and takes_several_passes(run) and not _logs_gate_ratios(run):
        return Own(
            None,
            f"{run.manifest.name} takes several passes per update and does not log logp_gate, so the gate's ratios "
            "are not known.",
        )
    return Own(rule)


def takes_several_passes(run: Run) -> bool:
    """Whether the manifest says that an update is more than one gradient pass; False where it does not say."""
    return any(run.manifest.parameters.get(name, 1) != 1 for name in ("epochs", "minibatches"))


def _logs_gate_ratios(run: Run) -> bool:
    with relations(run) as connection:
        row = connection.execute("select count(*) = count(logp_gate) from token").fetchone()
    return bool(row and row[0])


def _checked(part: Declared, parameters: Mapping[str, float]) -> dict[str, float]:
    name, wanted = part.name, part.parameters
    for given in parameters:
        if given not in wanted:
            raise _unknown_parameter(name, given, list(wanted))
    missing = [parameter for parameter in wanted if parameter not in parameters]
    if missing:
        raise RatioscopeError(f"{name} needs {' and '.join(missing)}.")
    for parameter, allowed in wanted.items():
        value = parameters[parameter]
        if not allowed.allows(value):
            raise RatioscopeError(f"{name}: {parameter}={value:g} must be {allowed.range} ({allowed.meaning}).")
    if crossed := inside_out(parameters):
        inner, outer = crossed
        raise RatioscopeError(f"{name}: {outer}={parameters[outer]:g} is inside of {inner}={parameters[inner]:g}.")
    return {parameter: float(parameters[parameter]) for parameter in wanted}


def _unknown_parameter(owner: str, name: str, parameters: Sequence[str]) -> RatioscopeError:
    if not parameters:
        return RatioscopeError(f"{name!r} is not a parameter of {owner}, which takes none; leave it out.")
    return unknown(f"a parameter of {owner}", name, parameters)


# Only what no URL has to escape: letters, digits, and . _ - ~ * ( ).
_PART = re.compile(r"(\w+)(?:\.(\w+))?(?:\(([\w.~-]+)\))?")


def _format(name: str, level: str, parameters: Mapping[str, float]) -> str:
    # 1e+20 without its plus sign, which a query string would read as a space.
    numbers = "~".join(f"{key}~{value!r}".replace("+", "") for key, value in parameters.items())
    return name + (f".{level}" if level != "token" else "") + (f"({numbers})" if numbers else "")


def _in_words(name: str, level: str, parameters: Mapping[str, float]) -> str:
    numbers = ", ".join(f"{key} {value:g}" for key, value in parameters.items())
    return name + (f" of {level} ratios" if level != "token" else "") + (f" ({numbers})" if numbers else "")


def _numbers(text: str, inside: str | None) -> dict[str, float]:
    words = inside.split("~") if inside else []
    try:
        return dict(zip(words[::2], map(float, words[1::2]), strict=True))
    except ValueError:
        raise RatioscopeError(f"{text!r} is not a rule: {inside!r} does not alternate names and numbers.") from None
