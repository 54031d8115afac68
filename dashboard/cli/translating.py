"""`ratioscope translate`: the same log as another framework would have reported it."""

from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import Quiet, StepRange, app, examples, opened, step_range
from ratioscope.dashboard.terminal import print_line, say_json, working
from ratioscope.errors import RatioscopeError, unknown

if TYPE_CHECKING:
    from ratioscope.analysis.frameworks.translation import Translation


@app.command(
    epilog=examples(
        "translate sample_runs/mismatch-grpo-seed0 --to verl",
        "translate sample_runs/mismatch-grpo-seed0 --to verl --key rollout_corr/k3_kl --steps 140:",
        "translate sample_runs/mismatch-grpo-seed0 --to trl --set clip_max=2 --json",
        "translate --to prime_rl",
    )
)
def translate(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run's folder; without one the names are explained.",
            autocompletion=completion.folders,
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FRAMEWORK",
            help="verl, trl, areal, nemo_rl or prime_rl; default: the one that the run names, else all.",
            autocompletion=completion.frameworks,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="One of their numbers, or those closest to a metric of ours, step by step.",
            autocompletion=completion.reported,
        ),
    ] = None,
    steps: StepRange = None,
    assumed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the framework; default: its own."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every number at every step.")] = False,
    quiet: Quiet = False,
) -> None:
    """A run's numbers as verl, TRL, AReaL, NeMo-RL or prime-rl would log them, and why they differ.

    Each of their numbers is compared with the metric that is closest to it: equal in every step, different and why,
    without a counterpart, or not computable from this log, with the column that is missing.

    What the trainer's own logger wrote and cannot be (a fraction above 1, an entropy below 0) is said first, with the
    known release that logged it so.

    --json prints an object: schema_version, run, steps, first, frameworks. Each framework has framework, title, source,
    settings, parameters, numbers, not_reproducible. Each number has name, metric, same_definition, nearest, formula,
    why, outcome, step, value, our_value, missing, by_step. Undefined is null.
    """  # fmt: skip
    from ratioscope.analysis.findings.logged import logged
    from ratioscope.analysis.frameworks import DIALECTS
    from ratioscope.analysis.frameworks.impossible import impossible
    from ratioscope.analysis.frameworks.naming import framework_key, written_by
    from ratioscope.analysis.frameworks.translation import translate as translation_of
    from ratioscope.analysis.frameworks.writing import dictionary, translation_json, translation_text
    from ratioscope.analysis.summary.summary import Summariser

    asked = framework_key(to) if to else ""
    if run is None:
        if steps or assumed or key:
            raise RatioscopeError("--steps, --set and --key are about a run; name its folder.")
        names = [asked] if asked else list(DIALECTS)
        say_json(translation_json(None, (), names)) if as_json else print_line("\n\n".join(map(dictionary, names)))
        return
    first, last = step_range(steps)
    found = opened(run)
    if why := logged(found).sentence("tokens"):
        raise RatioscopeError(f"{run}: {why} Nothing of what a framework logs can be computed.")
    asked = asked or written_by(found.manifest)
    settings = dict(map(_setting, assumed or ()))
    if settings and not asked:
        raise RatioscopeError("--set is about one framework; name it with --to.")
    with working("Reading", quiet) as progress:
        summary = Summariser().summarise(found, progress)
        translations = [
            translation_of(found, name, first, last, summary=summary, parameters=settings)
            for name in ([asked] if asked else DIALECTS)
        ]
    first_of_all = impossible(found)
    if key:
        translations = _of_key(translations, key)
    if as_json:
        say_json(translation_json(found, translations, first=first_of_all))
    elif key:
        print_line("\n\n".join([*first_of_all, *_by_step(translations)]))
    else:
        print_line("\n\n".join([*first_of_all, *map(translation_text, translations)]))


def _of_key(translations: "list[Translation]", key: str) -> "list[Translation]":
    """The same with the numbers of this name, or near to this metric, alone."""
    from ratioscope.analysis.frameworks.naming import numbers_named, numbers_near

    wanted = {(named.framework, named.name) for named in (*numbers_named(key), *numbers_near(key))}
    chosen = []
    for each in translations:
        lines = tuple(line for line in each.lines if (each.framework, line.name) in wanted)
        if lines:
            chosen.append(replace(each, lines=lines))
    if not chosen:
        names = [line.name for each in translations for line in each.lines]
        raise unknown("a number that these frameworks report of a log", key, names)
    return chosen


def _by_step(translations: "list[Translation]") -> list[str]:
    from ratioscope.analysis.frameworks.writing import text_by_step

    return [text_by_step(line, each.framework) for each in translations for line in each.lines]


def _setting(assignment: str) -> tuple[str, float]:
    name, _, text = assignment.partition("=")
    with suppress(ValueError):
        if isfinite(value := float(text)):
            return name.strip(), value
    raise RatioscopeError(f"--set {assignment}: write NAME=VALUE with a number, e.g. clip_ratio=0.28.")
