"""The same responses as every layout of rows and lists that a mapping file can describe."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from ratioscope.analysis.importers import Reading, Step
from ratioscope.analysis.importers.mapping import importer_of


@dataclass(frozen=True)
class Response:
    """What was really sampled, and what surrounds it."""

    step: int
    group: int
    prompt: list[int]
    tokens: list[int]
    behavior: list[float]
    current: list[float]
    sampled: list[bool]
    reward: float


def responses(steps: int = 3, each: int = 6) -> list[Response]:
    rng = np.random.default_rng(0)
    found = []
    for step in range(steps):
        for number in range(each):
            n, p = int(rng.integers(1, 9)), int(rng.integers(1, 4))
            sampled = rng.random(n) < 0.7
            logps = np.float64(np.float32(-rng.exponential(size=(2, n))))
            found.append(
                Response(
                    step, number // 2, rng.integers(0, 99, p).tolist(), rng.integers(0, 99, n).tolist(),
                    logps[0].tolist(), logps[1].tolist(), sampled.tolist(), float(np.float32(rng.normal())),
                )
            )  # fmt: skip
    return found


ALL = responses()


def expected(found: list[Response], masked: bool = True) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """By step: (seq, group, position, token, behavior, current) of the sampled tokens, by a loop."""
    steps = []
    for step in sorted({response.step for response in found}):
        rows = []
        for seq, response in enumerate(one for one in found if one.step == step):
            position = 0
            for place, token in enumerate(response.tokens):
                if masked and not response.sampled[place]:
                    continue
                rows.append((seq, response.group, position, token, response.behavior[place], response.current[place]))
                position += 1
        steps.append((step, rows))
    return steps


def rows_of(steps: list[Step]) -> list[tuple[int, list[tuple[Any, ...]]]]:
    names = ("seq_id", "group_id", "position", "token_id", "logp_behavior", "logp_current")
    found = []
    for step in steps:
        assert step.tokens is not None
        listed = [np.asarray(step.tokens[name]).tolist() for name in names]
        found.append((step.number, list(zip(*listed, strict=True))))
    return found


def written(folder: Path, rows: list[dict[str, Any]], kind: str, name: str = "data") -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.{kind}"
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=4)
    elif kind in ("jsonl.zst", "jsonl.gz"):
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        parts = [text[:100], text[100:]]  # several frames, as what is appended gives
        pack = gzip.compress if kind == "jsonl.gz" else lambda part: pa.compress(part, codec="zstd", asbytes=True)
        file.write_bytes(b"".join(pack(part) for part in parts))
    elif kind == "json":
        file.write_text(json.dumps(rows))
    elif kind == "db":
        with closing(sqlite3.connect(file)) as store, store:
            store.execute("CREATE TABLE other (x)")
            store.execute(f"CREATE TABLE data ({', '.join(rows[0])})")
            for row in rows:
                texts = [json.dumps(value) if isinstance(value, list | dict) else value for value in row.values()]
                store.execute(f"INSERT INTO data VALUES ({', '.join('?' * len(row))})", texts)
    elif kind == "feather":
        feather.write_feather(pa.Table.from_pylist(rows), file, chunksize=5)
    else:
        table = pa.Table.from_pylist(rows)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=5)
    return file


def mapped(folder: Path, text: str) -> Any:
    file = folder.parent / "mapping.toml"
    file.write_text(text)
    return importer_of(file)


def steps_of(folder: Path, text: str, **reading: Any) -> list[Step]:
    importer = mapped(folder, text)
    assert importer.describe(folder) is not None
    return list(importer.read(folder, Reading(**reading)))


COLUMNS = """
[tokens.columns]
token_id = "ids"
logp_behavior = "mu"
logp_current = "old"
[sequences.columns]
group_id = "uid"
reward = "score"
"""


def meta(response: Response) -> dict[str, Any]:
    return {"k": response.step, "uid": f"g{response.group}", "score": response.reward}


def ints(values: list[bool]) -> list[int]:
    return [int(value) for value in values]


def response_alone(r: Response) -> dict[str, Any]:
    return meta(r) | {"ids": r.tokens, "mu": r.behavior, "old": r.current, "m": ints(r.sampled)}


def with_prompt(r: Response) -> dict[str, Any]:
    """Whole sequences with placeholders, and one column for the response alone."""
    p = len(r.prompt)
    return meta(r) | {
        "ids": r.prompt + r.tokens, "mu": [0.0] * p + r.behavior, "old": r.current, "p": p,
        "m": [0] * p + ints(r.sampled),
    }  # fmt: skip


def shifted(r: Response) -> dict[str, Any]:
    """The value at i is about token i + 1, as logits are; mu is cut at the end, old is rolled."""
    whole = with_prompt(r)
    old = [0.0] * len(r.prompt) + r.current
    return whole | {"mu": whole["mu"][1:], "old": [*old[1:], 7.0]}


def padded(side: str) -> Callable[[Response], dict[str, Any]]:
    def row(r: Response) -> dict[str, Any]:
        def pad(values: list[Any], width: int, filler: Any) -> list[Any]:
            extra = [filler] * (width - len(values))
            return extra + values if side == "left" else values + extra

        return meta(r) | {
            "ids": pad(r.tokens, 10, 0), "mu": pad(r.behavior, 10, 0.0), "old": pad(r.current, 10, 0.0),
            "m": pad(ints(r.sampled), 10, 0), "n": len(r.tokens),
        }  # fmt: skip

    return row


def left_padded_whole(r: Response) -> dict[str, Any]:
    """Whole sequences aligned at their ends, and shorter lists of the response aligned likewise."""
    whole = r.prompt + r.tokens
    mask = ints(r.sampled)
    return meta(r) | {
        "ids": [0] * (16 - len(whole)) + whole, "mu": [0.0] * (9 - len(mask)) + r.behavior,
        "old": [0.0] * (9 - len(mask)) + r.current, "m": [0] * (9 - len(mask)) + mask,
    }  # fmt: skip


LAYOUTS: dict[str, tuple[Callable[[Response], dict[str, Any]], str, bool]] = {
    "the response alone": (response_alone, "mask = 'm'", True),
    "without a mask": (response_alone, "", False),
    "prompt and response": (with_prompt, "mask = 'm'\nprompt_length = 'p'", True),
    "prompt and response without a mask": (with_prompt, "prompt_length = 'p'", False),
    "shifted": (shifted, "mask = 'm'\nprompt_length = 'p'\nshifted = ['logp_behavior', 'logp_current']", True),
    "padded right": (padded("right"), "mask = 'm'\npadding = 'right'", True),
    "padded right by length": (padded("right"), "length = 'n'\npadding = 'right'", False),
    "padded left": (padded("left"), "mask = 'm'\npadding = 'left'\nlength = 'n'", True),
    "padded left by length": (padded("left"), "length = 'n'\npadding = 'left'", False),
    "whole and response, both left": (left_padded_whole, "mask = 'm'\npadding = 'left'", True),
}


def with_turns(r: Response) -> dict[str, Any]:
    """A response in pieces with a tool between them, and what is known of it in an object beside these."""
    half = len(r.tokens) // 2
    pieces = [
        {"ids": r.tokens[at], "mu": r.behavior[at], "old": r.current[at], "m": ints(r.sampled[at])}
        for at in (slice(0, half), slice(half, None))
    ]
    about = {"group": {"name": f"g{r.group}"}, "scores": [0.25, r.reward], "age": 2}
    return {"k": r.step, "data": {"items": [pieces[0], {"tool": "ls"}, pieces[1]], **about}}


TURNS = """
mask = "data.items[*].m"
[tokens.columns]
token_id = "data.items[*].ids"
logp_behavior = "data.items[*].mu"
logp_current = "data.items[*].old"
behavior_version = "k - data.age + 7"
[sequences.columns]
group_id = "data.group.name"
reward = "data.scores[-1]"
"""


def groups_of_lists(found: list[Response]) -> list[dict[str, Any]]:
    """A row is a group, as Atropos writes them: lists of lists, and labels in place of a mask."""
    keys = dict.fromkeys((r.step, r.group) for r in found)
    groups = [[r for r in found if (r.step, r.group) == key] for key in keys]
    return [
        {
            "k": of[0].step,
            "prompt": [{"role": "user", "content": "x"}] * 2,
            "ids": [r.prompt + r.tokens for r in of],
            "mu": [[0.0] * len(r.prompt) + r.behavior for r in of],
            "old": [r.current for r in of],
            "labels": [[-100] * len(r.prompt) + labels(r) for r in of],
            "p": [len(r.prompt) for r in of],
            "score": [r.reward for r in of],
        }
        for of in groups
    ]


def steps_of_objects(found: list[Response]) -> list[dict[str, Any]]:
    """A row is a step whose groups have their responses as objects, with what is known of a group beside these."""
    return [
        {
            "k": step,
            "groups": [
                {
                    "uid": f"g{group}",
                    "answers": [response_alone(r) for r in found if (r.step, r.group) == (step, group)],
                }
                for group in dict.fromkeys(r.group for r in found if r.step == step)
            ],
        }
        for step in dict.fromkeys(r.step for r in found)
    ]


def labels(r: Response) -> list[int]:
    return [token if sampled else -100 for token, sampled in zip(r.tokens, r.sampled, strict=True)]


def steps_of_lists(found: list[Response]) -> list[dict[str, Any]]:
    """A row is a step, as ms-swift writes them: each column a list with an entry per response."""
    steps = [[r for r in found if r.step == step] for step in dict.fromkeys(r.step for r in found)]
    return [
        {"k": [r.step for r in of], "q": [[{"role": "user", "content": f"{r.group}"}] for r in of]}
        | {name: [response_alone(r)[name] for r in of] for name in ("uid", "score", "ids", "mu", "old", "m")}
        for of in steps
    ]
