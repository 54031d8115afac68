"""Sources that are followed: a look reads what is new and no more, and all looks together find what one look does."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ratioscope.analysis.importers import Importer, Reading, Step
from ratioscope.analysis.importers.formats import ms_swift, open_instruct, prime_rl, tinker_capture, tinker_cookbook
from tests.making.foreign import imitated_ms_swift, imitated_open_instruct, truth
from tests.making.foreign.imitated_nemo_rl import batch
from tests.making.foreign.imitated_prime_rl import START, Stream, index_row
from tests.making.foreign.policy import Policy

STEPS = 40
Growth = Iterator[None]
"""A source that is a step longer at each turn, beginning with none."""


def text(rows: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def appended(file: Path, rows: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        opened.write(text(rows))


def of_open_instruct(folder: Path) -> Growth:
    """Shards of seven steps, in which lines of neighbouring steps change places."""
    policy, late = Policy(9), list[Any]()
    for step in range(STEPS):
        rows = [imitated_open_instruct.record(step, place, one) for place, one in enumerate(batch(policy, step))]
        appended(folder / f"tiny_rollouts_{step // 7:06d}.jsonl", [*rows[:3], *late, *rows[3:6]])
        late = rows[6:]
        yield


def of_ms_swift(folder: Path) -> Growth:
    """Each generation is logged twice, once with an evaluation behind it."""
    for number, step in enumerate(truth.run(STEPS)):
        more = [*step[2:], *step[:2]]
        appended(
            folder / "completions.jsonl",
            [
                {"step": [str(2 * number + update)] * len(rows), **imitated_ms_swift.table(rows)}
                for update, rows in ((1, step), (2, step), *([(2, more)] if number == 3 else []))
            ],
        )
        yield


def of_ray(folder: Path) -> Growth:
    for number, step in enumerate(truth.run(STEPS)):
        rows = [{"gen_step": number, "prompt": one.prompt, "completion": one.response, "reward": 1.0} for one in step]
        appended(folder / "completions.jsonl", rows)
        yield


def _call(step: int, number: int, policy: Policy, scope: dict[str, Any], most: int = 16) -> dict[str, Any]:
    one = policy.respond([5, 6], 4, 0.0)
    return {
        "kind": "sample",
        "scope": {"run_id": "tiny", "split": "train", **scope},
        "created_at": START + 60 * step + number,
        "sampling_session_id": "s",
        "seq_id": 10 * step + number,
        "model_path": "tinker://tiny/1",
        "prompt_tokens": one.prompt,
        "sampling_params": {"max_tokens": most},
        "samples": [{"tokens": one.tokens, "logprobs": [float(x) for x in one.sampled], "stop_reason": "stop"}],
        "status": "ok",
        "latency_sec": 0.5,
    }


def of_capture(folder: Path, *, named: bool = True) -> Growth:
    """Calls of two trajectories, one of them a step early and written twice; the last of each step only scores."""
    policy = Policy(3)
    for step in range(STEPS):

        def scope(at: int, place: int) -> dict[str, Any]:
            return {"iteration": at, "group_idx": 0, "traj_idx": place} if named else {}

        early = _call(step + 1 if named else step, 1, policy, scope(step + 1, 1))
        rows = [_call(step, 0, policy, scope(step, 0)), early, early, _call(step, 9, policy, scope(step, 2), most=1)]
        appended(folder / "sample.jsonl", rows)
        row = {"op": "optim_step", "status": "ok", "created_at": START + 60 * step + 30}
        appended(folder / "train_op.jsonl", [row])
        yield


def of_unnamed_calls(folder: Path) -> Growth:
    return of_capture(folder, named=False)


def of_cookbook(folder: Path) -> Growth:
    for step, _ in enumerate(of_capture(folder / "capture")):
        row = {"iteration": step, "group_idx": 0, "total_reward": 1.0, "steps": [{"ac_len": 4}]}
        place = folder / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl"
        appended(place, [row | {"traj_idx": traj} for traj in (0, 1)])
        appended(folder / "metrics.jsonl", [{"step": step, "optim/lr": 0.5 + step}])
        yield


def of_prime_rl(folder: Path) -> Growth:
    """Four episodes a step, of which one is shipped two steps late, and one never."""
    traces = folder / "monitors" / "file" / "traces"
    episodes, shipped, trained = (
        Stream(traces / name) for name in ("stream", "annotations/orchestrator", "annotations/trainer")
    )
    for step in range(1, STEPS + 1):
        for number in range(4):
            name = f"{step}-{number}"
            lists = {"token_ids": [1, 2, 3], "mask": [True] * 3, "logprobs": [-0.5, -0.25, -step / 8]}
            node = {"parent": None, "sampled": True, "message": {"role": "assistant", "content": "x"}, **lists}
            trace = {
                "id": name,
                "ok": True,
                "stop_condition": "stop",
                "rewards": {"r": {"score": number, "weight": 1.0}},
                "nodes": [node],
            }
            episode = {"id": name, "env": {"name": "maths"}, "group": {"id": f"{step}"}, "ok": True, "errors": []}
            episode |= {"traces": [trace | {"calls": []}], "num_input_tokens": 0, "num_output_tokens": 3}
            episodes.append(episode, index_row(4 * step + number, episode, "train", START + 60 * step + number))
        names = [f"{step}-0", f"{step}-1", *([f"{step - 2}-2"] if step > 2 else [])]
        for name in names:
            row = {"trace_id": name, "info": {"ship": {"step": step, "time": START + 60 * step + 30}}}
            shipped.append({"version": 1, **row, "branches": [{"index": 0, "advantages": [0.5] * 3}]}, row)
        for name in names:
            row = {"trace_id": name, "info": {}}
            lists = {"trainer_logprobs": [-0.5, None, -0.75], "is_masked": [False, None, True]}
            trained.append({"version": 1, **row, "branches": [{"index": 0, **lists}]}, row)
        appended(folder / "monitors" / "file" / "metrics.jsonl", [{"step": step, "loss/mean": step / 2}])
        yield


SOURCES: dict[str, tuple[Importer, Callable[[Path], Growth]]] = {
    "open-instruct": (open_instruct.IMPORTER, of_open_instruct),
    "ms-swift": (ms_swift.IMPORTER, of_ms_swift),
    "ms-swift on Ray": (ms_swift.IMPORTER, of_ray),
    "tinker-capture": (tinker_capture.IMPORTER, of_capture),
    "tinker-capture, without iterations": (tinker_capture.IMPORTER, of_unnamed_calls),
    "tinker-cookbook": (tinker_cookbook.IMPORTER, of_cookbook),
    "prime-rl": (prime_rl.IMPORTER, of_prime_rl),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Importer, Growth, Path]:
    importer, grow = SOURCES[request.param]
    return importer, grow(tmp_path / "theirs"), tmp_path / "theirs"


class Follower:
    """Looks at a source again and again, as `follow_run` does."""

    def __init__(self, importer: Importer, path: Path) -> None:
        self.importer, self.path, self.kept = importer, path, Reading()
        self.steps: list[Step] = []
        self.sizes: list[int] = []
        """Bytes that each look read."""

    def look(self, *, growing: bool = True) -> None:
        after = self.steps[-1].number if self.steps else -1
        kept = self.kept
        reading = Reading(after=after, growing=growing, places=kept.places, taken=kept.taken, judged=kept.judged)
        self.steps += self.importer.read(self.path, reading)
        assert reading.problems == []
        self.sizes.append(reading.bytes_read)

    @property
    def remembered(self) -> int:
        return sum(map(len, self.kept.places.values()))


def told(steps: Sequence[Step]) -> list[str]:
    return [repr((step.number, _trained(step.sequences), _lists(step.tokens or {}), step.scalars)) for step in steps]


def _trained(sequences: Any) -> dict[str, list[Any]]:
    """Without the dropped, which a source says only steps later."""
    columns = _lists(sequences)
    dropped = columns.pop("dropped", None)
    if dropped is None:
        return columns
    kept = {name: [v for v, why in zip(of, dropped, strict=True) if why is None] for name, of in columns.items()}
    return {name: values for name, values in kept.items() if any(value is not None for value in values)}


def _lists(columns: Any) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in columns.items()}


def test_a_look_reads_what_is_new_and_all_looks_find_what_one_does(source: tuple[Importer, Growth, Path]) -> None:
    importer, growth, path = source
    follower = Follower(importer, path)
    remembered = []
    for number, _ in enumerate(growth):
        if number < 3:
            continue  # so much has to be there to be told as what it is
        follower.look()
        remembered.append(follower.remembered)
    assert len(follower.steps) >= STEPS - 5
    follower.look(growing=False)
    whole = Reading()
    assert told(follower.steps) == told(list(importer.read(path, whole)))
    # Later looks read no more than early ones do, though the source has become three times as long.
    early, late = follower.sizes[9:14], follower.sizes[-6:-1]
    assert max(late) < 1.3 * max(early) and max(late) < 0.6 * whole.bytes_read, follower.sizes
    assert max(remembered[-5:]) <= 1.3 * max(remembered[9:14]) + 6, remembered


def test_a_line_that_is_being_written_waits_and_a_file_that_is_another_one_is_read_anew(
    source: tuple[Importer, Growth, Path],
) -> None:
    importer, growth, path = source
    files = dict[Path, bytes]()
    for number, _ in enumerate(growth):
        if number == 20:
            files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    whole = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    follower = Follower(importer, path)
    for file, contents in whole.items():
        if file not in files:
            file.unlink()
        elif files[file] != contents:
            file.write_bytes(files[file][:-7])  # within its last line
    follower.look()
    seen = len(follower.steps)
    for file, contents in whole.items():
        file.write_bytes(contents)
    follower.look(growing=False)
    assert 0 < seen < len(follower.steps)
    assert told(follower.steps) == told(list(importer.read(path, Reading())))
    again = Follower(importer, path)
    again.look()
    for file in again.kept.places:  # the same lines, elsewhere
        file.write_bytes(whole[file].replace(b"\n", b" \n", 1))
    again.steps = again.steps[:5]
    again.look(growing=False)
    assert told(again.steps) == told(follower.steps)


@pytest.mark.parametrize("grow", [of_ms_swift, of_ray])
def test_first_batches_are_judged_once_a_file(
    grow: Callable[[Path], Growth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, judged = Follower(ms_swift.IMPORTER, tmp_path), list[int]()
    first = ms_swift._first
    monkeypatch.setattr(ms_swift, "_first", lambda file: judged.append(file.stat().st_ino) or first(file))
    for number, _ in enumerate(grow(tmp_path)):
        if number > 2:
            follower.look()
    assert 2 < len(judged) < 12  # at each look until there are eight
    seen, file = len(judged), tmp_path / ms_swift._NAME
    file.with_name("new").write_bytes(file.read_bytes().replace(b"\n", b" \n"))
    file.with_name("new").replace(file)
    follower.look()
    assert len(judged) == seen + 1  # which is another one
