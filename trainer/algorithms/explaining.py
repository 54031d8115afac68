"""One algorithm as text, for people who meet it: what its parts do, where they are, and where it leaves its source."""

import inspect
import textwrap

from ratioscope.sources import titled
from ratioscope.trainer.algorithms import own
from ratioscope.trainer.algorithms.algorithm import IDLE, Algorithm, printed, where_in_code
from ratioscope.trainer.algorithms.parameters import ALGORITHM_PARAMETERS
from ratioscope.trainer.algorithms.parts import CHOICES
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES

WIDTH = 116
# The symbols of `Algorithm.gradient`; parameters are listed by themselves.
SYMBOLS = {
    "A ": "A the advantage",
    "r_i": "r_i the reward of response i",
    "r̄": "r̄ its group's mean",
    "σ_r": "σ_r its group's deviation",
    "G_t": "G_t the reward that is still to come",
    "V(": "V the critic",
    "ρ_θ": "ρ_θ = π_θ/behavior of a token",
    "ρ_k": "ρ_k = π_k/behavior of a token",
    "π_k": "π_k the policy before the update",
    "behavior": "behavior the policy that sampled",
    "M": "M what the gate lets through",
    "T_max": "T_max the largest length",
}


def describe(algorithm: Algorithm) -> str:
    """Gradient, source, what is printed as its loss, its parts with their sentences and places, parameters."""
    names = [algorithm.name, *(alias for alias, name in ALIASES.items() if name == algorithm.name)]
    parts = algorithm.parts().items()
    symbols = [meaning for symbol, meaning in SYMBOLS.items() if symbol in algorithm.gradient]
    lines = [
        f"{algorithm.title} ({', '.join(names)})",
        "",
        *_entry("gradient", algorithm.gradient),
        *(line for place, symbol in enumerate(symbols) for line in _entry("" if place else "where", symbol)),
        *_entry("source", algorithm.source),
        *_entry("differs", algorithm.differs),
        *_entry("printed loss", printed(algorithm)),
        *_entry("epochs", f"{algorithm.epochs} per update"),
    ]
    if ALGORITHMS.get(algorithm.name) == algorithm:
        lines += _entry("try it", f"ratioscope train sync_interval algorithm={algorithm.name}")
    lines += ["", "  parts"]
    for part, choice in parts:
        if choice not in IDLE:
            lines += [
                f"    {part:<13}  {choice}",
                *_paragraph(_sentence(part, choice)),
                *_paragraph(where_in_code(part, choice)),
            ]
    usual = " ".join(f"{part}={choice}" for part, choice in parts if choice in IDLE)
    lines += [f"    {'as usual':<13}  {usual}"]
    if algorithm.parameters:
        lines += ["", "  parameters"]
    for name, value in algorithm.parameters.items():
        known = ALGORITHM_PARAMETERS.get(name)
        meaning = f"{known.meaning} ({known.range})" if known else "of a part from a file"
        lines.append(f"    {name:<20} {value:<6g} {meaning}")
    return "\n".join(lines)


def _entry(label: str, text: str) -> list[str]:
    """Nothing where there is nothing to say."""
    return textwrap.wrap(titled(text), WIDTH, initial_indent=f"  {label:<13}  ", subsequent_indent=" " * 17)


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(titled(text), WIDTH, initial_indent=" " * 19, subsequent_indent=" " * 19)


def _sentence(part: str, choice: str) -> str:
    """What a part says of itself."""
    documented = inspect.getdoc(own.pick(part, choice, CHOICES[part])) or ""
    return documented.partition("\n\n")[0].replace("\n", " ").replace("`", "")
