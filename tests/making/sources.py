"""Runs with the columns that other frameworks' files have, and no more: what a log does not say must not be shown.

write_source(folder, "behavior")
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ratioscope import RunRecorder
from tests.making.runs import Step, random_step

_KEYS = ("seq_id", "position")
_TEXTS = ("seq_id", "n_tokens", "reward", "prompt", "response")

SOURCES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ratios": ((*_KEYS, "token_id", "logp_behavior", "logp_current", "advantage"), _TEXTS),
    "groups": ((*_KEYS, "group_id", "token_id", "logp_behavior", "logp_current", "advantage"), (*_TEXTS, "group_id")),
    "behavior": ((*_KEYS, "group_id", "token_id", "behavior_version", "logp_behavior"), (*_TEXTS, "group_id")),
    "current": ((*_KEYS, "logp_current"), ("seq_id", "n_tokens")),
    "recomputed": (
        (*_KEYS, "group_id", "token_id", "behavior_version", "logp_behavior_train", "logp_current", "logp_new",
         "logp_gate", "advantage", "clipped", "clip_side", "gate"),
        (*_TEXTS, "group_id"),
    ),
    "texts": ((), _TEXTS),
}  # fmt: skip
"""Columns of tokens and sequences by what a source has: the sampler's, the trainer's or both log-probabilities, or only
the texts; without token columns there is no tokens table."""

HOSTILE = "<script>alert(1)</script> [link](javascript:alert(1)) **bold**"


def source_step(rng: np.random.Generator, number: int, source: str) -> Step:
    """A step with the columns of this source."""
    step = random_step(rng, number, groups=4, responses=3, longest=12)
    n = len(step.sequences["seq_id"])
    step.sequences.update(prompt=[f"prompt {row // 3}" for row in range(n)], response=[HOSTILE] * n)
    of_tokens, of_responses = SOURCES[source]
    tokens = step.tokens | {"logp_gate": step.tokens["logp_new"]}
    return replace(
        step,
        tokens={name: tokens[name] for name in of_tokens},
        sequences={name: step.sequences[name] for name in of_responses},
    )


def write_source(folder: Path, source: str, steps: int = 3) -> Path:
    """A finished run of a few steps from this source, with what its manifest says of it; the text is hostile."""
    rng = np.random.default_rng(7)
    origin = {"framework": f"{source} {HOSTILE}", "version": "1.2", "path": f"/data/{HOSTILE}", "format": "an export"}
    missing = {"logp_new": f"the export has no field for it: {HOSTILE}"}
    with RunRecorder(
        folder, flush_seconds=float("inf"), source=origin, missing=missing, assumed=[f"Lines are responses. {HOSTILE}"],
        log_probability_decimals=4,
    ) as recorder:  # fmt: skip
        for number in range(steps):
            step = source_step(rng, number, source)
            recorder.record_step(number, tokens=step.tokens or None, sequences=step.sequences)
    return folder
