"""Importing JSON lines: what it costs beside reading the same lines with Python's own parser."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ratioscope.analysis.importers import Reading, lines
from ratioscope.analysis.importers.detect import FoundSource
from ratioscope.analysis.importers.formats import prime_rl
from ratioscope.analysis.importers.mapping import importer_of
from ratioscope.analysis.importers.source import Importer
from ratioscope.analysis.importers.writing import Options, import_run
from tests.benchmarks.timing import row, seconds

RESPONSES, PROMPT, LENGTH = 64, 20, 1_000

# The lists of a line of prime-rl's token export, which has the most of all formats, and those that most have.
_FEW = ("inference_logprobs", "trainer_logprobs")
_ALL = (
    *(*_FEW, "advantages", "entropy", "mismatch_kl", "log_importance_ratio"),
    *("importance_ratio", "prob_delta", "rl_weights"),
)
_MASKS = ("is_masked", "is_masked_high", "is_masked_low")
_MAPPING = """
step = "step"
[tokens]
files = "**/*.jsonl"
mask = "loss_mask"
[tokens.columns]
token_id = "token_ids"
logp_behavior = "inference_logprobs"
logp_current = "trainer_logprobs"
"""


def _line(rng: np.random.Generator, step: int, number: int, floats: Sequence[str], masks: Sequence[str]) -> str:
    values = np.float32(rng.normal(size=(len(floats), LENGTH))).astype(float)
    return json.dumps(
        {"schema_version": 1, "step": step, "rank": 0, "micro_step": 0, "export_sequence_idx": number, "env_name": "x"}
        | {"token_ids": rng.integers(0, 150_000, LENGTH).tolist(), "position_ids": list(range(LENGTH))}
        | {"loss_mask": [False] * PROMPT + [True] * (LENGTH - PROMPT)}
        | {name: values[place].tolist() for place, name in enumerate(floats)}
        | {name: (rng.random(LENGTH) < 0.02).tolist() for name in masks}
    )


def _written(source: Path, steps: int, floats: Sequence[str], masks: Sequence[str]) -> Path:
    rng = np.random.default_rng(0)
    for step in range(steps):
        folder = source / "token_exports" / f"step_{step}"
        folder.mkdir(parents=True)
        rows = (_line(rng, step, number, floats, masks) + "\n" for number in range(RESPONSES))
        (folder / "rank_0.jsonl").write_text("".join(rows))
        (folder / "STABLE").touch()
    return source


def run() -> None:
    """Print reading and importing with few lists a line and with many, against `json.loads` of the same lines."""
    with tempfile.TemporaryDirectory() as place:
        mapping = Path(place) / "mapping.toml"
        mapping.write_text(_MAPPING)
        _compare(_written(Path(place) / "few", 24, _FEW, ()), importer_of(mapping), "by a mapping file")
        _compare(_written(Path(place) / "all", 8, _ALL, _MASKS), prime_rl.IMPORTER, "of prime-rl's token export")


def _compare(source: Path, importer: Importer, what: str) -> None:
    files = sorted(source.rglob("*.jsonl"))
    size = sum(file.stat().st_size for file in files)
    tokens = len(files) * RESPONSES * (LENGTH - PROMPT)

    def rate(taken: float) -> str:
        return f"{tokens / taken / 1e6:.2f} M tokens/s"

    def python() -> None:
        for file in files:
            with file.open() as opened:
                for line in opened:
                    json.loads(line)

    def read() -> None:
        for file in files:
            for _ in lines.read(file, Reading(), arrays=("token_ids", "loss_mask", *_ALL, *_MASKS)):
                pass

    def imported() -> None:
        description = importer.describe(source)
        assert description is not None
        out = source.with_name("run")
        import_run(FoundSource(importer, description, description.path), out, Options())
        shutil.rmtree(out)

    baseline = seconds(python, 3)
    print(f"  {tokens:,} tokens, {size / tokens:.0f} bytes each; json.loads: {rate(baseline)}")
    for name, action in (("lists as arrays", read), (f"import {what}", imported)):
        taken = seconds(action, 3)
        row(f"{name}, {rate(taken)}", taken, baseline, "json.loads")
