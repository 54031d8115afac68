"""A run folder of tinker-cookbook with its capture, and a capture store; run by hand where tinker-cookbook 0.6 is:

    python -m tests.making.foreign.tinker_cookbook

- tinker_cookbook.tar.xz: config.json, metrics.jsonl, timing_spans.jsonl and rollout summaries, written by
  `TrainingRunStore`, `serialize_rollout_summaries` and `JsonlFileSink` of tinker-cookbook 0.6.1.
- tinker_store.tar.xz: capture.sqlite, written by `CaptureDB` of the same from the same records.

The records themselves are those that `capture/instrument.py` builds of a sampling call; no server was called.
"""

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import tinker
from tinker_cookbook.capture import JsonlFileSink
from tinker_cookbook.capture.store.client import wire_rows_from_sample_record
from tinker_cookbook.capture.store.db import CaptureDB
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition
from tinker_cookbook.stores.storage import LocalStorage
from tinker_cookbook.stores.training_store import TrainingRunStore

from tests.making.foreign.packed import pack
from tests.making.foreign.policy import Policy, Response

START = 1_760_000_000.0
GROUPS, SIZE, ITERATIONS = 2, 2, 3


def record(
    iteration: int,
    group: int | None,
    place: int | None,
    turn: int,
    response: Response,
    *,
    version: int,
    tokens: int = 16,
) -> dict[str, Any]:
    """What the instrumented `sample` records of one call."""
    scope = {"run_id": "tiny", "split": "train", "iteration": iteration, "group_idx": group, "traj_idx": place}
    number = ((iteration * 10 + (group or 0)) * 10 + (place or 0)) * 10 + turn
    return {
        "kind": "sample",
        "scope": {key: value for key, value in scope.items() if value is not None},
        "created_at": START + 60 * iteration + turn,
        "num_samples": 1,
        "sampling_session_id": f"session-{version}",
        "seq_id": number + 1 + (5_000_000 if tokens == 1 else 0),
        "model_path": f"tinker://tiny/sampler_weights/{version:06d}",
        "base_model": "tiny",
        "prompt_tokens": response.prompt,
        "prompt_length": len(response.prompt),
        "sampling_params": {"max_tokens": tokens, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": None},
        "samples": [
            {"tokens": response.tokens, "logprobs": [float(x) for x in response.sampled], "stop_reason": "stop"}
        ],
        "status": "ok",
        "latency_sec": 0.25,
    }


def trajectory(turns: list[Response]) -> Trajectory:
    transitions = [
        Transition(
            ob=tinker.ModelInput.from_ints(turn.prompt),
            ac=TokensWithLogprobs(tokens=turn.tokens, maybe_logprobs=[float(x) for x in turn.sampled]),
            reward=turn.reward,
            episode_done=place == len(turns) - 1,
        )
        for place, turn in enumerate(turns)
    ]
    return Trajectory(
        transitions=transitions, final_ob=tinker.ModelInput.from_ints(turns[-1].prompt + turns[-1].tokens)
    )


def make(run: Path) -> list[dict[str, Any]]:
    """Three iterations of two groups of two trajectories, of two turns where the index is odd; weights lag by one."""
    run.mkdir(parents=True)
    policy, records = Policy(11), []
    store, sink = TrainingRunStore(LocalStorage(run)), JsonlFileSink(LocalStorage(run))
    store.write_config(CONFIG)
    for iteration in range(ITERATIONS):
        groups, batch = [], []
        version = max(iteration - 1, 0)
        for group in range(GROUPS):
            equal = (iteration, group) == (1, 0)
            members = []
            for place in range(SIZE):
                prompt = [5 + iteration, 7 + group]
                turns = [policy.respond(prompt, 5, 0.0 if place % 2 else float(equal or not place))]
                if place % 2:
                    turns.append(policy.respond([*prompt, *turns[0].tokens, 30, 31], 4, float(equal)))
                batch += [
                    record(iteration, group, place, number, turn, version=version) for number, turn in enumerate(turns)
                ]
                members.append(trajectory(turns))
            groups.append(TrajectoryGroup(members, [0.0] * SIZE, [{} for _ in range(SIZE)]))
        # compute_post_kl scores the batch with the new weights: calls that sample one token and are no rollouts.
        scoring = policy.respond([5 + iteration, 7, 9, 9], 1, 0.0)
        batch.append(record(iteration, None, None, 9, scoring, version=iteration + 1, tokens=1))
        batch.append(batch[0])  # an export that was tried twice
        sink.export(batch)
        sink.export(
            [
                {
                    "kind": "train_op",
                    "op": "optim_step",
                    "scope": {"iteration": iteration},
                    "status": "ok",
                    "created_at": START + 60 * iteration + 30,
                }
            ]
        )
        records += batch
        store.write_rollouts(
            iteration,
            serialize_rollout_summaries(
                split="train",
                iteration=iteration,
                trajectory_groups_P=groups,
                taglist_P=[["words"]] * GROUPS,
                sampling_client_steps_P=[version] * GROUPS,
            ),
        )
        store.write_metrics(
            {"optim/lr": 1e-4, "optim/kl_sample_train_v1": 0.01, "kl_pre_post_v1": 0.02}, step=iteration
        )
        end = START + 60 * iteration + 40
        store.write_timing_spans(
            iteration, [{"name": "train", "duration": 5.0, "wall_start": end - 5, "wall_end": end}]
        )
    return records


def make_store(folder: Path, records: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    store = CaptureDB(folder / "capture.sqlite")
    store.ingest_wire([row for one in records for row in wire_rows_from_sample_record(one)])
    store.close()
    with sqlite3.connect(folder / "capture.sqlite") as plain:  # one file to store, without its write-ahead log
        plain.execute("PRAGMA journal_mode=DELETE")


CONFIG = {
    "learning_rate": 1e-4,
    "model_name": "tiny",
    "recipe_name": "recipe_words",
    "max_tokens": 16,
    "loss_fn": "importance_sampling",
    "num_substeps": 1,
    "temperature": 1.0,
    "kl_penalty_coef": 0.0,
    "compute_post_kl": True,
    "remove_constant_reward_groups": True,
    "dataset_builder": {"group_size": SIZE, "seed": 0},
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        records = make(Path(folder) / "run")
        make_store(Path(folder) / "store", records)
        pack(Path(folder) / "run", "tinker_cookbook")
        pack(Path(folder) / "store", "tinker_store")


if __name__ == "__main__":
    main()
