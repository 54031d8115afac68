"""Makes stored/harbor with Harbor's own models of trials and trajectories: python -m tests.making.foreign.harbor

Made with harbor 0.26.0; agents and sandboxes need more than a test has, so a policy over pairs of tokens answers, and
what is written of it (result.json, ATIF) is Harbor's. Six trials of a job: two of a task with a tool, the second of
which goes on in another file after its history was summarised; one whose tokens are in its result alone; one without
tokens; one whose agent ran out of time; one whose environment did not start. A job of its own (`delegated`) has a trial
whose agent calls others.
"""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored/harbor"
VOCABULARY = 30
TIME = datetime(2026, 11, 1, tzinfo=UTC)


class Sampler:
    def __init__(self) -> None:
        self.random = np.random.default_rng(13)
        logits = self.random.normal(0, 1.2, (VOCABULARY, VOCABULARY))
        self.logps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def call(self, prompt: list[int]) -> dict[str, Any]:
        ids = list(prompt)
        for _ in range(int(self.random.integers(4, 9))):
            ids.append(int(self.random.choice(VOCABULARY, p=np.exp(self.logps[ids[-1]]))))
        made = ids[len(prompt) :]
        logps = [float(self.logps[one, other]) for one, other in zip([prompt[-1], *made], made, strict=False)]
        return {"prompt_token_ids": prompt, "completion_token_ids": made, "logprobs": logps}


def agent(step_id: int, metrics: dict[str, Any] | None, *, tool: bool = False, copied: bool | None = None) -> Any:
    from harbor.models.trajectories import Metrics, Observation, ObservationResult, Step, ToolCall

    called = [ToolCall(tool_call_id="c0", function_name="bash", arguments={"command": "ls"})] if tool else None
    seen = Observation(results=[ObservationResult(source_call_id="c0", content="a.txt")]) if tool else None
    counts = {} if metrics is None else {"prompt_tokens": len(metrics["prompt_token_ids"]), "completion_tokens": 5}
    return Step(
        step_id=step_id,
        source="agent",
        message=f"step {step_id}",
        reasoning_content="hm",
        tool_calls=called,
        observation=seen,
        is_copied_context=copied,
        metrics=None if metrics is None else Metrics(**(counts | metrics)),
    )


def trajectory(steps: list[Any], *, model: str = "policy", **more: Any) -> Any:
    from harbor.models.trajectories import Agent, Trajectory

    return Trajectory(agent=Agent(name="terminus-2", version="2", model_name=model), steps=steps, **more)


def delegating(step_id: int, **named: str) -> Any:
    """A step as Terminus 2 writes it when its subagents have summarised the history."""
    from harbor.models.trajectories import Observation, ObservationResult, Step, SubagentTrajectoryRef

    references = [SubagentTrajectoryRef(**{name: value}) for name, value in named.items()]
    return Step(
        step_id=step_id,
        source="system",
        message="Performed context summarization and handoff to continue task.",
        observation=Observation(results=[ObservationResult(subagent_trajectory_ref=references)]),
        extra={"context_management": {"type": "compaction", "boundary": "replace"}},
    )


def user(step_id: int = 1, *, copied: bool | None = None) -> Any:
    from harbor.models.trajectories import Step

    return Step(step_id=step_id, source="user", message="list the files", is_copied_context=copied)


def write(
    folder: Path,
    task: str,
    rewards: dict[str, float] | None,
    trajectories: list[Any],
    *,
    failed: Any = None,
    **more: Any,
) -> None:
    from harbor.models.agent.context import AgentContext
    from harbor.models.task.id import LocalTaskId
    from harbor.models.trial.config import TaskConfig, TrialConfig
    from harbor.models.trial.paths import TrialPaths
    from harbor.models.trial.result import AgentInfo, ExceptionInfo, ModelInfo, TrialResult
    from harbor.models.verifier.result import VerifierResult
    from harbor.utils.trajectory_utils import format_trajectory_json

    paths = TrialPaths(folder)
    paths.agent_dir.mkdir(parents=True)
    for number, one in enumerate(trajectories):
        name = f"trajectory.cont-{number}.json" if number else "trajectory.json"
        (paths.agent_dir / name).write_text(format_trajectory_json(one.to_json_dict()))
    exception = failed and ExceptionInfo(
        exception_type=failed, exception_message="late", exception_traceback="", occurred_at=TIME
    )
    result = TrialResult(
        id="00000000-0000-4000-8000-000000000001",
        task_name=task,
        trial_name=folder.name,
        trial_uri=f"file:///jobs/{folder.name}",
        task_id=LocalTaskId(path=Path(task)),
        source="words",
        task_checksum="0",
        config=TrialConfig(task=TaskConfig(path=Path(task)), trial_name=folder.name, trials_dir=Path("jobs")),
        agent_info=AgentInfo(name="terminus-2", version="2", model_info=ModelInfo(name="policy")),
        agent_result=AgentContext(**more) if more else None,
        verifier_result=VerifierResult(rewards=rewards) if rewards is not None else None,
        exception_info=exception,
        started_at=TIME,
        finished_at=TIME,
    )
    paths.result_path.write_text(result.model_dump_json(indent=4))


def make(folder: Path = FOLDER) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    sampler, job = Sampler(), folder / "job"
    first = sampler.call([1, 2, 3])
    second = sampler.call([1, 2, 3, *first["completion_token_ids"], 20, 21])
    write(
        job / "files__a", "files", {"reward": 1.0}, [trajectory([user(), agent(2, first, tool=True), agent(3, second)])]
    )

    first, later = sampler.call([1, 2, 3]), sampler.call([4, 5])
    before = trajectory([user(), agent(2, first, tool=True)], continued_trajectory_ref="trajectory.cont-1.json")
    after = trajectory([user(copied=True), agent(2, None, copied=True), agent(3, later)])
    write(job / "files__b", "files", {"reward": 0.0, "style": 0.5}, [before, after])

    calls = [sampler.call([6, 7]), sampler.call([6, 7, 8])]
    details = {name: [call[name] for call in calls] for name in calls[0]}
    texts = trajectory([user(), agent(2, None, tool=True), agent(3, None)])
    write(job / "math__a", "math", {"score": 0.25}, [texts], rollout_details=[details])

    counts = [agent(2, {"prompt_token_ids": [], "prompt_tokens": 12}), agent(3, {"prompt_token_ids": []})]
    write(job / "math__b", "math", {"reward": 1.0}, [trajectory([user(), *counts])])
    only = trajectory([user(), agent(2, sampler.call([9]))])
    write(job / "slow__a", "slow", None, [only], failed="AgentTimeoutError")
    write(job / "slow__b", "slow", None, [], failed="EnvironmentStartTimeoutError")
    (job / "result.json").write_text(json.dumps({"n_total_trials": 6, "started_at": TIME.isoformat()}))
    summary = trajectory([user(copied=True), agent(2, None, copied=True), agent(3, sampler.call([11, 12]))])
    nested = trajectory([user(), agent(2, sampler.call([14]))], trajectory_id="nested")
    inner = trajectory([user(), agent(2, sampler.call([13]))], trajectory_id="inner", subagent_trajectories=[nested])
    other = trajectory([user(), agent(2, sampler.call([15]))], trajectory_id="other", model="another")
    references = {"trajectory_path": "trajectory.cont-1.json", "trajectory_id": "inner"}
    steps = [user(), agent(2, first), delegating(3, **references), agent(4, sampler.call([16, 17]))]
    main = trajectory(steps, subagent_trajectories=[inner, other])
    write(folder / "delegated" / "files__c", "files", {"reward": 1.0}, [main, summary])
    (folder / "policy.json").write_text(json.dumps(np.round(sampler.logps, 12).tolist()))


if __name__ == "__main__":
    make()
