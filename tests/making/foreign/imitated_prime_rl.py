"""A run of prime-rl in the layout of September 2026, imitated; what is in it is known from the stored run.

The episodes are verifiers' own records, those of the stored run (verifiers_and_prime_rl.py). What lies around them
follows prime-rl 65a18584 and 551bfc39, file by file and key by key: `src/prime_rl/monitors/file/monitor.py` (files,
order of writing), `traces/chunks.py` (chunks, sealing), `traces/index.py` and `traces/update.py` (rows of the indexes,
annotations), `orchestrator/annotations.py` (what arrival and shipping say) and `trainer/rl/annotations.py` (what the
trainer says by token). None of it is their code, and nothing here was written by it.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.making.foreign.packed import unpack

START = 1_760_000_000.0
DECIMALS = 4


class Stream:
    """One of the file monitor's streams: records in a chunk, a row of the index for each."""

    def __init__(self, folder: Path, chunk_bytes: int = 5 * 1024**3, frame_bytes: int = 4 << 20) -> None:
        self.folder, self._chunk_bytes, self._frame_bytes = folder, chunk_bytes, frame_bytes
        self.index = folder.with_name(f"{folder.name}.index.jsonl")
        folder.mkdir(parents=True, exist_ok=True)
        self.chunk = 0

    @property
    def live(self) -> Path:
        return self.folder / f"{self.chunk:05d}.jsonl"

    def append(self, record: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        line = _line(record)
        size = self.live.stat().st_size if self.live.exists() else 0
        if size and size + len(line) > self._chunk_bytes:
            self.seal()
            self.chunk, size = self.chunk + 1, 0
        with self.live.open("ab") as file:
            file.write(line)
        with self.index.open("ab") as file:
            file.write(_line({**row, "chunk": self.chunk, "offset": size}))

    def seal(self) -> None:
        """Compress the live chunk beside itself, then remove it."""
        if self.live.exists():
            sealed = seekable(self.live.read_bytes(), self._frame_bytes)
            self.live.with_name(f"{self.live.name}.zst").write_bytes(sealed)
            self.live.unlink()


def seekable(contents: bytes, frame_bytes: int) -> bytes:
    """zstd's seekable format: frames, and in a frame that is skipped the table of their sizes."""
    frames, table = [], []
    for start in range(0, len(contents), frame_bytes):
        part = contents[start : start + frame_bytes]
        frames.append(pa.compress(part, codec="zstd", asbytes=True))
        table.append(struct.pack("<II", len(frames[-1]), len(part)))
    entries = b"".join(table) + struct.pack("<IBI", len(table), 0, 0x8F92EAB1)
    return b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(entries)) + entries


class Run:
    """A run that is written as prime-rl would: episodes arrive, a batch is shipped, the trainer trains on it."""

    def __init__(self, root: Path, stored: Path, **options: int) -> None:
        self.root, self._stored = root, stored
        self.traces = root / "monitors" / "file" / "traces"
        self.episodes = Stream(self.traces / "stream", **options)
        self.orchestrator = Stream(self.traces / "annotations" / "orchestrator", **options)
        self.trainer = Stream(self.traces / "annotations" / "trainer", **options)
        self._lines = self._seconds = 0
        configs = root / "configs" / "resolved"
        configs.mkdir(parents=True)
        for component in ("trainer", "orchestrator", "inference"):
            settings = json.loads((stored / "configs" / f"{component}.json").read_text())
            if component == "trainer":
                del settings["enable_token_export"]
                settings["loss"] = {"type": "ipo", "eps": 0.3, "kl_tau": 0.0}
                settings["monitors"] = {"file": {"path": "metrics.jsonl", "float_decimals": DECIMALS}}
            (configs / f"{component}.json").write_text(json.dumps(settings, indent=2))

    def stored(self, step: int, kind: str) -> list[dict[str, Any]]:
        """Episodes of the stored run: `all` that arrived while a step was collected, or its `effective` ones."""
        file = self._stored / "rollouts" / f"step_{step}" / "train" / kind / "traces.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()]

    def arrive(self, episodes: Sequence[dict[str, Any]], step: int, kind: str = "train") -> None:
        """Episodes that come back while a step is collected."""
        for episode in episodes:
            self._lines += 1
            now = self._now()
            for trace in episode["traces"]:
                work = episode["run"]["work"]
                trace["info"] |= {
                    "kind": kind,
                    "dispatch": {"step": work["step"], "time": trace["timing"]["start"]},
                    "arrival": {"step": step, "time": now},
                }
                for node in trace["nodes"]:
                    node.pop("advantages", None)  # not known when it arrives
            self.episodes.append(episode, index_row(self._lines, episode, kind, now))

    def ship(self, step: int, episodes: Sequence[dict[str, Any]]) -> None:
        """The batch of a step goes to the trainer."""
        now = self._now()
        for episode in episodes:
            for trace in episode["traces"]:
                info = {"effective": True, "ship": {"step": step, "time": now}}
                branches = [
                    {"index": place, "advantages": spread}
                    for place, path in enumerate(branch_paths(trace["nodes"]))
                    if (spread := spread_advantages([trace["nodes"][node] for node in path])) is not None
                ]
                self._annotate(self.orchestrator, trace["id"], info, branches)

    def train(self, step: int, stored_step: int | None = None) -> None:
        """The trainer takes its step on the batch: what the stored run's token export has, a record a sequence."""
        samples = self._exported(stored_step or step)
        for episode in self.stored(stored_step or step, "effective"):
            for trace in episode["traces"]:
                for place, path in enumerate(branch_paths(trace["nodes"])):
                    ids = [token for node in path for token in trace["nodes"][node]["token_ids"]]
                    logprobs = [value for node in path for value in trace["nodes"][node]["logprobs"]]
                    sample = self._sample_of(samples, ids, logprobs)
                    if sample is not None:
                        self._annotate(self.trainer, trace["id"], {}, [{"index": place, **by_token(sample)}])
        metrics = self.traces.parent / "metrics.jsonl"
        with metrics.open("a") as file:
            for row in ({"optim/lr": 1e-6, "optim/grad_norm": 0.1 * step}, {"loss/mean": 0.01 * step}):
                file.write(json.dumps({"step": step, "time": START + 60 * step, **row, "producer": "trainer"}) + "\n")

    def finish(self) -> None:
        """What `finalize` does: nothing plain is kept."""
        for stream in (self.episodes, self.orchestrator, self.trainer):
            stream.seal()

    def _now(self) -> float:
        """A clock that goes on with everything that happens."""
        self._seconds += 1
        return START + self._seconds

    def _annotate(self, stream: Stream, trace: str, info: dict[str, Any], branches: list[dict[str, Any]]) -> None:
        record = {"version": 1, "trace_id": trace, "info": info, "branches": branches}
        stream.append(record, {"trace_id": trace, "info": info})

    def _exported(self, step: int) -> list[dict[str, Any]]:
        files = sorted((self._stored / "token_exports" / f"step_{step}").glob("rank_*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    @staticmethod
    def _sample_of(samples: list[dict[str, Any]], ids: list[int], logprobs: list[float]) -> dict[str, Any] | None:
        """The sample of a branch; of equal ones that with the same sampled log-probabilities."""
        for place, sample in enumerate(samples):
            own = [value for value, trained in _pairs(sample, "inference_logprobs", sample["loss_mask"]) if trained]
            if sample["token_ids"] == ids and np.allclose(own, logprobs[-len(own) :], atol=1e-4):
                return samples.pop(place)
        return None


def index_row(line: int, episode: Mapping[str, Any], kind: str, arrival: float) -> dict[str, Any]:
    """A row of the episodes' index, without its place."""
    traces = episode["traces"]
    rewards = [sum(each["score"] * each["weight"] for each in trace["rewards"].values()) for trace in traces]
    return {
        "cost": None,
        "line": line,
        "id": episode["id"],
        "kind": kind,
        "trace_ids": [trace["id"] for trace in traces],
        "env": episode["env"]["name"],
        "group": (episode["group"] or {}).get("id"),
        "ok": episode["ok"],
        "num_errors": len(episode["errors"]),
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "advantage": None,
        "input_tokens": episode["num_input_tokens"],
        "output_tokens": episode["num_output_tokens"],
        "turns": sum(node["message"]["role"] == "assistant" for trace in traces for node in trace["nodes"]),
        "branches": sum(len(branch_paths(trace["nodes"])) for trace in traces),
        "stop_condition": next((trace["stop_condition"] for trace in traces), None),
        "truncated": False,
        "dispatch": START,
        "arrival": arrival if traces else None,
        "duration": 10.0,
    }


def branch_paths(nodes: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """From root to leaf, in the order of the leaves."""
    leaves = set(range(len(nodes))) - {node.get("parent") for node in nodes}
    paths = []
    for leaf in sorted(leaves):
        path: list[int] = []
        place: int | None = leaf
        while place is not None:
            path.insert(0, place)
            place = nodes[place].get("parent")
        paths.append(path)
    return paths


def spread_advantages(nodes: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Over all tokens of a branch, 0.0 where nothing was sampled."""
    if all(node.get("advantages") is None for node in nodes):
        return None
    found: list[float] = []
    for node in nodes:
        values = iter(node.get("advantages") or [0.0] * sum(node["mask"]))
        found += [next(values) if sampled else 0.0 for sampled in node["mask"]]
    return found


def by_token(sample: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The trainer's streams over a branch: null outside of its loss mask, and for the first token."""
    mask = [place > 0 and trained for place, trained in enumerate(sample["loss_mask"])]
    streams: dict[str, list[Any]] = {}
    for name, stored in (("trainer_logprobs", "trainer_logprobs"), ("entropies", "entropy")):
        values = _pairs(sample, stored, mask)
        streams[name] = [round(value, DECIMALS) if trained and value is not None else None for value, trained in values]
    streams["is_masked"] = [value if trained else None for value, trained in _pairs(sample, "is_masked", mask)]
    return streams


def _pairs(sample: Mapping[str, Any], name: str, mask: Sequence[bool]) -> Iterator[tuple[Any, bool]]:
    return zip(sample[name], mask, strict=True)


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def evaluation(episode: dict[str, Any], number: int) -> dict[str, Any]:
    """The same as an episode of an evaluation, which has ids of its own and no policy's versions."""
    copy: dict[str, Any] = json.loads(json.dumps(episode))
    copy["id"] = f"{number:032x}"
    copy["run"] |= {"type": "eval", "work": {"type": "eval", "step": 0}}
    for place, trace in enumerate(copy["traces"]):
        trace["id"] = f"{number + place + 1:032x}"
    return copy


def write(root: Path, *, finished: bool = True, **options: int) -> Path:
    """The stored run, whole, with an evaluation before the first step and after the second."""
    stored = unpack("prime_rl", root.parent / f"{root.name}.stored")
    run = Run(root, stored, **options)
    for step in (1, 2, 3):
        if step != 2:
            run.arrive([evaluation(run.stored(1, "all")[0], 10_000 * step)], step, "eval")
        run.arrive(run.stored(step, "all"), step)
        run.ship(step, run.stored(step, "effective"))
        run.train(step)
    if finished:
        run.finish()
    shutil.rmtree(stored.parent)
    return root
