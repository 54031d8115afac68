"""A run that was stopped, however rudely, and resumed is the run that was never stopped."""

import multiprocessing
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from ratioscope import Manifest, RatioscopeError, RunFormatError, RunRecorder
from ratioscope.run_format.schema import FileName
from ratioscope.trainer.training import checkpoint, record
from ratioscope.trainer.training.checkpoint import CHECKPOINT_NAME
from ratioscope.trainer.training.loop import Trainer, configuration_to_resume
from ratioscope.trainer.training.update import Learner
from tests.making.train_until_killed import RUNS
from tests.making.training import RESUMABLE, fork_processes, same_tables, small, table, train

ROOT = Path(__file__).parents[3]
UPDATES = 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """The run that was never stopped."""
    return train(small(*RESUMABLE), tmp_path_factory.mktemp("whole") / "run").folder


def go_on(folder: Path, **options: Callable[[], bool]) -> str:
    """Resume as the command line does: with the configuration that the run itself holds."""
    return train(configuration_to_resume(folder, []), folder, resume=True, **options).status


def stop_after(updates: int) -> Callable[[], bool]:
    remaining = iter(range(updates - 1, -1, -1))
    return lambda: next(remaining) == 0


def last_step_on_disk(folder: Path) -> int:
    files = [FileName.parse(path.name) for path in folder.glob("steps/*.parquet")]
    return max((file.last_step for file in files if file), default=-1)


def next_update(folder: Path) -> int:
    """Where the checkpoint would go on."""
    state = checkpoint.load_checkpoint(folder)
    return 0 if state is None else int(state["next_update"])


@pytest.mark.parametrize("updates", [3, 4])
def test_a_stopped_run_says_so_and_goes_on_as_if_it_had_not_been(whole: Path, tmp_path: Path, updates: int) -> None:
    folder = tmp_path / "run"
    assert train(small(*RESUMABLE), folder, should_stop=stop_after(updates)).status == "interrupted"
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.status_reason) == ("interrupted", "stopped by the user")
    assert last_step_on_disk(folder) == updates - 1
    assert go_on(folder) == "finished"
    assert Manifest.read(folder).status == "finished"
    assert same_tables(folder, whole)


def test_a_run_that_something_else_stops_says_why(tmp_path: Path) -> None:
    trainer = Trainer(small(*RESUMABLE), tmp_path / "run")
    assert trainer.run(lambda progress: None, stop_after(1), lambda: "critical finding: it is so.") == "interrupted"
    assert Manifest.read(tmp_path / "run").status_reason == "critical finding: it is so."


def test_a_run_may_be_stopped_after_every_update(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(small(*RESUMABLE), folder, should_stop=stop_after(1))
    while go_on(folder, should_stop=stop_after(1)) == "interrupted" and last_step_on_disk(folder) < UPDATES - 1:
        pass
    assert same_tables(folder, whole)


@pytest.fixture(scope="module")
def after_eight(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """Ctrl-C where nobody asks `should_stop`: two steps are on disk that the last checkpoint has still before it.

    Of this run the tests take copies.
    """
    folder, stop = tmp_path_factory.mktemp("interrupted") / "run", stop_after(8)

    def interrupt() -> bool:
        if stop():
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(small(*RESUMABLE), folder, should_stop=interrupt)
    assert (next_update(folder), last_step_on_disk(folder)) == (6, 7)
    return folder


def test_an_interrupt_in_the_middle_of_an_update_loses_nothing_but_time(
    whole: Path, after_eight: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(after_eight, tmp_path / "run")
    assert Manifest.read(folder).status == "interrupted"
    assert go_on(folder) == "finished"
    assert same_tables(folder, whole)


@pytest.mark.parametrize("change", ["other weights", "another file"])
def test_a_step_that_is_computed_again_differently_is_refused_and_the_run_left_as_it_was(
    after_eight: Path, tmp_path: Path, change: str
) -> None:
    folder = shutil.copytree(after_eight, tmp_path / "run")
    if change == "other weights":
        state = checkpoint.load_checkpoint(folder)
        assert state is not None
        state["model"] = {name: weight * 1.01 for name, weight in state["model"].items()}
        checkpoint.save(folder, state)
    else:
        (path,) = (folder / "tokens").glob("000006*.parquet")
        rows = pq.read_table(path)
        column = rows.column_names.index("token_id")
        pq.write_table(rows.set_column(column, "token_id", pc.add(rows["token_id"], 1)), path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = "its log-probabilities differ by more than 0.001 nats" if change == "other weights" else "other tokens"
    with pytest.raises(RatioscopeError, match=rf"update 6 was computed again, and it is not the one .*: {found}"):
        train(configuration_to_resume(folder, ["updates=20"]), folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert (Manifest.read(folder).status, Manifest.read(folder).planned_updates) == ("interrupted", UPDATES)


@pytest.mark.parametrize("cause", ["memory", "memory of a CPU", "disk"])
def test_where_memory_or_disk_does_not_suffice_the_run_goes_on_elsewhere(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    folder = tmp_path / "run"

    def fails(*_: object) -> None:
        if cause == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        reason = "[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0\nframe #0"
        raise RuntimeError(reason if cause == "disk" else "DefaultCPUAllocator: can't allocate memory: you tried")

    expected = {"disk": r"checkpoint.pt: cannot be written \(.* vs 0\); make room, and resume the run\.$"}
    with monkeypatch.context() as broken:
        broken.setattr(*((torch, "save") if cause == "disk" else (Learner, "update")), fails)
        with pytest.raises(RatioscopeError, match=expected.get(cause, "update 0 needs more memory than there is")):
            train(small(*RESUMABLE), folder)
    assert Manifest.read(folder).status == "failed"
    assert not [*folder.rglob("*.tmp-*")]
    assert go_on(folder) == "finished"
    assert same_tables(folder, whole)


def test_a_policy_that_is_no_longer_numbers_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=r"Update \d: the policy's probabilities are no longer numbers\. Start"):
        train(small("algorithm=reinforce", "learning_rate=1e30"), tmp_path / "run")
    assert Manifest.read(tmp_path / "run").status_reason.startswith("RatioscopeError: Update")


class Killed(NamedTuple):
    """Runs whose process was killed in the middle of them."""

    folder: Path
    process_id: int
    refusals: dict[str, str]
    """What a second process was told while the first was alive."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Killed:
    """Kill -9 of a process with several runs, once what should be on disk is there."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.making.train_until_killed", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and any(
                last_step_on_disk(folder / name) < on_disk for name, (_, on_disk) in LEFT_BEHIND.items()
            ):
                time.sleep(0.05)
            refusals = {}
            for name in RUNS:
                with pytest.raises(RunFormatError) as refused:
                    Trainer(configuration_to_resume(folder / name, []), folder / name, resume=True)
                refusals[name] = str(refused.value)
        finally:
            process.send_signal(signal.SIGKILL)
    return Killed(folder, process.pid, refusals)


# The checkpoint's next update, and the last step on disk.
LEFT_BEHIND = dict.fromkeys(RUNS, (6, 7)) | {"flushed by checkpoints only": (6, 5), "without a checkpoint": (0, 1)}


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    whole: Path, killed: Killed, tmp_path: Path, name: str
) -> None:
    folder = killed.folder / name
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.live_status()) == ("running", "interrupted")
    assert (next_update(folder), last_step_on_disk(folder)) == LEFT_BEHIND[name]
    (folder / "tokens" / "000008-000009-w0.tmp-1").write_bytes(b"half a file")
    assert go_on(folder) == "finished"
    never_stopped = whole
    if RUNS[name].overrides != RESUMABLE:
        never_stopped = train(small(*RUNS[name].overrides), tmp_path / "run").folder
    assert same_tables(folder, never_stopped)
    assert not [*folder.rglob("*.tmp-*")]


def test_a_killed_asynchronous_run_goes_on_from_its_checkpoint_and_what_came_after_is_set_aside(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed.folder / "with actors"
    kept = table(folder, "tokens").filter(pc.field("step") < 6)
    later = {path.name: path.read_bytes() for path in (folder / "tokens").glob("00000[67]*.parquet")}
    fork_processes(monkeypatch)
    assert (next_update(folder), last_step_on_disk(folder)) == (6, 7)
    assert go_on(folder) == "finished"
    assert table(folder, "steps")["step"].to_pylist() == [*range(UPDATES)]
    tokens = table(folder, "tokens")
    assert tokens.filter(pc.field("step") < 6).equals(kept)
    assert {path.name: path.read_bytes() for path in folder.glob("set_aside/from_step_6_*/tokens/*")} == later != {}
    assert tokens["step"].unique().to_pylist() == [*range(UPDATES)]
    assert pc.all(pc.less_equal(tokens["behavior_version"], tokens["step"])).as_py()
    assert multiprocessing.active_children() == []
    with pytest.raises(RatioscopeError, match=r"its updates cannot be repeated to add more\. Start a new run\.$"):
        configuration_to_resume(folder, ["updates=20"])


@pytest.mark.parametrize("name", RUNS)
def test_a_running_run_is_not_resumed_by_a_second_process(killed: Killed, name: str) -> None:
    expected = f"{killed.folder / name}: process {killed.process_id} is still writing this run."
    assert killed.refusals[name] == expected


def test_no_step_is_written_twice(whole: Path) -> None:
    assert table(whole, "steps")["step"].to_pylist() == [*range(UPDATES)]


def test_more_updates_may_be_asked_for_and_are_remembered(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(small(*RESUMABLE, "updates=5"), folder, should_stop=stop_after(4))
    longer = configuration_to_resume(folder, [f"updates={UPDATES}"])
    assert train(longer, folder, resume=True, should_stop=stop_after(2)).status == "interrupted"
    assert Manifest.read(folder).planned_updates == UPDATES
    assert go_on(folder) == "finished"
    assert same_tables(folder, whole)


def test_a_finished_run_may_be_made_longer(whole: Path, tmp_path: Path) -> None:
    """Its checkpoint is gone, so it is computed again; its last update was a step for evaluation, and stays one."""
    folder = tmp_path / "run"
    train(small(*RESUMABLE, "updates=9"), folder)
    assert not (folder / CHECKPOINT_NAME).exists()
    assert train(configuration_to_resume(folder, [f"updates={UPDATES}"]), folder, resume=True).status == "finished"
    assert same_tables(folder, whole)


def test_a_finished_run_that_is_not_made_longer_has_nothing_left_to_do(whole: Path) -> None:
    for overrides in ([], ["updates=3"], [f"updates={UPDATES}"]):
        with pytest.raises(RatioscopeError, match=rf"has finished its {UPDATES} updates; set updates=N for more\.$"):
            configuration_to_resume(whole, overrides)


@pytest.fixture(scope="module")
def after_one(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A run that was stopped after its first update; tests that change it take a copy."""
    return train(small("updates=3"), tmp_path_factory.mktemp("stopped") / "run", should_stop=stop_after(1)).folder


@pytest.mark.parametrize("override", ["seed=3", "algorithm=reinforce", "optimiser.learning_rate=1", "updates"])
def test_nothing_else_may_change(after_one: Path, override: str) -> None:
    with pytest.raises(RatioscopeError, match=r"only updates, pace|not of the form key=value"):
        configuration_to_resume(after_one, [override])


def test_a_run_from_before_wrong_answers_were_taught_keeps_its_start(tmp_path: Path) -> None:
    config = small("warm_start.right_share=0.4").model_dump()
    for expected in (0.4, 1.0):
        producer = {"name": record.PRODUCER}
        RunRecorder(tmp_path / str(expected), producer=producer, extra={"config": config}).close("interrupted")
        assert configuration_to_resume(tmp_path / str(expected), []).warm_start.right_share == expected
        config["warm_start"].pop("right_share", None)


@pytest.mark.parametrize("config", [None, 3, {"updates": 5}], ids=["no config", "a number", "a config of its own"])
def test_a_run_of_another_producer_is_not_resumed(tmp_path: Path, config: object) -> None:
    extra = {} if config is None else {"config": config}
    RunRecorder(tmp_path / "run", producer={"name": "some other trainer"}, extra=extra).close("interrupted")
    with pytest.raises(RatioscopeError, match=r"not a run of the built-in trainer, it cannot be resumed\.$"):
        configuration_to_resume(tmp_path / "run", [])


def test_a_folder_that_holds_no_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RatioscopeError, match=r"not a run, it has no run.json\.$"):
        configuration_to_resume(tmp_path, [])


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint"])
def test_a_damaged_checkpoint_is_one_clear_sentence(after_one: Path, tmp_path: Path, damage: bytes) -> None:
    folder = shutil.copytree(after_one, tmp_path / "run")
    (folder / CHECKPOINT_NAME).write_bytes(damage)
    with pytest.raises(RatioscopeError, match=r"checkpoint.pt: cannot be read \(\w+\); delete it"):
        Trainer(configuration_to_resume(folder, []), folder, resume=True)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"next_update": Path("anything but numbers")}, tmp_path / CHECKPOINT_NAME)
    with pytest.raises(RatioscopeError, match="cannot be read"):
        checkpoint.load_checkpoint(tmp_path)


def test_a_new_run_does_not_overwrite_an_old_one(whole: Path) -> None:
    with pytest.raises(RunFormatError, match="already holds a run; choose another folder"):
        Trainer(small(*RESUMABLE), whole)
