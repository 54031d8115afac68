"""The verl plugin on verl's own trainers, batches, losses and metrics."""

import importlib
import logging
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

from ratioscope.adapters import verl as plugin
from ratioscope.adapters.verl import hooks
from ratioscope.adapters.verl.hooks import reward_parts, scalars_of
from ratioscope.analysis.frameworks import report
from ratioscope.analysis.importers.formats import verl_rollouts
from ratioscope.analysis.runs.store import open_run
from ratioscope.rules.gates import GATES
from tests.making.foreign.reading import steps_of

if TYPE_CHECKING:
    from tests.adapters.verl_training import Queue

training: Any = None  # tests.adapters.verl_training

REJECTING = (
    "algorithm.rollout_correction.rollout_rs=token_k1",
    "algorithm.rollout_correction.rollout_rs_threshold=0.9_1.1",
)
WEIGHING = ("algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=2.0")
BYPASS = ("algorithm.rollout_correction.bypass_mode=true",)

ROOT = Path(__file__).parents[2]
Record = Callable[..., tuple[Path, Any, "Queue"]]


@pytest.fixture(autouse=True, scope="module")
def _import() -> None:
    """Not before a test needs it: that takes seconds, and every process collects this file."""
    global training
    pytest.importorskip("verl", exc_type=ImportError)
    pytest.importorskip("transfer_queue", exc_type=ImportError)
    training = importlib.import_module("tests.adapters.verl_training")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    def recorded(*overrides: str, new: int = 0, triggers: int = 1, steps: int = 3) -> "tuple[Path, Any, Queue]":
        folder = tmp_path / "run"
        monkeypatch.setenv("RATIOSCOPE_RUN", str(folder))
        monkeypatch.setenv("RATIOSCOPE_NEW", str(new))
        plugin.watch()
        queue = training.Queue()
        made = training.trainer(training.configuration(*overrides), queue, triggers)
        made.all_metrics = training.steps(made, steps)
        made._ratioscope.recording.close()
        assert made._ratioscope.recording.failure == ""
        return folder, made, queue

    yield recorded
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, plugin._Watch)]


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / name)


def test_rows_are_what_the_model_sampled(record: Record) -> None:
    folder, _, queue = record()
    tokens, sequences = table(folder, "tokens"), table(folder, "sequences")
    assert sorted(tokens["step"].unique()) == [1, 2, 3]  # verl's own numbers
    assert (tokens.groupby("step")["group_id"].nunique() == training.PROMPTS).all()
    rows = [row for key, row in queue.rows.items() if "-2-0_" in key]
    assert (sequences["step"] == 2).sum() == len(rows) == training.PROMPTS * training.GROUP
    expected = np.concatenate([row["rollout_log_probs"][row["response_mask"].bool()].numpy() for row in rows])
    of_step = tokens[tokens["step"] == 2]
    np.testing.assert_array_equal(np.sort(of_step["logp_behavior"]), np.sort(expected))
    assert (of_step["logp_behavior"] < 0).all()  # verl has 0.0 on what a tool wrote
    assert not (of_step["token_id"] == 11).all()
    positions = of_step.groupby("seq_id")["position"].agg(["min", "max", "count"])
    assert (positions["min"] == 0).all() and (positions["max"] + 1 == positions["count"]).all()
    assert sequences["n_turns"].max() == 2 and sequences["reward_odd"].equals(sequences["reward"])
    assert sequences["prompt"].iloc[0] == "w1 w1" and sequences["environment"].eq("odd words").all()
    assert set(table(folder, "vocabulary.parquet")["token_id"]) == set(tokens["token_id"])


def test_the_policy_before_and_after_the_update(record: Record) -> None:
    folder, made, queue = record(new=2)
    tokens = table(folder, "tokens")
    assert tokens.groupby("step")["logp_new"].count().gt(0).tolist() == [True, False, True]
    last = tokens[tokens["step"] == 3]
    rows = {key: row for key, row in queue.rows.items() if "-3-0_" in key}
    policy = made.actor_rollout_wg.policy
    after = np.concatenate(
        [
            policy.logps(row["input_ids"])[-len(row["responses"]) :][row["response_mask"].bool()].detach().numpy()
            for row in rows.values()
        ]
    )
    np.testing.assert_allclose(np.sort(last["logp_new"]), np.sort(after), rtol=1e-6)
    assert (last["logp_new"] - last["logp_current"]).abs().max() > 1e-4
    # The trap: a column of the whole text, cut at its end, belongs to the tokens before.
    shifted = np.concatenate([row["log_probs"][-len(row["responses"]) :].numpy() for row in rows.values()])
    assert not np.isin(np.float32(shifted), np.float32(after)).all()


@pytest.mark.parametrize("most", [1, 3])
def test_the_teacher_of_a_distillation(record: Record, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Place t of verl's columns is of the token after it: the one that came (1), or the teacher's likeliest (3)."""
    teacher = training.Policy(5)
    respond = training.Sampler._response

    def response(sampler: Any, *of: Any) -> dict[str, Any]:
        row = respond(sampler, *of)
        logps = teacher.table.detach().log_softmax(-1)[row["input_ids"]]
        next_ids = row["input_ids"].roll(-1)[:, None]
        ids = next_ids if most == 1 else logps.topk(most).indices
        return row | {"teacher_ids": ids.int(), "teacher_logprobs": logps.gather(1, ids)}

    monkeypatch.setattr(training.Sampler, "_response", response)
    folder, _, queue = record(steps=1)
    tokens, expected = table(folder, "tokens"), []
    for row in queue.rows.values():
        ids, mask = row["input_ids"], row["response_mask"].bool()
        logps = teacher.table.detach().log_softmax(-1)[ids[:-1]]
        own = logps.gather(1, ids[1:, None])[-len(mask) :, 0]
        known = (logps.topk(training.VOCABULARY if most == 1 else most).indices == ids[1:, None]).any(1)[-len(mask) :]
        expected.append(np.where(known, own, np.nan)[mask])
    logged = tokens["logp_teacher"].to_numpy(float)
    np.testing.assert_allclose(np.sort(logged), np.sort(np.concatenate(expected)), rtol=1e-6)
    assert np.isnan(logged).any() == (most > 1) and np.isfinite(logged).any()


def test_versions(record: Record) -> None:
    folder, _, _ = record()
    tokens, sequences, steps = (table(folder, name) for name in ("tokens", "sequences", "steps"))
    assert (steps["policy_version"] == steps["step"] - 1).all()
    stale = sequences[sequences["behavior_version_min"] < sequences["behavior_version_max"]]
    assert len(stale) == 2 * training.PROMPTS
    merged = tokens.merge(stale[["step", "seq_id"]])
    assert merged["behavior_version"].isna().all() and tokens["behavior_version"].notna().sum() > len(merged)


@pytest.mark.parametrize("old", [False, True], ids=["current trainer", "old trainer"])
def test_the_rollouts_that_verl_writes_itself_are_imported_as_they_were_recorded(
    record: Record, tmp_path: Path, old: bool
) -> None:
    """By `_log_rollout_data` of its own trainers, into rollout_data_dir."""
    folder, made, queue = record()
    dump = tmp_path / "rollouts"
    writer = training.old_trainer(made.config, queue) if old else made
    writer._init_dump_executor()
    for number in (1, 2, 3):
        writer.global_steps = number
        keys = [key for key in queue.rows if f"-{number}-0_" in key]
        if old:
            batch, parts = training.old_batch([queue.rows[key] for key in keys])
            writer._log_rollout_data(batch, parts, {}, str(dump))
        else:
            writer._log_rollout_data(queue.kv_batch_put(keys, "train"), {}, str(dump))
    writer._shutdown_dump_executor()
    steps, recorded = steps_of(verl_rollouts.IMPORTER, dump), table(folder, "sequences")
    assert [step.number for step in steps] == [1, 2, 3]
    for step in steps:
        found, expected = pd.DataFrame(step.sequences), recorded[recorded["step"] == step.number]
        assert set(found["prompt"]) == set(expected["prompt"]) == {"w1 w1", "w2 w2 w2", "w3 w3 w3 w3"}
        texts = [one["response"].str.replace(r" ?\bw0\b", "", regex=True).str.strip() for one in (found, expected)]
        assert sorted(texts[0]) == sorted(texts[1])  # its own files have no padding and no end
        np.testing.assert_allclose(np.sort(found["reward"]), np.sort(expected["reward"]), rtol=1e-6)
        assert found.groupby("group_id")["prompt"].nunique().eq(1).all()
        assert found.groupby("group_id").size().tolist() == [training.GROUP] * training.PROMPTS
        assert found.get("reward_odd", found["reward"]).equals(found["reward"])
    assert ("reward_odd" in steps[0].sequences) is old


@pytest.mark.parametrize("overrides", [WEIGHING, (*WEIGHING, *REJECTING)], ids=["weights", "weights and rejection"])
def test_its_metrics_are_those_that_follow_from_the_run(record: Record, overrides: tuple[str, ...]) -> None:
    """verl's helper over its padded batch, and ours over the recorded rows: rejected tokens are among both."""
    folder, made, _ = record(*overrides)
    ours = report(open_run(folder), "verl").set_index(["step", "name"])["value"]
    compared = set()
    for step, metrics in enumerate(made.all_metrics, start=1):
        for name, value in metrics.items():
            if (step, name) in ours.index and not np.isnan(ours[step, name]):
                assert value == pytest.approx(ours[step, name], rel=2e-4, abs=2e-6), name
                compared.add(name)
    assert {f"rollout_corr/{name}" for name in ("kl", "k3_kl", "chi2_token", "chi2_seq", "rollout_ppl")} <= compared
    assert {"rollout_corr/rollout_is_eff_sample_size", "training/rollout_probs_diff_mean"} <= compared
    assert len(compared) >= 25
    logged = table(folder, "steps")
    assert logged["extra_rollout_corr_kl"].tolist() == pytest.approx(
        [metrics["rollout_corr/kl"] for metrics in made.all_metrics]
    )
    assert logged["grad_norm"].gt(0).all() and logged["learning_rate"].eq(2).all()


def test_rejected_tokens_stay_rows(record: Record) -> None:
    folder, _, queue = record(*REJECTING)
    tokens = table(folder, "tokens")
    rejected = tokens["rejected"].notna()
    assert 0 < rejected.sum() < len(tokens)
    assert tokens["rejected"].dropna().eq("rejection sampling (token_k1)").all()
    k1 = tokens["logp_behavior"] - tokens["logp_current"]
    assert (rejected == ~k1.between(np.log(0.9), np.log(1.1))).all()
    assert tokens["advantage"].isna().equals(rejected)  # verl leaves a 0 there
    overwritten = sum(int(row["response_mask"].sum()) for row in queue.rows.values())
    assert overwritten + rejected.sum() == len(tokens)  # the trap: the mask as it reaches the loss


def test_in_bypass_mode_the_copy_of_the_sampler_is_not_taken_for_the_policy(record: Record) -> None:
    folder, made, queue = record(*BYPASS)
    assert all(torch.equal(row["old_log_probs"], row["rollout_log_probs"]) for row in queue.rows.values())
    assert "logp_current" not in table(folder, "tokens") and made.actor_rollout_wg.passes == 0
    assert "bypass mode" in open_run(folder).manifest.missing["logp_current"]


def test_what_the_gate_compares_with_is_said(record: Record) -> None:
    folder, _, _ = record(steps=1)
    parts = open_run(folder).manifest.algorithm["parts"]
    assert parts["gate"] == "dual_clip_on_recomputed" and parts["weight"] == "ratio_on_recomputed"


def test_in_bypass_mode_the_gate_compares_with_the_sampler(record: Record) -> None:
    folder, _, _ = record(*BYPASS, steps=1)
    algorithm = open_run(folder).manifest.algorithm
    assert algorithm["parts"]["gate"] == "dual_clip" and algorithm["parameters"]["dual"] == 3.0
    assert algorithm["parts"]["gate"] in GATES


def test_in_bypass_mode_the_policy_can_be_scored(record: Record) -> None:
    folder, made, _ = record(*BYPASS, new=1)
    tokens = table(folder, "tokens")
    assert made.actor_rollout_wg.passes == 6  # before and after each of three updates
    assert (tokens["logp_current"] - tokens["logp_behavior"]).abs().max() > 0.01
    assert (tokens["logp_new"] - tokens["logp_current"]).abs().max() > 1e-4


def test_a_step_holds_all_mini_batches_between_two_transfers_of_weights(record: Record) -> None:
    folder, _, _ = record(*BYPASS, f"data.train_batch_size={2 * training.PROMPTS}", new=1, triggers=2, steps=2)
    tokens, sequences = table(folder, "tokens"), table(folder, "sequences")
    assert sequences.groupby("step").size().tolist() == [2 * training.PROMPTS * training.GROUP] * 2
    assert tokens["logp_new"].notna().all()
    # Before the second mini-batch the policy had moved on: only the first one was scored with that of the start.
    scored = tokens.groupby(["step", "seq_id"])["logp_current"].count().gt(0).groupby("step").sum()
    assert scored.tolist() == [training.PROMPTS * training.GROUP] * 2


def test_responses_that_fill_the_batch_are_left_out(record: Record) -> None:
    folder, _, queue = record("actor_rollout_ref.actor.ppo_mini_batch_size=4", steps=1)
    padding = [key for key in queue.rows if key.startswith("pad")]
    assert len(padding) == 4
    sequences = table(folder, "sequences")
    assert len(sequences) == training.PROMPTS * training.GROUP and sequences["n_tokens"].gt(0).all()
    assert sequences["prompt_tokens"].gt(0).all()
    assert sorted(sequences["group_id"].unique()) == list(range(training.PROMPTS))


def test_outputs_of_a_session_are_its_segments(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "OUTPUTS", 2)
    folder, *_ = record("actor_rollout_ref.actor.ppo_mini_batch_size=4", steps=1)  # with responses that fill the batch
    each = table(folder, "tokens").drop_duplicates("seq_id")
    assert (each.groupby("group_id")["segment_id"].value_counts() == training.GROUP // 2).all()
    assert set(each["segment_id"]) == {0, 1}


def test_a_step_without_an_update_is_none(record: Record) -> None:
    folder, _, _ = record("trainer.critic_warmup=2")
    assert table(folder, "steps")["step"].tolist() == [2, 3]


@pytest.mark.parametrize("overrides", [(), REJECTING, BYPASS], ids=["plain", "rejection", "bypass"])
def test_the_old_trainer(record: Record, overrides: tuple[str, ...], tmp_path: Path) -> None:
    """DataProto, padded on both sides, through the same model: the same rows as the current trainer's."""
    folder, made, queue = record(*overrides, new=1, steps=1)
    expected, folder = table(folder, "tokens"), tmp_path / "old"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIOSCOPE_RUN", str(folder))
        old = training.old_trainer(made.config, queue)
        training.old_step(old, [row for key, row in queue.rows.items() if not key.startswith("pad")])
        old._ratioscope.recording.close()
    assert old._ratioscope.recording.failure == ""
    found = table(folder, "tokens")
    order = ["group_id", "token_id", "logp_behavior", "position"]
    found, expected = (frame.sort_values(order).reset_index(drop=True) for frame in (found, expected))
    shared = ["token_id", "position", "logp_behavior", "logp_current", "logp_new", "advantage", "behavior_version"]
    pd.testing.assert_frame_equal(found[shared], expected[shared], rtol=1e-5, atol=1e-6, check_dtype=False)
    assert found.get("rejected", pd.Series(dtype=object)).notna().sum() == (
        expected["rejected"].notna().sum() if "rejected" in expected else 0
    )
    sequences = table(folder, "sequences")
    assert sequences["prompt"].iloc[0] == "w1 w1" and len(sequences["response"].iloc[0]) > 2
    assert open_run(folder).manifest.source["format"] == "DataProto"


def test_a_fork_with_a_fit_of_its_own_is_recorded_to_its_end_or_said_not_to_be(
    record: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Agent Lightning's trainer, which updates within a method of its own."""
    _, made, queue = record(steps=1)
    rows = [row for key, row in queue.rows.items() if not key.startswith("pad")]

    class Fork(training.RayPPOTrainer):  # type: ignore[misc, name-defined]
        def fit(self) -> None:
            self._train_step()

        def _train_step(self) -> None:
            training.old_step(self, rows)
            return
            self._update_actor(None)  # which old_step calls

    class Elsewhere(training.RayPPOTrainer):  # type: ignore[misc, name-defined]
        def fit(self) -> None: ...

    class Without(training.RayPPOTrainer):  # type: ignore[misc, name-defined]
        def fit(self) -> None:
            self.made_later = lambda: self.actor_rollout_wg.update_actor(None)

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING, "ratioscope"):
        patch.setenv("RATIOSCOPE_RUN", str(tmp_path / "fork"))
        fork = object.__new__(Fork)
        fork.__dict__.update(training.old_trainer(made.config, queue).__dict__)
        hooks._begin(lambda trainer: None, fork)
        assert [one for one in caplog.records if one.name == "ratioscope"] == []
        fork.fit()
        assert open_run(tmp_path / "fork").status == "finished"  # not at the end of the process
        hooks._begin(lambda trainer: None, object.__new__(Elsewhere))
        patch.setenv("RATIOSCOPE_RUN", str(tmp_path / "without"))
        without = object.__new__(Without)
        hooks._begin(lambda trainer: None, without)
        without.fit()
    assert [one.getMessage() for one in caplog.records if one.name == "ratioscope"] == [
        "ratioscope does not record: the fit of Elsewhere calls neither _update_actor nor the workers' update_actor.",
        "ratioscope does not record: when the fit of Without begins, it has no actor_rollout_wg that updates.",
    ]


@pytest.mark.parametrize("before_07", [False, True], ids=["a fork", "verl before 0.7"])
def test_a_fit_that_asks_the_workers_for_the_update_is_recorded_as_verls_own(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_07: bool
) -> None:
    """As in verl before 0.7, and in Agent Lightning 0.3 and RAGEN."""
    folder, made, queue = record(*REJECTING, new=1, steps=1)
    expected = table(folder, "tokens")
    rows = [row for key, row in queue.rows.items() if not key.startswith("pad")]

    class Direct(training.RayPPOTrainer):  # type: ignore[misc, name-defined]
        def fit(self) -> None:
            batch = training.ready_for_the_update(inner, rows)
            if not before_07:  # a name of RAGEN's, whose uid is another one for each response
                batch.non_tensor_batch["group_ids"] = batch.non_tensor_batch["uid"]
                batch.non_tensor_batch["uid"] = np.arange(len(batch)).astype(str).astype(object)
            self.updated = self.actor_rollout_wg.update_actor(batch)

    monkeypatch.setenv("RATIOSCOPE_RUN", str(tmp_path / "direct"))
    inner = training.old_trainer(made.config, queue)
    direct = object.__new__(Direct)
    direct.__dict__.update(inner.__dict__, actor_rollout_wg=training.DirectWorkers(inner))
    scores = None if before_07 else lambda trainer, batch: inner._compute_old_log_prob(batch)
    monkeypatch.setattr(Direct, "_compute_old_log_prob", scores)
    if before_07:
        old = ModuleType("verl.trainer.ppo.ray_trainer")
        old.RayPPOTrainer = type("RayPPOTrainer", (), {"__init__": Direct.__init__, "fit": Direct.fit})  # type: ignore[attr-defined]
        hooks.wrap_old_trainer(old)
        old.RayPPOTrainer.fit(direct)
    else:
        hooks._begin(lambda trainer: None, direct)
        direct.fit()
    assert "actor/pg_loss" in direct.updated.meta_info["metrics"]
    assert open_run(tmp_path / "direct").status == "finished" and direct._ratioscope.recording.failure == ""
    found = table(tmp_path / "direct", "tokens")
    order = ["group_id", "token_id", "logp_behavior", "position"]
    found, expected = (frame.sort_values(order).reset_index(drop=True) for frame in (found, expected))
    shared = ["group_id", "token_id", "position", "logp_behavior", "logp_current", "logp_new", "advantage", "rejected"]
    pd.testing.assert_frame_equal(found[shared], expected[shared], rtol=1e-5, atol=1e-6, check_dtype=False)
    assert table(tmp_path / "direct", "steps")["loss"].notna().all()


def test_a_failure_ends_the_recording_with_one_warning(
    record: Record, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("in the way")
    monkeypatch.setenv("RATIOSCOPE_RUN", str(tmp_path / "run"))
    plugin.watch()
    made = training.trainer(training.configuration(), training.Queue())
    with caplog.at_level(logging.WARNING, logger="ratioscope"):
        metrics = training.steps(made, 3)
    assert len(metrics) == 3 and all("actor/pg_loss" in one for one in metrics)
    assert [record.name for record in caplog.records].count("ratioscope") == 1


def test_the_training_is_the_same_with_and_without(record: Record, tmp_path: Path) -> None:
    _, made, _ = record(new=1)
    for name in ("step", "_compute_advantage", "_update_actor"):
        assert getattr(type(made), name).ratioscope
    plain = training.trainer(training.configuration(), training.Queue())
    plain._ratioscope = type(made._ratioscope)()
    plain._ratioscope.recording.failure = "switched off"
    training.steps(plain, 3)
    assert torch.equal(plain.actor_rollout_wg.policy.table, made.actor_rollout_wg.policy.table)


def test_without_its_variable_the_plugin_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATIOSCOPE_RUN", raising=False)
    before = list(sys.meta_path)
    importlib.reload(plugin)
    assert sys.meta_path == before


def test_verl_loads_the_plugin_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of pyproject.toml, as an installation writes it down, by the code in verl/__init__.py."""
    import verl

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / "plugin-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    lines = [f"{name} = {module}" for name, module in project["entry-points"]["verl.plugins"].items()]
    (folder / "entry_points.txt").write_text("\n".join(["[verl.plugins]", *lines]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("RATIOSCOPE_RUN", "runs/mine")
    monkeypatch.setattr("ratioscope.adapters.verl", plugin)  # put back at the end
    monkeypatch.delitem(sys.modules, "ratioscope.adapters.verl")  # it acts when it is imported
    importlib.reload(verl)
    assert type(sys.meta_path[0]).__module__ == "ratioscope.adapters.verl"


def test_trainers_are_wrapped_when_they_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped: list[str] = []
    monkeypatch.setattr(plugin, "TRAINERS", {"this": "wrap_trainer"})
    monkeypatch.setattr(hooks, "wrap_trainer", lambda module: wrapped.append(module.__name__))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    plugin.watch()
    assert wrapped == []
    importlib.import_module("this")
    assert wrapped == ["this"]


def test_a_trainer_of_other_names_is_imported_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin, "TRAINERS", {"this": "wrap_trainer"})  # which has no PPOTrainer
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "this", raising=False)
    plugin.watch()
    with caplog.at_level(logging.WARNING, logger="ratioscope"):
        importlib.import_module("this")
    assert "cannot wrap this, the training goes on" in caplog.text


def test_the_folder_can_be_handed_to_a_running_cluster() -> None:
    """As docs/recording.md has it."""
    config = training.configuration("+ray_kwargs.ray_init.runtime_env.env_vars.RATIOSCOPE_RUN=/shared/runs/mine")
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.RATIOSCOPE_RUN == "/shared/runs/mine"


def test_the_run_ends_with_the_training(record: Record) -> None:
    """`fit` is wrapped; here it is one that fails in its second step."""
    folder, made, _ = record(steps=1)
    made._ratioscope = type(made._ratioscope)()
    made._ratioscope.recording.folder = folder.with_name("failing")

    def fit(trainer: Any) -> None:
        training.steps(trainer, 1)
        raise ValueError("out of memory")

    assert type(made).fit.ratioscope and type(made).fit.__name__ == "fit"
    with pytest.raises(ValueError, match="out of memory"):
        hooks._fit(fit, made)
    manifest = open_run(folder.with_name("failing")).manifest
    assert (manifest.status, manifest.status_reason) == ("failed", "ValueError: out of memory")


def test_metrics_and_parts_become_numbers() -> None:
    found = scalars_of({"actor/pg_loss": 0.5, "training/num_turns/mean": np.float64(2), "text": "no", "none": None})
    assert found == {"loss": 0.5, "extra_training_num_turns_mean": 2.0}
    infos = [{"reward_extra_info": {"acc": True, "why": "text"}}, {"reward_extra_info": {}}, None]
    assert reward_parts(infos) == {"reward_acc": [1.0, None, None]}
