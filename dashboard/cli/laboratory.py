"""`ratioscope lab`: the exact numbers of an experiment of the laboratory."""

from typing import Annotated

import typer

from ratioscope.dashboard.cli.common import app, examples
from ratioscope.dashboard.terminal import print_line, print_wrapped, say_json
from ratioscope.errors import RatioscopeError, unknown


def _names(incomplete: str) -> list[str]:
    from ratioscope.analysis.laboratory import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


@app.command(
    epilog=examples(
        "lab",
        "lab importance_weights",
        "lab importance_weights T=10 N=100000",
        "lab rare_token R=1000 --json",
    )
)
def lab(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="An experiment; without one they are listed.", autocompletion=_names,
                       show_default=False),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Other numbers than the source's.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every value and curve.")] = False,
) -> None:  # fmt: skip
    """Play with the theory: an experiment's claim, its exact numbers and what they say.

    The same experiments have sliders on the dashboard's page Laboratory. Nothing is trained, no run is read.

    --json prints an object: schema_version, experiment, claim, source, at, numbers, values, says. Without a NAME it is
    schema_version and experiments, each with experiment, claim, source, at. Undefined is null.
    """
    from ratioscope.analysis.findings.plain import json_value
    from ratioscope.analysis.laboratory import EXPERIMENTS
    from ratioscope.analysis.laboratory.tools import in_percent, show
    from ratioscope.run_format.schema import SCHEMA_VERSION

    if name is None:
        if as_json:
            heads = [{"experiment": of.key, "claim": of.claim, "source": of.source, "at": of.paper}
                     for of in EXPERIMENTS.values()]  # fmt: skip
            say_json({"schema_version": SCHEMA_VERSION, "experiments": heads})
            return
        width = max(map(len, EXPERIMENTS))
        for of in EXPERIMENTS.values():
            print_line(f"{of.key:<{width}}  {of.claim}")
        print_line("\nratioscope lab NAME computes one; the page Laboratory of ratioscope dashboard has their sliders.")
        return
    if name not in EXPERIMENTS:
        raise unknown("an experiment", name, EXPERIMENTS)
    of = EXPERIMENTS[name]
    at = {}
    for given in values or []:
        key, _, value = given.partition("=")
        try:
            at[key] = float(value)
        except ValueError:
            example = f"{of.sliders[0].key}={of.sliders[0].paper:g}"
            raise RatioscopeError(f"{given!r} is not KEY=VALUE with a number, as {example} is.") from None
    found = of.at(**at)
    if as_json:
        say_json(json_value({
            "schema_version": SCHEMA_VERSION, "experiment": of.key, "claim": of.claim, "source": of.source,
            "at": of.paper | at, "numbers": {number.key: found[number.key] for number in of.numbers},
            "values": {key: value for key, value in found.items() if key != "says"}, "says": found["says"],
        }))  # fmt: skip
        return
    print_line(f"{of.claim}  [{of.source}]")
    print_wrapped(of.prose)
    print_line("")
    for slider in of.sliders:
        here = (of.paper | at)[slider.key]
        shown = slider.options[int(here)] if slider.options else show(here, 7)
        print_line(f"  {slider.key} = {shown}: {slider.words}")
    print_line("")
    width = max(len(number.words) for number in of.numbers)
    for number in of.numbers:
        got = found[number.key]
        print_line(f"  {number.words:<{width}}  {in_percent(got) if number.percent else show(got, 10)}")
    print_line("")
    print_wrapped(found["says"])
