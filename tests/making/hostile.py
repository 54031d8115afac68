"""Text that wants to be more than text, and a folder of runs in which everything that can carry text carries it."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import RunRecorder
from tests.making.runs import random_step, write_run

MARK = "EVIL"
FORGED = "ratioscope: nothing found, the run is healthy."
# What a terminal obeys, what turns or hides letters, what begins a line, more accents than a letter has.
ACTIVE = (
    "\x1b[2J\x07\x9b\u202e\u2066\u061c\u200b\u200c\u200d\u200f\u2060\ufeff\u2028\u2029\xad\u3164"
    "\U000e0041\U000e0001\U000e0100"
)
MARKUP = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> ![](http://127.0.0.2/x) $EVIL$ [link](javascript:alert(1)) "
    ":material/bolt: :smile: <a href='http://127.0.0.2'>a</a> **bold**"
)
HOSTILE = f"{MARK}{MARKUP}{ACTIVE}a{chr(0x301) * 40}\r{FORGED}\n{FORGED}\r\n{FORGED} "
# A folder's name has no slash and at most 255 bytes.
FOLDER = f"{MARK} <b>$x$ :smile: \x1b[2J\u202e\u200b\ufeff\U000e0041\n{FORGED}"


def write_hostile(folder: Path) -> Path:
    """Write two such runs, and an honest one called "honest"."""
    rng = np.random.default_rng(1)
    fields: dict[str, Any] = {
        "name": HOSTILE,
        "algorithm": {"name": HOSTILE, "parts": {HOSTILE: HOSTILE}, "parameters": {HOSTILE: 1.0}, "gate": HOSTILE},
        "schedule": {"sync_interval": HOSTILE, "sync_offset": HOSTILE},
        "task": {"name": HOSTILE},
        "sampler": {HOSTILE: HOSTILE},
        "source": {"framework": HOSTILE, "version": HOSTILE, "path": HOSTILE},
        "missing": {"logp_new": HOSTILE, HOSTILE: HOSTILE},
        "assumed": [HOSTILE],
        "sampled_with": HOSTILE,
        "tags": [HOSTILE],
        "notes": HOSTILE,
        HOSTILE: HOSTILE,
    }
    own = fields.pop(HOSTILE)
    for number, name in enumerate((FOLDER, f"{FOLDER} again")):
        recorder = RunRecorder(
            folder / name, vocabulary=lambda token: f"{HOSTILE}{token}", model={MARK: number}, extra={HOSTILE: own},
            **fields,
        )  # fmt: skip
        for step in (random_step(rng, number, spread=1.5) for number in range(4)):
            n = len(step.sequences["seq_id"])
            names = ("prompt", "response", "finish_reason", "source", "engine", "environment", "adapter")
            texts = {name: [HOSTILE if row % 2 else f"{HOSTILE}{name}" for row in range(n)] for name in names}
            first = step.sequences["seq_id"][0]
            recorder.record_step(
                step.number, tokens=step.tokens, sequences=step.sequences | texts,
                scalars=step.scalars,
                messages={
                    "seq_id": [first, first], "turn": [0, 1], "role": [HOSTILE, HOSTILE],
                    "content": [HOSTILE, HOSTILE], "tool": [HOSTILE, HOSTILE],
                },
            )  # fmt: skip
        recorder.close("failed", HOSTILE)
    write_run(folder / "honest", [random_step(rng)], algorithm={"name": "grpo"}, schedule={"sync_interval": 4})
    return folder
