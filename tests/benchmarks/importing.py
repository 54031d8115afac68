"""Importing JSON lines: what it costs beside reading the same lines with Python's own parser."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from ratioscope.analysis.importers import Reading, lines, prime_rl
from ratioscope.analysis.importers.detect import Found
from ratioscope.analysis.importers.mapping import importer_of
from ratioscope.analysis.importers.source import Importer
from ratioscope.analysis.importers.writing import Options, import_run
from tests.benchmarks.timing import row, seconds

STEPS, RESPONSES, PROMPT, LENGTH = 8, 64, 20, 1_000
SAMPLED = STEPS * RESPONSES * (LENGTH - PROMPT)

# The lists of a line of prime-rl's token export, which has the most of all formats.
_FLOATS = (
    *("advantages", "inference_logprobs", "trainer_logprobs", "entropy", "mismatch_kl", "log_importance_ratio"),
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
advantage = "advantages"
logp_behavior = "inference_logprobs"
logp_current = "trainer_logprobs"
"""


def _line(rng: np.random.Generator, step: int, number: int) -> str:
    values = np.float32(rng.normal(size=(len(_FLOATS), LENGTH))).astype(float)
    return json.dumps(
        {"schema_version": 1, "step": step, "rank": 0, "micro_step": 0, "export_sequence_idx": number, "env_name": "x"}
        | {"token_ids": rng.integers(0, 150_000, LENGTH).tolist(), "position_ids": list(range(LENGTH))}
        | {"loss_mask": [False] * PROMPT + [True] * (LENGTH - PROMPT)}
        | {name: values[place].tolist() for place, name in enumerate(_FLOATS)}
        | {name: (rng.random(LENGTH) < 0.02).tolist() for name in _MASKS}
    )


def run() -> None:
    """Print the reading and the import of half a million tokens, against `json.loads` of the same lines."""
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place) / "source", Path(place) / "run"
        rng = np.random.default_rng(0)
        for step in range(STEPS):
            folder = source / "token_exports" / f"step_{step}"
            folder.mkdir(parents=True)
            rows = (_line(rng, step, number) + "\n" for number in range(RESPONSES))
            (folder / "rank_0.jsonl").write_text("".join(rows))
            (folder / "STABLE").touch()
        files = sorted(source.rglob("*.jsonl"))
        mapping = Path(place) / "mapping.toml"
        mapping.write_text(_MAPPING)
        size = sum(file.stat().st_size for file in files)
        print(f"  {SAMPLED:,} sampled tokens, {size / 1e6:.0f} MB, {size / SAMPLED:.0f} bytes a token")

        def python() -> None:
            for file in files:
                with file.open() as opened:
                    for line in opened:
                        json.loads(line)

        def read(only: tuple[str, ...] | None) -> None:
            arrays = ("token_ids", "loss_mask", *_FLOATS, *_MASKS)
            for file in files:
                for _ in lines.read(file, Reading(), arrays=arrays, only=only):
                    pass

        def imported(importer: Importer) -> None:
            description = importer.describe(source)
            assert description is not None
            import_run(Found(importer, description), out, Options())
            shutil.rmtree(out)

        baseline = seconds(python, 3)
        print(f"  json.loads: {SAMPLED / baseline / 1e6:.2f} M tokens a second")
        five = ("token_ids", "loss_mask", "advantages", "inference_logprobs", "trainer_logprobs")
        for what, action in (
            ("every list as an array", lambda: read(None)),
            ("five lists as arrays", lambda: read(five)),
            ("import by a mapping file, four columns", lambda: imported(importer_of(mapping))),
            ("import of prime-rl's token export", lambda: imported(prime_rl.IMPORTER)),
        ):
            taken = seconds(action, 3)
            row(f"{what}: {SAMPLED / taken / 1e6:.2f} M tokens a second", taken, baseline, "json.loads")


if __name__ == "__main__":
    run()
