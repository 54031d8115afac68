"""Importing what other programs wrote: seconds of a processor, beside reading the same with Python's own parser."""

import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ratioscope.analysis.importers import Reading, lines
from ratioscope.analysis.importers.detect import FoundSource
from ratioscope.analysis.importers.formats import art, prime_rl, slime
from ratioscope.analysis.importers.mapping import importer_of
from ratioscope.analysis.importers.source import Importer, StepStart
from ratioscope.analysis.importers.writing import Options, import_run
from tests.benchmarks.timing import row
from tests.making.foreign import imitated_slime, truth
from tests.making.foreign.imitated_prime_rl import START, Stream, index_row

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


def _stream(root: Path, steps: int) -> Path:
    """A sealed run of prime-rl in its present layout: a prompt and an answer an episode."""
    rng = np.random.default_rng(0)
    traces = root / "monitors" / "file" / "traces"
    episodes, shipped, trained = (
        Stream(traces / name) for name in ("stream", "annotations/orchestrator", "annotations/trainer")
    )

    def node(tokens: int, parent: int | None, sampled: bool) -> dict[str, Any]:
        floats = np.round(-rng.exponential(size=tokens), 4).tolist() if sampled else []
        ids, mask = rng.integers(0, 150_000, tokens).tolist(), [sampled] * tokens
        message = {"role": "assistant" if sampled else "user", "content": "text " * tokens}
        lists = {"token_ids": ids, "mask": mask, "logprobs": floats}
        return {"parent": parent, "sampled": sampled, "message": message, **lists}

    for step in range(1, steps + 1):
        names = [f"{step}-{number}" for number in range(RESPONSES)]
        for number, name in enumerate(names):
            now = START + 60 * step + number / 100
            known = {"id": name, "ok": True, "rewards": {"right": {"score": number % 2, "weight": 1.0}}}
            known |= {"stop_condition": "stop", "task": {"data": {"idx": number // 8}}, "calls": []}
            trace = known | {"nodes": [node(PROMPT, None, False), node(LENGTH - PROMPT, 0, True)]}
            episode = {"id": name, "env": {"name": "maths"}, "group": {"id": f"{step}-{number // 8}"}, "ok": True}
            episode |= {"run": {"work": {"step": step, "policy": {"start": step - 1, "end": step - 1}}}, "errors": []}
            episode |= {"traces": [trace], "num_input_tokens": PROMPT, "num_output_tokens": LENGTH - PROMPT}
            episodes.append(episode, index_row(step * RESPONSES + number, episode, "train", now))
        for name in names:
            for stream, info, columns in (
                (shipped, {"effective": True, "ship": {"step": step, "time": START + 60 * step + 30}}, ("advantages",)),
                (trained, {}, ("trainer_logprobs", "entropies")),
            ):
                lists = {
                    column: [None] * PROMPT + np.round(-rng.exponential(size=LENGTH - PROMPT), 4).tolist()
                    for column in columns
                }
                if stream is trained:
                    lists["is_masked"] = [None] * PROMPT + [False] * (LENGTH - PROMPT)
                row = {"trace_id": name, "info": info}
                stream.append({"version": 1, **row, "branches": [{"index": 0, **lists}]}, row)
    for stream in (episodes, shipped, trained):
        stream.seal()
    return root


def _trajectories(root: Path, steps: int) -> Path:
    """Trajectories of ART: an answer each, whose log-probabilities are an object a token."""
    rng = np.random.default_rng(0)
    folder = root / "trajectories" / "train"
    folder.mkdir(parents=True)

    def trajectory(number: int) -> dict[str, Any]:
        ids = rng.integers(0, 150_000, LENGTH - PROMPT).tolist()
        logps = (-rng.exponential(size=LENGTH - PROMPT)).tolist()
        content = [
            {"token": f"token_id:{one}", "bytes": None, "logprob": logp, "top_logprobs": []}
            for one, logp in zip(ids, logps, strict=True)
        ]
        message = {"content": "text " * LENGTH, "refusal": None, "role": "assistant", "tool_calls": None}
        choice = {"finish_reason": "stop", "index": 0, "message": message, "token_ids": ids}
        choice["logprobs"] = {"content": content, "refusal": None}
        response = {"id": "c", "choices": [choice], "prompt_token_ids": rng.integers(0, 150_000, PROMPT).tolist()}
        asked = {"model": "policy", "messages": [{"role": "user", "content": f"task {number}"}], "temperature": 1.0}
        call = {"start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:02Z"}
        return {"exchanges": {"chat_completions": [call | {"request": asked, "response": response}]}} | {
            "reward": float(number % 2),
            "initial_policy_version": 1,
            "final_policy_version": 1,
        }

    for step in range(1, steps + 1):
        rows = [
            {"format_version": 2, "group_index": number // 8, "trajectory_index": number % 8, "group_json": "{}"}
            | {
                "trajectory_json": json.dumps(trajectory(number), separators=(",", ":")),
                "reward": float(number % 2),
                "messages": None,
            }
            for number in range(RESPONSES)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{step:04d}.parquet")
    return root


def _dump(folder: Path, steps: int) -> Path:
    """A dump of slime's."""
    known = truth.run(steps, RESPONSES // 8, 8)
    for step in known:
        for one in step:
            times = LENGTH // len(one.ids) + 1
            for name in ("mask", "sampler", "current", "gate", "reference", "entropy"):
                setattr(one, name, np.tile(getattr(one, name), times)[:LENGTH])
            one.ids = (one.ids * times)[:LENGTH]
    return imitated_slime.write(folder, known)


def run() -> None:
    """Print reading and importing of every kind of file, against `json.loads` of the same lines, or `torch.load`."""
    with tempfile.TemporaryDirectory() as place:
        mapping = Path(place) / "mapping.toml"
        mapping.write_text(_MAPPING)
        few = _written(Path(place) / "few", 24, _FEW, ())
        _compare(few, importer_of(mapping), "by a mapping file")
        _compare(_written(Path(place) / "all", 8, _ALL, _MASKS), prime_rl.IMPORTER, "of prime-rl's token export")
        stream = _stream(Path(place) / "stream", 8)
        sealed = sorted(stream.rglob("*.jsonl.zst"))
        _imported(stream, prime_rl.IMPORTER, "of prime-rl's stream", "json.loads", lambda: list(map(_parsed, sealed)))
        dump = _dump(Path(place) / "dump", 8)
        files = sorted(dump.rglob("*.pt"))
        _imported(dump, slime.IMPORTER, "of slime's dump", "torch.load", lambda: [torch.load(file) for file in files])
        trajectories = _trajectories(Path(place) / "art", 8)
        texts = [
            text
            for file in trajectories.rglob("*.parquet")
            for text in pq.read_table(file).column("trajectory_json").to_pylist()
        ]
        _imported(trajectories, art.IMPORTER, "of ART's", "json.loads", lambda: [*map(json.loads, texts)])
        _followed(Path(place) / "followed", importer_of(mapping), few)


def _parsed(file: Path) -> None:
    with io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(file)), "zstd")) as lines_of_file:
        for line in lines_of_file:
            json.loads(line)


def _followed(source: Path, importer: Importer, written: Path) -> None:
    """The tenth look at a file of many steps that has one more, beside the first look at all of it."""
    files = sorted(written.rglob("*.jsonl"), key=lambda file: int(file.parent.name.removeprefix("step_")))
    parts = [file.read_bytes() for file in files]
    source.mkdir()
    file = source / "all.jsonl"
    file.write_bytes(b"".join(parts[:-2]))
    places: dict[Path, list[StepStart]] = {}

    def look(after: int) -> int:
        reading = Reading(after=after, growing=True, places=places)
        return max((step.number for step in importer.read(source, reading)), default=after)

    began = time.process_time()
    seen = look(-1)
    whole = time.process_time() - began
    with file.open("ab") as opened:
        opened.write(parts[-2])
    began = time.process_time()
    look(seen)
    row(f"one more step after {len(parts) - 2}", time.process_time() - began, whole, "first look")


def _taken(action: Callable[[], object], repeats: int = 3) -> float:
    """Median of the seconds that processors worked: other programs of the machine do not count."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return median(times)


def _imported(source: Path, importer: Importer, what: str, against: str, baseline: Callable[[], object]) -> None:
    description = importer.describe(source)
    assert description is not None
    found, tokens = FoundSource(importer, description, description.path), 0

    def action() -> None:
        nonlocal tokens
        out = source.with_name("run")
        tokens = import_run(found, out, Options()).tokens
        shutil.rmtree(out)

    taken = _taken(action)
    row(f"import {what}, {tokens / taken / 1e6:.2f} M tokens/s", taken, _taken(baseline), against)


def _compare(source: Path, importer: Importer, what: str) -> None:
    files = sorted(source.rglob("*.jsonl"))
    size = sum(file.stat().st_size for file in files)
    tokens = len(files) * RESPONSES * (LENGTH - PROMPT)

    def python() -> None:
        for file in files:
            with file.open() as opened:
                for line in opened:
                    json.loads(line)

    def read() -> None:
        for file in files:
            for _ in lines.read(file, Reading(), arrays=("token_ids", "loss_mask", *_ALL, *_MASKS)):
                pass

    baseline, taken = _taken(python), _taken(read)
    print(f"  {tokens:,} tokens, {size / tokens:.0f} bytes each; json.loads: {tokens / baseline / 1e6:.2f} M tokens/s")
    row(f"lists as arrays, {tokens / taken / 1e6:.2f} M tokens/s", taken, baseline, "json.loads")
    _imported(source, importer, what, "json.loads", python)
