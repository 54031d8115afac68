"""Runs with the columns that other frameworks' files have, and no more: what a log cannot answer must not be shown.

write_source(folder, "behavior only")
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ratioscope import RunRecorder
from tests.making.runs import Step, random_step

_KEYS = ("seq_id", "position")
_SEQUENCES = ("seq_id", "n_tokens", "reward", "prompt", "response")

SOURCES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "behavior, current, advantage": (
        (*_KEYS, "token_id", "logp_behavior", "logp_current", "advantage"),
        _SEQUENCES,
    ),
    "behavior, current, advantage, groups": (
        (*_KEYS, "token_id", "group_id", "logp_behavior", "logp_current", "advantage"),
        (*_SEQUENCES, "group_id"),
    ),
    "behavior only": (
        (*_KEYS, "token_id", "group_id", "behavior_version", "logp_behavior"),
        (*_SEQUENCES, "group_id"),
    ),
    "current only": ((*_KEYS, "logp_current"), ("seq_id", "n_tokens")),
    "recomputed": (
        (*_KEYS, "token_id", "group_id", "behavior_version", "logp_behavior_train", "logp_current", "logp_new",
         "logp_gate", "advantage", "clipped", "clip_side", "gate"),
        (*_SEQUENCES, "group_id"),
    ),
    "texts": ((), _SEQUENCES),
}  # fmt: skip
"""Columns of the tokens and of the sequences by what a source has; no token columns: it has texts alone."""


def source_step(rng: np.random.Generator, number: int, source: str) -> Step:
    """A step with the columns of this source."""
    step = random_step(rng, number, groups=6, responses=4, longest=30)
    n = len(step.sequences["seq_id"])
    texts = {
        "prompt": [f"What is {row % 6} + 1?" for row in range(n)],
        "response": [f"It is {row}." for row in range(n)],
    }
    tokens, sequences = step.tokens | {"logp_gate": step.tokens["logp_new"]}, step.sequences | texts
    kept = SOURCES[source]
    return replace(
        step,
        tokens={name: tokens[name] for name in kept[0]},
        sequences={name: sequences[name] for name in kept[1]},
        scalars={},
    )


def write_source(folder: Path, source: str, steps: int = 6) -> Path:
    """A finished run of a few steps from this source, with what its manifest says of it."""
    rng = np.random.default_rng(7)
    has = set().union(*SOURCES[source])
    missing = {
        name: f"{name} is no field of this export" for name in ("logp_current", "behavior_version") if name not in has
    }
    origin = {"framework": "some framework", "version": "1.2", "path": "/data/<b>run</b>", "format": "its export"}
    assumed = ["Every line is one response, because the file does not say more."]
    with RunRecorder(folder, flush_seconds=float("inf"), source=origin, missing=missing, assumed=assumed) as recorder:
        for number in range(steps):
            step = source_step(rng, number, source)
            recorder.record_step(number, tokens=step.tokens or None, sequences=step.sequences)
    return folder
