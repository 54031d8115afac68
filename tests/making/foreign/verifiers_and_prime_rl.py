"""Traces made by verifiers itself, and a prime-rl run around them; run by hand where verifiers 0.4 is installed:

    python -m tests.making.foreign.verifiers_and_prime_rl

- verifiers.tar.xz: traces.jsonl and configs/resolved/eval.json of an evaluation, written by verifiers 0.4.0
  (`verifiers.v1.utils.trace_store.write_episode`).
- prime_rl.tar.xz: a run of three steps. The traces are records of verifiers (`Episode.to_record`), at the places where
  prime-rl 559b4477 puts them (`src/prime_rl/monitors/file.py`). The token export is imitated: `_record` below follows
  `src/prime_rl/trainer/rl/token_export.py` of that commit, field by field.
"""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, EvalRunInfo, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo, WireEpisode
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import (
    AgentInfo,
    AgentSpan,
    Error,
    ModelCall,
    Reward,
    TimeSpan,
    TimeSplit,
    Timing,
    TraceTask,
    VersionInfo,
    WireTrace,
)
from verifiers.v1.types import AssistantMessage, Sampling, SystemMessage, ToolCall, ToolMessage, Usage, UserMessage
from verifiers.v1.utils.trace_store import write_episode

from tests.making.foreign.packed import pack
from tests.making.foreign.policy import Policy, Response

START = 1_760_000_000.0
MASK_LOW = MASK_HIGH = 0.02
"""Thresholds of the loss, small enough that a policy this small crosses them."""


def text(tokens: Iterable[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


class Writer:
    """Episodes with ids that count, so that the same script makes the same files."""

    def __init__(self) -> None:
        self._count = 0

    def _id(self) -> str:
        self._count += 1
        return f"{self._count:032x}"

    def episode(
        self,
        nodes: list[MessageNode],
        reward: float | None,
        *,
        example: int,
        group: str | None = None,
        step: int = 0,
        version: tuple[int, int] | None = None,
        train: bool = True,
        error: str = "",
        stop: str = "agent_completed",
    ) -> WireEpisode:
        task = TraceTask(
            type="WordTask", data=WireTaskData(idx=example, prompt=f"sort {example}"), key=f"task-{example}"
        )
        calls = [
            ModelCall(
                node=place,
                model="tiny",
                sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=8),
                finish_reason="tool_calls" if getattr(node.message, "tool_calls", None) else "stop",
                usage=Usage(prompt_tokens=4, completion_tokens=sum(node.mask)),
                time=TimeSpan(start=START + 60 * step + place, end=START + 60 * step + place + 0.5),
            )
            for place, node in enumerate(nodes)
            if node.sampled
        ]
        agent = TimeSpan(start=START + 60 * step, end=START + 60 * step + 10)
        trace = WireTrace(
            id=self._id(),
            verifiers=VersionInfo(version="0.4.0"),
            task=task,
            agent=AgentInfo(config=WireAgentConfig()),
            nodes=nodes,
            calls=calls,
            rewards={"format": Reward(score=0.5, weight=0.2), "right": Reward(score=reward)}
            if reward is not None
            else {},
            is_completed=True,
            ok=not error,
            stop_condition="error" if error else stop,
            errors=[Error(type=error, message="the tool did not answer")] if error else [],
            timing=Timing(
                start=START,
                agent=AgentSpan(**agent.model_dump(), model=TimeSplit(duration=1), harness=TimeSplit(duration=2.5)),
            ),
        )
        policy = PolicySpan(start=version[0], end=version[1]) if version else None
        run = (
            TrainRunInfo(id="run", name="tiny", work=TrainWorkInfo(step=step, policy=policy))
            if train
            else EvalRunInfo(id="eval")
        )
        return WireEpisode(
            id=self._id(),
            env=EnvInfo(id="words", name="words"),
            task=task,
            group=GroupInfo(id=group) if group else None,
            run=run,
            ok=not error,
            traces=[trace],
        )


def prompt_nodes(tokens: list[int]) -> list[MessageNode]:
    return [
        MessageNode(message=SystemMessage(content="Sort words."), token_ids=[1], mask=[False], timestamp=START),
        MessageNode(
            parent=0,
            message=UserMessage(content=text(tokens)),
            token_ids=tokens,
            mask=[False] * len(tokens),
            timestamp=START,
        ),
    ]


def answer(
    response: Response, parent: int, *, scaffold: int = 2, advantage: bool = True, **message: Any
) -> MessageNode:
    """A sampled message: scaffold of the template, then what was sampled; the float lists cover the latter alone."""
    sampled = len(response.tokens)
    return MessageNode(
        parent=parent,
        message=AssistantMessage(content=text(response.tokens), **message),
        sampled=True,
        timestamp=START,
        token_ids=[3] * scaffold + response.tokens,
        mask=[False] * scaffold + [True] * sampled,
        logprobs=response.sampled.tolist(),
        advantages=[response.advantage] * sampled if advantage else None,
    )


def forked(policy: Policy, prompt: list[int], advantage: float) -> tuple[list[MessageNode], list[Response]]:
    """Two tool turns, and after the first a second conversation: the first sampled message is in both branches."""
    parts = [policy.respond([place + 4], 5, 1.0) for place in range(3)]
    for part in parts:
        part.advantage = advantage
    call = ToolCall(id="call-1", name="look_up", arguments='{"word": "w7"}')
    tool = MessageNode(
        parent=2,
        message=ToolMessage(tool_call_id="call-1", content="w7 is a word"),
        token_ids=[40, 41, 42],
        mask=[False] * 3,
        timestamp=START,
    )
    other = MessageNode(
        parent=2, message=UserMessage(content="Start again."), token_ids=[43, 44], mask=[False] * 2, timestamp=START
    )
    nodes = [*prompt_nodes(prompt), answer(parts[0], 1, tool_calls=[call]), tool, answer(parts[1], 3), other]
    return [*nodes, answer(parts[2], 5)], parts


def make_verifiers(folder: Path) -> None:
    """An evaluation: three tasks, two rollouts each; one forks, one failed."""
    policy, writer = Policy(3), Writer()
    (folder / "configs" / "resolved").mkdir(parents=True)
    settings = {
        "model": "tiny",
        "num_rollouts": 2,
        "sampling": {"temperature": 1.0, "top_p": 1.0},
        "env": {"id": "words"},
    }
    (folder / "configs" / "resolved" / "eval.json").write_text(json.dumps(settings, indent=2))
    for example in range(3):
        prompt = [10 + example, 11, 12]
        for response in policy.group(prompt, [1.0, 0.0]):
            nodes = [*prompt_nodes(prompt), answer(response, 1, advantage=False)]
            failed = "ToolError" if example == 2 and not response.reward else ""
            write_episode(
                folder,
                writer.episode(nodes, None if failed else response.reward, example=example, train=False, error=failed),
            )
    nodes, _ = forked(policy, [20, 21], 0.0)
    for node in nodes:
        node.advantages = None
    write_episode(folder, writer.episode(nodes, 1.0, example=3, train=False))


def make_prime_rl(run: Path) -> None:
    """Three steps. Left out: a group of equal rewards, a failed rollout; one rollout is trained on a step later."""
    policy, writer = Policy(7), Writer()
    (run / "configs").mkdir(parents=True)
    (run / "configs" / "trainer.json").write_text(json.dumps(TRAINER, indent=2))
    (run / "configs" / "orchestrator.json").write_text(json.dumps(ORCHESTRATOR, indent=2))
    (run / "configs" / "inference.json").write_text(json.dumps({"model": {"name": "tiny"}}, indent=2))
    late: list[tuple[WireEpisode, list[dict[str, Any]]]] = []
    for step in (1, 2, 3):
        arrived: list[WireEpisode] = []
        trained, late = late, []
        for number in range(2):
            prompt = [10 + 5 * step + number, 11, 12]
            rewards = [1.0] * 4 if (step, number) == (2, 1) else [1.0, 0.0, 0.0, 1.0]
            fails = (step, number) == (1, 1)
            group = policy.group(prompt, rewards, 10)
            for response in group[:-1] if fails else []:  # a failed rollout takes no part in the group's mean
                response.advantage = response.reward - float(np.mean(rewards[:-1]))
            for place, response in enumerate(group):
                nodes = [*prompt_nodes(prompt), answer(response, 1)]
                failed = "ToolError" if fails and place == 3 else ""
                episode = writer.episode(
                    nodes,
                    None if failed else response.reward,
                    example=10 * step + number,
                    group=f"group-{step}-{number}",
                    step=step,
                    version=(max(step - 2, 0), step - 1),
                    error=failed,
                )
                arrived.append(episode)
                if failed or len(set(rewards)) == 1:
                    continue
                samples = [sample(policy, nodes, (2,), (response,))]
                (late if (step, number, place) == (2, 0, 3) else trained).append((episode, samples))
        if step == 1:
            nodes, parts = forked(policy, [20, 21], 0.5)
            fork = writer.episode(nodes, 1.0, example=99, group="group-fork", step=step, version=(0, 0))
            plain = policy.respond([20, 21], 6, 0.0)
            plain.advantage = -0.5
            short = [*prompt_nodes([20, 21]), answer(plain, 1)]
            other = writer.episode(short, 0.0, example=99, group="group-fork", step=step, version=(0, 0))
            arrived += [fork, other]
            trained.append((other, [sample(policy, short, (2,), (plain,))]))
            branches = [sample(policy, nodes, (2, 4), parts[:2], (0, 1, 2, 3, 4))]
            branches.append(sample(policy, nodes, (6,), parts[2:], (0, 1, 2, 5, 6)))
            trained.append((fork, branches))
        for kind, episodes in (("all", arrived), ("effective", [episode for episode, _ in trained])):
            write_traces(run / "rollouts" / f"step_{step}" / "train" / kind / "traces.jsonl", episodes)
        write_export(run / "token_exports" / f"step_{step}", step, [one for _, samples in trained for one in samples])
        with (run / "metrics.jsonl").open("a") as file:
            for row in ({"optim/lr": 1e-6, "optim/grad_norm": 0.1 * step}, {"loss/mean": 0.01 * step}):
                file.write(json.dumps({"step": step, "time": START + 60 * step, **row}) + "\n")


def sample(
    policy: Policy,
    nodes: list[MessageNode],
    trained: tuple[int, ...],
    parts: Iterable[Response],
    path: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """The trainer's sample of a branch: lists over all of its tokens, placeholders where nothing is trained."""
    ids: list[int] = []
    mask: list[bool] = []
    for place in path or range(len(nodes)):
        ids += nodes[place].token_ids
        mask += nodes[place].mask if place in trained else [False] * len(nodes[place].token_ids)
    columns = {name: np.zeros(len(ids)) for name in ("inference_logprobs", "advantages")}
    entropy = np.full(len(ids), 2.0)
    scored = policy.scored(ids)
    spots, done = np.flatnonzero(mask), 0
    for part in parts:
        here = spots[done : done + len(part.tokens)]
        done += len(part.tokens)
        columns["inference_logprobs"][here] = part.sampled
        columns["advantages"][here] = part.advantage
        scored[here], entropy[here] = part.trained, part.entropy
    return {"token_ids": ids, "loss_mask": mask, "trainer_logprobs": scored, "entropy": entropy, **columns}


def write_traces(file: Path, episodes: list[WireEpisode]) -> None:
    """As `FileMonitor.log_episodes` does."""
    file.parent.mkdir(parents=True)
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    with file.open("ab") as opened:
        for episode in episodes:
            opened.write(orjson.dumps(episode.to_record(), default=str, option=options))


def write_export(folder: Path, step: int, samples: list[dict[str, Any]]) -> None:
    """As `TokenExporter` does, on two ranks."""
    folder.mkdir(parents=True)
    for rank in (0, 1):
        with (folder / f"rank_{rank}.jsonl").open("w", encoding="utf-8") as file:
            for place, one in enumerate(samples[rank::2]):
                record = _record(step, rank, place, one)
                file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")
    (folder / "STABLE").touch()


def _record(step: int, rank: int, place: int, one: dict[str, Any]) -> dict[str, Any]:
    """A line of the export; the ratio columns and the mask are computed as `_compute_export_tensors` computes them."""
    theta, mu = (one[name].astype(np.float32) for name in ("trainer_logprobs", "inference_logprobs"))
    mask, advantages = np.array(one["loss_mask"]), one["advantages"].astype(np.float32)
    log_ratio = theta - mu
    delta = np.exp(theta) - np.exp(mu)
    high, low = delta > MASK_HIGH, delta < -MASK_LOW
    length = len(one["token_ids"])
    return {
        "schema_version": 1,
        "step": step,
        "rank": rank,
        "micro_step": place,
        "micro_sequence_idx": 0,
        "export_sequence_idx": place,
        "env_name": "words",
        "token_ids": one["token_ids"],
        "position_ids": list(range(length)),
        "loss_mask": one["loss_mask"],
        "advantages": _floats(advantages),
        "inference_logprobs": _floats(mu),
        "trainer_logprobs": _floats(theta),
        "entropy": _floats(one["entropy"].astype(np.float32)),
        "mismatch_kl": _floats(np.exp(log_ratio) - log_ratio - 1),
        "log_importance_ratio": _floats(log_ratio),
        "importance_ratio": _floats(np.exp(log_ratio)),
        "prob_delta": _floats(delta),
        "is_masked": (mask & np.where(advantages > 0, high, low)).tolist(),
        "is_masked_high": (mask & (advantages > 0) & high).tolist(),
        "is_masked_low": (mask & (advantages < 0) & low).tolist(),
        "rl_weights": [None] * length,
        "ce_weights": [None] * length,
        "ref_kl_weights": [None] * length,
    }


def _floats(values: np.ndarray[Any, Any]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


TRAINER = {
    "model": {"name": "tiny"},
    "loss": {
        "type": "default",
        "dppo_mask_low": MASK_LOW,
        "dppo_mask_high": MASK_HIGH,
        "adv_tau": 1.0,
        "kl_tau": 0.001,
    },
    "optim": {"type": "adamw", "lr": 1e-06, "weight_decay": 0.01, "max_norm": 1.0},
    "max_steps": 3,
    "enable_token_export": True,
}
ORCHESTRATOR = {
    "algo": {"type": "grpo"},
    "group_size": 4,
    "max_off_policy_steps": 1,
    "train": {"sampling": {"temperature": 1.0, "top_p": None}, "source": [{"name": "words", "env": {"id": "words"}}]},
}


def main() -> None:
    for name, make in (("verifiers", make_verifiers), ("prime_rl", make_prime_rl)):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / name)
            pack(Path(folder) / name, name)


if __name__ == "__main__":
    main()
