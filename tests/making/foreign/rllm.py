"""Makes stored/rllm.tar.xz with rLLM's own code: python -m tests.making.foreign.rllm

Made with rLLM 9beb6e0f, whose folders `.` and `rllm-model-gateway/src` are on PYTHONPATH: the store and the records of
its gateway (which import aiosqlite, pydantic, fastapi, httpx, uvicorn and yaml), its EpisodeLogger and the store of its
evaluations (rllm/types.py, rllm/utils/episode_logger.py and rllm/eval/episode_store.py alone).
"""

import asyncio
import sqlite3
from contextlib import closing
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.making.foreign.packed import pack
from tests.making.foreign.truth import Known, conversation, run


class Ended(Enum):
    """As `rllm.workflows.workflow.TerminationReason`, whose module imports much else."""

    DONE = "env_done"
    LENGTH = "max_response_length_exceeded"
    TIMEOUT = "timeout"
    ERROR = "error"


def session_of(one: Known) -> str:
    return f"task {one.group}:{one.index % 2}"


def calls(one: Known) -> list[dict[str, Any]]:
    """Prompt, sampled tokens and their log-probabilities, messages, answer and version of each call, in order."""
    several = not one.mask.all()
    spans = [(0, 3), (5, len(one.ids))] if several else [(0, len(one.ids))]
    said = (
        conversation(one)
        if several
        else [{"role": "user", "content": one.prompt}, {"role": "assistant", "content": one.response}]
    )
    return [
        {
            "prompt": one.prompt_ids + one.ids[:first],
            "ids": one.ids[first:end],
            "logprobs": one.sampler[first:end].tolist(),
            "messages": said[: 1 + 2 * place],
            "answer": said[1 + 2 * place],
            "version": int(one.versions[place]),
        }
        for place, (first, end) in enumerate(spans)
    ]


def body(call: dict[str, Any], one: Known, last: bool) -> dict[str, Any]:
    """What vLLM answers."""
    cut = one.status == "truncated" and last
    choice = {
        "message": call["answer"],
        "token_ids": call["ids"],
        "logprobs": {"content": [{"logprob": value} for value in call["logprobs"]]},
        "finish_reason": "length" if cut else "stop" if last else "tool_calls",
        "routing_matrices": ["AAEC"] * len(call["ids"]) if one.index == 0 else None,
    }
    usage = {"prompt_tokens": len(call["prompt"]), "completion_tokens": len(call["ids"])}
    return {"model": "policy", "prompt_token_ids": call["prompt"], "choices": [choice], "usage": usage}


async def gateway(file: Path) -> None:
    """The calls of three versions as the gateway stores them; the second call of a session comes after the others."""
    from rllm_model_gateway.data_process import build_trace_record
    from rllm_model_gateway.store.sqlite_store import SqliteTraceStore

    store, now = SqliteTraceStore(str(file)), 1_760_000_000.0
    for step in run(updates=3):
        listed = [(one, place, call) for one in step for place, call in enumerate(calls(one))]
        for one, place, call in sorted(listed, key=lambda entry: entry[1]):
            now += 1
            request = {"model": "policy", "messages": call["messages"], "temperature": 0.7, "top_p": 1.0, "top_k": -1}
            with patch("time.time", return_value=now):
                answer = body(call, one, place == len(calls(one)) - 1)
                trace = build_trace_record(session_of(one), request, answer, 250.0, weight_version=call["version"])
                await store.store_trace(f"{one.index}-{place}", session_of(one), trace.model_dump())
    await store.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")


def episodes(folder: Path) -> None:
    """Three steps; the last episode of a step ended in an error, before it had a trajectory. A validation beside."""
    from rllm.types import Episode, Step, Trajectory
    from rllm.utils.episode_logger import EpisodeLogger

    logger = EpisodeLogger(str(folder))
    for number, step in enumerate(run(updates=3), start=1):
        found = []
        for place, one in enumerate(step):
            failed = place == len(step) - 1
            steps = [
                Step(
                    observation=call["messages"][-1]["content"],
                    action=call["answer"]["content"],
                    model_response=call["answer"]["content"],
                    chat_completions=[*call["messages"], call["answer"]],
                )
                for call in calls(one)
            ]
            found.append(
                Episode(
                    id=session_of(one),
                    task={"question": one.prompt},
                    is_correct=one.reward > 0,
                    termination_reason=Ended.ERROR
                    if failed
                    else (Ended.DONE, Ended.LENGTH, Ended.TIMEOUT)[min(place, 2)],
                    trajectories=[] if failed else [Trajectory(name="solver", steps=steps, reward=one.reward)],
                    metrics={"time/agentflow_llm_sum_s": 1.5, "n_turns": float(len(steps))},
                )
            )
        logger.log_episodes_batch(found, number, "train", 0)
        if number == 2:
            logger.log_episodes_batch(found[:1], number, "val", 0)


def evaluation(folder: Path) -> None:
    """Two attempts at each of three tasks, with tokens; the last ended before it had a trajectory."""
    from rllm.eval.episode_store import EvalEpisodeStore
    from rllm.types import Episode, Step, Task, Trajectory

    store = EvalEpisodeStore(folder)
    store.write_meta({"benchmark": "words", "model": "policy", "agent": "solver", "split": "test", "attempts": 2})
    found = run(updates=1)[0]
    for place, one in enumerate(found):
        failed = place == len(found) - 1
        steps = [
            Step(
                prompt_ids=call["prompt"],
                response_ids=call["ids"],
                logprobs=call["logprobs"],
                chat_completions=[*call["messages"], call["answer"]],
                model_response=call["answer"]["content"],
                weight_version=call["version"],
            )
            for call in calls(one)
        ]
        solved = Trajectory(name="solver", steps=steps, reward=one.reward, signals={"accuracy": one.reward})
        episode = Episode(
            id=session_of(one),
            task=Task(id=f"task {one.group}", instruction=one.prompt),
            is_correct=one.reward > 0,
            termination_reason=Ended.ERROR if failed else Ended.DONE,
            trajectories=[] if failed else [solved],
        )
        store.write(place, episode)


def make() -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        asyncio.run(gateway(folder / "gateway_traces.db"))
        episodes(folder / "logs/project/experiment")
        evaluation(folder / "eval_results/words_policy")
        pack(folder, "rllm")


if __name__ == "__main__":
    make()
