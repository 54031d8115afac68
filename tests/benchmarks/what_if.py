"""The what-if instrument on two million tokens: one move of a slider, and sweeps over 25 values."""

import itertools
import tempfile
from pathlib import Path

import torch

from ratioscope.analysis.clipping.rule_shape import density, profile
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.what_if import (
    Rule,
    Tokens,
    evaluate_rule,
    is_measure_share,
    load_tokens,
    result_of,
    sweep_values,
)
from ratioscope.dashboard.figures import clipping as figures
from ratioscope.dashboard.theme import LIGHT
from tests.benchmarks.scanning import write_large
from tests.benchmarks.timing import row, seconds

STEPS, MOST_TOKENS, SWEEP_TOKENS = 20, 2_000_000, 50_000
PPO = Rule("one_side", {"epsilon_low": 0.2, "epsilon_high": 0.2})
TRUNCATED = Rule("none", {}, "truncated", {"cap": 2.0})


def run() -> None:
    """Print the comparisons on 20 steps of 100,000 tokens."""
    with tempfile.TemporaryDirectory() as place:
        folder = write_large(Path(place) / "run", STEPS)
        read = seconds(lambda: open_run(folder).read("tokens", ["logp_behavior", "logp_current", "advantage"]))
        row(
            "loading 2 M tokens",
            seconds(lambda: load_tokens(open_run(folder)), 3),
            read,
            "pandas, three of the columns",
        )
        tokens = load_tokens(open_run(folder), max_tokens=MOST_TOKENS)
    print(f"  {len(tokens):,} tokens in {len(tokens.steps)} steps")
    bare = seconds(lambda: _mask_and_mean(tokens))
    seen, values = density(tokens), itertools.count(1)
    applied = result_of(evaluate_rule([PPO], [tokens], curves=figures.CURVES))[0]

    def move(rule: Rule, parameter: str) -> None:
        changed = rule.with_parameter(parameter, 0.2 + 0.001 * next(values) + (rule is TRUNCATED))
        found = result_of(evaluate_rule([changed], [tokens], curves=figures.CURVES))[0]
        for key in figures.CURVES:
            pair = {"applied": (applied.steps, applied.curves[key]), "what-if": (found.steps, found.curves[key])}
            figures.against(pair, LIGHT, share=is_measure_share(key)).to_json()
        shapes = {"applied": profile(PPO, seen), "what-if": profile(changed, seen)}
        figures.gates(shapes, seen, LIGHT).to_json()

    for words, rule, parameter in (("a clip", PPO, "epsilon_high"), ("a cap", TRUNCATED, "cap")):
        move(rule, parameter)
        moved = seconds(lambda rule=rule, parameter=parameter: move(rule, parameter))  # type: ignore[misc]
        row(f"slider of {words}: every number, 4 curves, the gate", moved, bare, "torch, one mask and its mean")
    sample = tokens.sample(SWEEP_TOKENS)
    for words, part in ((f"preview of {len(sample):,} tokens", sample), ("exact", tokens)):
        took = seconds(lambda part=part: _sweep(part), 3)  # type: ignore[misc]
        row(f"sweep over 25 values, {words}", took, 25 * bare, "25 x the same")


def _mask_and_mean(tokens: Tokens) -> None:
    ratio = (tokens.logp_current - tokens.logp_behavior).exp()
    torch.where((tokens.advantage > 0) & (ratio > 1.2), 0.0, ratio).double().mean()


def _sweep(tokens: Tokens) -> None:
    rules = [PPO.with_parameter("epsilon_high", value) for value in sweep_values(PPO, "epsilon_high")]
    result_of(evaluate_rule(rules, [tokens], keys=("clip_fraction",)))
