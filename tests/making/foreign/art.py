"""Makes stored/art with ART's own trajectories and model: python -m tests.making.foreign.art

Made with openpipe-art 0.5.23. A policy over pairs of tokens answers in place of a server. Step 1 has calls with token
ids (as ART's servers give them), of which one group has a history that is rendered anew and an episode that failed;
step 2 has older records, whose choices name tokens by id or by text, and a second history. Another model, `apis`, is
called by the Responses and by the Messages API, with a tool.
"""

import asyncio
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored/art"
VOCABULARY = 30
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Sampler:
    def __init__(self) -> None:
        self.random = np.random.default_rng(5)
        logits = self.random.normal(0, 1.2, (VOCABULARY, VOCABULARY))
        self.logps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def sample(self, prompt: list[int]) -> tuple[list[int], list[float]]:
        ids = list(prompt)
        for _ in range(int(self.random.integers(3, 8))):
            ids.append(int(self.random.choice(VOCABULARY, p=np.exp(self.logps[ids[-1]]))))
        made = ids[len(prompt) :]
        return made, [
            float(self.logps[before, after]) for before, after in zip(ids[len(prompt) - 1 :], made, strict=False)
        ]


def choice(
    made: list[int], logps: list[float], *, finish: str = "stop", named: str = "token_id:{}", **more: Any
) -> Any:
    content = [
        {"token": named.format(one), "logprob": logp, "bytes": None, "top_logprobs": []}
        for one, logp in zip(made, logps, strict=True)
    ]
    message = {"role": "assistant", "content": f"said {len(made)}"}
    return {"index": 0, "finish_reason": finish, "message": message, "logprobs": {"content": content}, **more}


def exchanges(sampler: Sampler, prompt: list[int], *, renders_anew: bool = False) -> Any:
    """Two calls with a tool's answer between them."""
    from art.trajectories import ChatCompletionsExchange, TrajectoryExchanges
    from openai.types.chat import ChatCompletion

    talk: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one?"}]
    found = []
    for turn in range(2):
        made, logps = sampler.sample(prompt)
        answer = choice(made, logps, finish="stop" if turn == 0 else "length", token_ids=made)
        response = {"id": "c", "created": 1, "model": "policy", "object": "chat.completion", "choices": [answer]}
        start = BEGIN + timedelta(seconds=10 * turn)
        found.append(
            ChatCompletionsExchange(
                request={"model": "policy", "messages": list(talk), "temperature": 0.9},
                response=ChatCompletion.model_validate(response | {"prompt_token_ids": list(prompt)}),
                start_time=start,
                end_time=start + timedelta(seconds=2),
            )
        )
        talk += [answer["message"], {"role": "user", "content": "and?"}]
        prompt = [*prompt, *made, 3, 4]
        if renders_anew:
            prompt[1] = 29
    return TrajectoryExchanges(chat_completions=found)


def legacy(sampler: Sampler, reward: float, named: str, histories: int) -> Any:
    import art
    from art.trajectories import LegacyHistory
    from openai.types.chat.chat_completion import Choice

    talks: list[Any] = []
    for history in range(histories):
        made, logps = sampler.sample([history + 1])
        talks.append(
            [{"role": "user", "content": f"ask {history}"}, Choice.model_validate(choice(made, logps, named=named))]
        )
    return art.Trajectory(
        messages_and_choices=talks[0],
        additional_histories=[LegacyHistory(messages_and_choices=talk) for talk in talks[1:]],
        reward=reward,
        initial_policy_version=1,
        final_policy_version=2,
        metrics={"correct": reward > 0},
    )


def by_responses(sampler: Sampler, prompt: list[int]) -> Any:
    """A call of a tool, and an answer that goes on from it by its id."""
    from art.trajectories import ResponsesExchange, TrajectoryExchanges
    from openai.types.responses import Response

    found, given = [], [{"role": "user", "content": "list the files"}]
    items: list[list[dict[str, Any]]] = [
        [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c0", "name": "bash", "arguments": '{"command": "ls"}'},
        ],
        [{"type": "message", "id": "m", "role": "assistant", "status": "incomplete",
          "content": [{"type": "output_text", "text": "a.txt", "annotations": []}]}],
    ]  # fmt: skip
    for turn, output in enumerate(items):
        made, logps = sampler.sample(prompt)
        tokens = [{"token_id": one, "token": str(one), "logprob": logp} for one, logp in zip(made, logps, strict=True)]
        generation = {
            "prompt_token_ids": list(prompt),
            "output_tokens": tokens,
            "output_indices": [*range(len(output))],
        }
        response = {"id": f"resp{turn}", "created_at": 1, "model": "policy", "object": "response", "output": output,
                    "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "token_generations": [generation],
                    "status": ("completed", "incomplete")[turn]}  # fmt: skip
        if turn:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        request = {"model": "policy", "input": given, "instructions": "be brief", "temperature": 0.7}
        found.append(
            ResponsesExchange(
                request=request | ({"previous_response_id": "resp0"} if turn else {}),
                response=Response.model_validate(response),
                start_time=BEGIN + timedelta(seconds=10 * turn),
                end_time=BEGIN + timedelta(seconds=10 * turn + 3),
            )
        )
        given = [{"type": "function_call_output", "call_id": "c0", "output": "a.txt"}]
        prompt = [*prompt, *made, 3, 4]
    return TrajectoryExchanges(responses=found)


def by_messages(sampler: Sampler, prompt: list[int]) -> Any:
    """A call of a tool, and an answer to a prompt with its result."""
    from anthropic.types import Message
    from art.trajectories import MessagesExchange, TrajectoryExchanges

    found, talk = [], [{"role": "user", "content": "list the files"}]
    use = {"type": "tool_use", "id": "t0", "name": "bash", "input": {"command": "ls"}}
    for turn, content in enumerate(([{"type": "text", "text": "so:"}, use], [{"type": "text", "text": "a.txt"}])):
        made, logps = sampler.sample(prompt)
        response = {"id": f"msg{turn}", "type": "message", "role": "assistant", "model": "policy", "content": content,
                    "stop_reason": ("tool_use", "end_turn")[turn], "usage": {"input_tokens": 1, "output_tokens": 1},
                    "prompt_token_ids": list(prompt), "token_ids": made, "logprobs": logps}  # fmt: skip
        found.append(
            MessagesExchange(
                request={"model": "policy", "system": "be brief", "messages": list(talk), "max_tokens": 9},
                response=Message.model_validate(response),
                start_time=BEGIN + timedelta(seconds=10 * turn),
                end_time=BEGIN + timedelta(seconds=10 * turn + 3),
            )
        )
        talk += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t0", "content": "a.txt"}]},
        ]
        prompt = [*prompt, *made, 3, 4]
    return TrajectoryExchanges(messages=found)


async def log(folder: Path, sampler: Sampler) -> None:
    import art

    model = art.TrainableModel(
        run_name="words", name="policy", project="words", base_model="none", base_path=str(folder), report_metrics=[]
    )
    first = [
        art.Trajectory(
            exchanges=exchanges(sampler, [1, 2], renders_anew=group == 1 and member == 0),
            reward=float(member),
            initial_policy_version=0,
            final_policy_version=0,
        )
        for group in range(2)
        for member in range(2)
    ]
    groups = [art.TrajectoryGroup(first[:2]), art.TrajectoryGroup(first[2:], exceptions=[TimeoutError("the sandbox")])]
    await model.log(groups, split="train", step=1, metrics={"loss/train": 0.25, "loss/grad_norm": 1.5})
    second = [
        art.TrajectoryGroup([legacy(sampler, 1.0, "token_id:{}", 2), legacy(sampler, 0.0, "token_id:{}", 1)]),
        art.TrajectoryGroup([legacy(sampler, 1.0, "word{}", 1)]),
        art.TrajectoryGroup([], exceptions=[RuntimeError("no environment")]),
    ]
    await model.log(second, split="train", step=2)
    await model.log(metrics={"loss/train": 0.75}, split="train", step=3)
    await model.log(first[:1], split="val", step=2)
    other = art.TrainableModel(
        run_name="apis", name="policy", project="words", base_model="none", base_path=str(folder), report_metrics=[]
    )
    both = [by_responses(sampler, [1, 2]), by_messages(sampler, [1, 2])]
    called = [art.Trajectory(exchanges=one, reward=float(place)) for place, one in enumerate(both)]
    await other.log([art.TrajectoryGroup(called)], split="train", step=1)


def make(folder: Path = FOLDER) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sampler = Sampler()
    asyncio.run(log(folder, sampler))
    (folder / "policy.json").write_text(json.dumps(np.round(sampler.logps, 12).tolist()))


if __name__ == "__main__":
    make()
