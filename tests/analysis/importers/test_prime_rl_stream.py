"""prime-rl since September 2026: the stream of traces with its annotations, whole, growing, resumed and damaged."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, Step
from ratioscope.analysis.importers.detect import detect
from ratioscope.analysis.importers.formats import IMPORTERS, prime_rl
from ratioscope.analysis.importers.formats.chunks import Chunks
from ratioscope.analysis.importers.formats.prime_rl_stream import Layout, annotated
from ratioscope.analysis.importers.formats.traces import told
from ratioscope.analysis.importers.source import BadLine
from ratioscope.analysis.importers.writing import Options, import_run
from tests.making.foreign import imitated_prime_rl as imitated
from tests.making.foreign.packed import unpack
from tests.making.foreign.reading import column, steps_of
from tests.making.loops import in_one_loop


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return unpack("prime_rl", tmp_path / "stored")


def lists(step: Step) -> list[dict[str, list[Any]]]:
    """By trained response its token columns, in an order that does not depend on that of the files."""
    dropped = step.sequences.get("dropped") or [None] * len(step.sequences["seq_id"])
    names = [name for name in step.tokens or {} if name not in ("seq_id", "group_id")]
    rows = [
        {name: column(step, name, place).tolist() for name in names} for place, why in enumerate(dropped) if why is None
    ]
    return sorted(rows, key=lambda row: (row["token_id"], np.round(row["logp_behavior"], 3).tolist()))


def read(run: Path, **reading: Any) -> list[Step]:
    return list(prime_rl.read(run, Reading(**reading)))


def numbers(steps: list[Step]) -> list[int]:
    return [step.number for step in steps]


def test_it_is_the_run_that_the_older_layout_tells(tmp_path: Path, stored: Path) -> None:
    """The same run, from token exports in full precision and from annotations in four decimals."""
    run = imitated.write(tmp_path / "run", chunk_bytes=20_000, frame_bytes=3_000)
    described = prime_rl.describe(run)
    assert described is not None and set(described.missing) == {"logp_new", "logp_behavior_train"}
    assert described.manifest["log_probability_decimals"] == 4 and described.manifest["planned_updates"] == 3
    assert described.manifest["algorithm"]["name"] == "grpo (ipo loss)"
    older, newer = steps_of(prime_rl.IMPORTER, stored), steps_of(prime_rl.IMPORTER, run)
    assert numbers(newer) == numbers(older) == [1, 2, 3]
    hit = 0
    for old, new in zip(older, newer, strict=True):
        wanted = {**old.scalars, "policy_version": old.number - 1}
        assert {name: new.scalars[name] for name in wanted} == wanted
        before, after = lists(old), lists(new)
        assert len(before) == len(after) > 0
        for one, other in zip(before, after, strict=True):
            assert one["token_id"] == other["token_id"] and one["behavior_version"] == other["behavior_version"]
            for name in ("logp_behavior", "logp_current", "advantage", "entropy"):
                np.testing.assert_allclose(one[name], other[name], atol=5.1e-5, err_msg=name)
            assert one["clipped"] == other["clipped"] and one["gate"] == other["gate"]
            rose = np.array(other["logp_current"]) > np.array(other["logp_behavior"])
            side = np.where(other["clipped"], np.where(rose, 1, -1), 0)
            assert other["clip_side"] == side.tolist()
            hit += sum(other["clipped"])
        for name in ("reward", "dropped", "group_id"):
            old_values, new_values = (sorted(map(str, step.sequences.get(name, []))) for step in (old, new))
            if name != "dropped":
                assert old_values == new_values, name
            else:
                assert [why == "None" for why in old_values] == [why == "None" for why in new_values]
    assert hit > 0
    for place in (run / "monitors", run / "monitors/file", run / "monitors/file/traces"):
        found = prime_rl.describe(place)
        assert found is not None and found.path == run
        assert [importer.name for importer in IMPORTERS if importer.describe(place)] == ["prime-rl"]


def test_sealed_or_live_in_one_chunk_or_many_it_is_the_same(tmp_path: Path) -> None:
    whole = read(imitated.write(tmp_path / "a", finished=False))
    for name, options in (("one frame", {}), ("frames", {"frame_bytes": 700}), ("chunks", {"chunk_bytes": 9_000})):
        steps = read(imitated.write(tmp_path / name, **options))
        assert [lists(step) for step in steps] == [lists(step) for step in whole], name


def test_evaluations_are_no_training(tmp_path: Path, stored: Path) -> None:
    """Nor would they be if somebody had annotated one as shipped."""
    run = imitated.Run(tmp_path / "run", stored)
    asked = imitated.evaluation(run.stored(1, "all")[0], 77)
    run.arrive([asked], 1, "eval")
    with pytest.raises(ImportProblem, match="nothing in it was shipped to a trainer, so it has no step"):
        read(tmp_path / "run")
    run.arrive(run.stored(1, "all"), 1)
    run.ship(1, [*run.stored(1, "effective"), asked])
    run.train(1)
    run.finish()
    (step,) = read(tmp_path / "run")
    arrived = sum(len(told(episode)) for episode in run.stored(1, "all"))
    assert len(step.sequences["seq_id"]) == arrived


def test_a_run_that_is_followed_has_every_step_once_and_whole(tmp_path: Path, stored: Path) -> None:
    """It is looked at after every write: half-written lines, an annotation that comes late, a chunk that is sealed."""
    run = imitated.Run(tmp_path / "run", stored, chunk_bytes=12_000)
    seen: list[Step] = []

    def look(expected: list[int]) -> None:
        seen.extend(read(tmp_path / "run", after=seen[-1].number if seen else -1, growing=True))
        assert numbers(seen) == expected

    run.arrive(run.stored(1, "all"), 1)
    look([])
    run.ship(1, run.stored(1, "effective"))
    look([])
    run.train(1)
    look([])  # nothing says that this is all of it
    run.arrive(run.stored(2, "all"), 2)
    run.ship(2, run.stored(2, "effective"))
    look([])  # the trainer may still be writing
    run.train(2)
    look([1])
    run.arrive(run.stored(3, "all")[:2], 3)
    run.episodes.seal()  # what was read live is read again sealed
    run.episodes.chunk += 1
    with run.episodes.index.open("ab") as file:
        file.write(b'{"line": 99, "kind": "tra')  # half a line: it is left for later
    look([1])
    run.episodes.index.write_bytes(run.episodes.index.read_bytes().rpartition(b"\n")[0] + b"\n")
    run.arrive(run.stored(3, "all")[2:], 3)
    run.ship(3, run.stored(3, "effective"))
    look([1])
    run.train(3)
    look([1, 2])
    run.finish()
    seen.extend(read(tmp_path / "run", after=2))
    assert [lists(step) for step in seen] == [lists(step) for step in read(tmp_path / "run")]
    assert numbers(seen) == [1, 2, 3]
    assert not any(np.isnan(row["logp_current"]).any() for step in seen for row in lists(step))


def test_an_annotation_that_comes_later_is_waited_for(tmp_path: Path, stored: Path) -> None:
    """An import of a running run takes what is trained; the same command adds the rest, whole."""
    run = imitated.Run(tmp_path / "run", stored)
    for step in (1, 2):
        run.arrive(run.stored(step, "all"), step)
        run.ship(step, run.stored(step, "effective"))
    assert read(tmp_path / "run") == []
    run.train(1)
    (found,) = detect(tmp_path / "run")
    done = import_run(found, tmp_path / "runs" / "a", Options())
    assert (done.steps, done.last_step) == (1, 1)
    run.train(2)
    run.finish()
    assert import_run(found, tmp_path / "runs" / "a", Options()).last_step == 2
    (late,) = read(tmp_path / "run", after=1)
    assert not any(np.isnan(row["logp_current"]).any() for row in lists(late))


def test_a_trainer_that_annotates_nothing_holds_nothing_up(tmp_path: Path, stored: Path) -> None:
    run = imitated.Run(tmp_path / "run", stored)
    for step, episode in enumerate(run.stored(1, "all")[:5], start=1):
        run.arrive([episode], step)
        run.ship(step, [episode])
    unsaid = {"logp_current", "entropy", "clipped"}
    described = prime_rl.describe(tmp_path / "run")
    assert described is not None and not unsaid & described.missing.keys()  # it may come
    assert numbers(read(tmp_path / "run", growing=True)) == [1, 2]
    run.finish()
    described = prime_rl.describe(tmp_path / "run")
    assert described is not None and unsaid <= described.missing.keys()
    assert numbers(read(tmp_path / "run")) == [1, 2, 3, 4, 5]


def test_a_run_that_was_resumed_has_its_last_attempt(tmp_path: Path, stored: Path) -> None:
    run = imitated.Run(tmp_path / "run", stored)
    for step in (1, 2):
        run.arrive(run.stored(step, "all"), step)
        run.ship(step, run.stored(step, "effective"))
        run.train(step)
    run.arrive(run.stored(3, "all"), 2)  # the checkpoint was that of step 1
    run.ship(2, run.stored(3, "effective"))
    run.train(2, stored_step=3)
    run.finish()
    first, second = read(tmp_path / "run")
    shipped = sum(len(told(episode)) for episode in run.stored(3, "effective"))
    why = second.sequences["dropped"]
    assert list(why).count(None) == shipped and any("went back" in str(reason) for reason in why)
    assert numbers([first, second]) == [1, 2]
    assert [lists(step) for step in read(tmp_path / "run", after=1)] == [lists(second)]


def trace(*lengths: int) -> dict[str, Any]:
    """A conversation of a prompt of two tokens and sampled messages, each with one token of the template before."""
    nodes: list[dict[str, Any]] = [
        {"parent": None, "message": {"role": "user", "content": "a"}, "token_ids": [1, 2], "mask": [False, False]}
    ]
    for place, length in enumerate(lengths):
        nodes.append(
            {
                "parent": place,
                "message": {"role": "assistant", "content": "b"},
                "sampled": True,
                "token_ids": [3, *range(10, 10 + length)],
                "mask": [False] + [True] * length,
                "logprobs": [-1.0] * length,
            }
        )
    return {"id": "t", "nodes": nodes}


def note(**streams: list[Any]) -> dict[str, Any]:
    return {"version": 1, "trace_id": "t", "info": {}, "branches": [{"index": 0, **streams}]}


def tokens_of(one: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = told({"traces": [one]})
    assert found.tokens is not None
    return found.tokens


def test_an_annotation_tells_what_it_covers_and_nothing_else() -> None:
    none = [None] * 3
    current, masked = [*none, -0.9, -0.8, None, None], [*none, False, True, False, None]
    tokens = tokens_of(annotated(trace(4), [note(trainer_logprobs=current, is_masked=masked)]))
    values = tokens["logp_current"]
    assert np.ma.getmaskarray(values).tolist() == [False, False, False, True]
    assert np.isnan(np.ma.getdata(values)[2])  # in the loss, so its value was not finite
    assert list(tokens["rejected"]) == [None, None, None, "not in the loss"]
    assert tokens["clipped"].tolist() == [False, True, False, None] and tokens["clip_side"].tolist() == [0, 1, 0, None]
    # a trainer with a limit of length: what is beyond it was in no loss
    short = tokens_of(annotated(trace(2, 2), [note(trainer_logprobs=[*none, -0.9], is_masked=[*none, False])]))
    assert list(short["rejected"]) == [None, *["not in the loss"] * 3]
    # the newest says, and one that says nothing of a message leaves what is there
    notes = [note(advantages=[0.0] * 3 + [1.0, 1.0]), note(advantages=[None] * 5), note(entropies=[None] * 5)]
    assert tokens_of(annotated(trace(2), notes))["advantage"].tolist() == [1.0, 1.0]
    two = tokens_of(annotated(trace(2), [*notes, note(advantages=[0.0] * 3 + [2.0, 2.0])]))
    assert two["advantage"].tolist() == [2.0, 2.0] and "entropy" not in two


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_an_annotation_is_read_with_the_nulls_of_its_lists(tmp_path: Path, separators: tuple[str, str]) -> None:
    written = note(advantages=[None, None, None, 1.0, 1.0], trainer_logprobs=[None, None, None, -0.9, None])
    written["branches"][0] |= {"entropies": None, "is_masked": [None, None, None, False, True]}
    traces = tmp_path / "traces"
    (traces / "annotations" / "trainer").mkdir(parents=True)
    (traces / "annotations" / "trainer.index.jsonl").touch()
    text = json.dumps(written, separators=separators) + "\n"
    (traces / "annotations" / "trainer" / "00000.jsonl").write_text(text)
    read_back = Layout(tmp_path, traces).annotations["trainer"].record(0, 0)
    told_of = [tokens_of(annotated(trace(2), [one])) for one in (written, read_back)]
    for name in ("advantage", "logp_current", "clipped", "gate"):
        assert str(list(told_of[0][name])) == str(list(told_of[1][name]))
    assert "entropy" not in told_of[1] and np.isnan(told_of[1]["logp_current"][1])


TRACES = Path("monitors/file/traces")


def row(index: str, line: int, **values: Any) -> Callable[[Path], None]:
    """A row of an index with other values; "" takes a key away."""

    def change(run: Path) -> None:
        file = run / TRACES / index
        rows = file.read_text().splitlines()
        changed = json.loads(rows[line]) | values
        rows[line] = json.dumps({key: value for key, value in changed.items() if value != ""})
        file.write_text("\n".join(rows) + "\n")

    return change


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda run: (run / TRACES / name).write_bytes((run / TRACES / name).read_bytes()[:-size]) and None


def bomb(run: Path) -> None:
    file = run / TRACES / "stream/00001.jsonl.zst"
    data = bytearray(file.read_bytes())
    table = len(data) - 9 - 8 * int.from_bytes(data[-9:-5], "little")
    data[table + 4 : table + 8] = (2**31).to_bytes(4, "little")
    file.write_bytes(bytes(data))


DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no offset": (row("stream.index.jsonl", 3, offset=""), "line 4: a row without offset"),
    "a place that is none": (row("stream.index.jsonl", 3, chunk="../../x"), "line 4: chunk '../../x' and offset"),
    "an offset amid a record": (row("stream.index.jsonl", 3, offset=7), "line 4: no whole record begins at byte 7"),
    "an offset beyond": (row("stream.index.jsonl", 3, offset=10**9), "line 4: no whole record begins at byte"),
    "an annotation of nothing": (row("annotations/trainer.index.jsonl", 0, trace_id=""), "line 1: a row without trace"),
    "a sealed chunk that is cut": (cut("stream/00001.jsonl.zst", 20), "the table of its frames is missing at its end"),
    "a frame that claims too much": (bomb, "claims to hold 2,147,483,648 bytes"),
    "a chunk that is missing": (lambda run: (run / TRACES / "stream/00002.jsonl.zst").unlink(), "chunk 2 of .*missing"),
    "a torn index": (cut("stream.index.jsonl", 9), "the file ends within this line"),
}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return imitated.write(tmp_path / "whole", chunk_bytes=20_000, frame_bytes=3_000)


@in_one_loop("damage", DAMAGED)
def test_what_is_damaged_is_a_sentence_with_the_line_of_the_index(
    damage: tuple[Callable[[Path], None], str], whole: Path, tmp_path: Path
) -> None:
    change, said = damage
    run = Path(shutil.copytree(whole, tmp_path / "damaged"))
    try:
        change(run)
        with pytest.raises(ImportProblem, match=said):
            read(run)
        reading = Reading(skip_bad=True)
        assert list(prime_rl.read(run, reading)) and reading.problems
    finally:
        shutil.rmtree(run)


def test_an_annotation_of_another_kind_is_said() -> None:
    for wrong in ({**note(), "version": 2}, {**note(), "branches": [{"index": 5}]}):
        with pytest.raises(BadLine, match="an annotation of"):
            annotated(trace(1), [wrong])


def test_a_record_is_found_across_frames_and_beside_its_twin(tmp_path: Path) -> None:
    """Its offset is the same live, sealed, and for the moment in which both are there."""
    stream = imitated.Stream(tmp_path / "stream", frame_bytes=16)
    records = [{"place": place, "text": "x" * (7 * place)} for place in range(9)]
    for record in records:
        stream.append(record, {})
    places = [json.loads(line) for line in stream.index.read_text().splitlines()]
    live = [Chunks(stream.folder).record(row["chunk"], row["offset"]) for row in places]
    before = stream.live.read_bytes()
    stream.seal()
    sealed = [Chunks(stream.folder).record(row["chunk"], row["offset"]) for row in places]
    stream.live.write_bytes(before)
    both = [Chunks(stream.folder).record(row["chunk"], row["offset"]) for row in places]
    assert live == sealed == both == records
