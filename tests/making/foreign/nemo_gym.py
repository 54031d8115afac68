"""Makes stored/nemo_gym with NeMo-Gym's own collector and converter: python -m tests.making.foreign.nemo_gym

Made with nemo-gym 0.4.0. No server is asked: a policy over pairs of tokens answers instead, and what its answers become
(items with tokens, rows, the file of failures, the inputs beside) is NeMo-Gym's. Three tasks of two rollouts: of the
first, one calls a tool; of the second, one is rendered anew after a call, one is cut off; of the third, one cannot be
read, and the judge of the other fails once.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored/nemo_gym"
VOCABULARY = 30
TASKS = ("add 1 and 2", "name a fruit", "write a query")


class Sampler:
    """Answers, as chat completions with the tokens of prompt and answer."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)
        logits = self.random.normal(0, 1.2, (VOCABULARY, VOCABULARY))
        self.logps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def completion(self, prompt: list[int], text: str, finish: str = "stop", tool: str = "") -> Any:
        from nemo_gym.openai_utils import NeMoGymChatCompletion

        ids = list(prompt)
        for _ in range(int(self.random.integers(4, 9))):
            ids.append(int(self.random.choice(VOCABULARY, p=np.exp(self.logps[ids[-1]]))))
        made = ids[len(prompt) :]
        call = {"id": "call_0", "type": "function", "function": {"name": tool, "arguments": '{"a": 1}'}}
        message = {
            "role": "assistant",
            "content": text,
            "tool_calls": [call] if tool else None,
            "prompt_token_ids": prompt,
            "generation_token_ids": made,
            "generation_log_probs": [
                float(self.logps[before, after]) for before, after in zip([prompt[-1], *made], made, strict=False)
            ],
        }
        return NeMoGymChatCompletion.model_validate(
            {
                "id": "c",
                "created": 1,
                "model": "policy",
                "object": "chat.completion",
                "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            }
        )


class Rollouts:
    """What an agent does, without its servers."""

    def __init__(self) -> None:
        from nemo_gym.responses_converter import ResponsesConverter

        self.sampler = Sampler()
        self.has_failed = False
        self.converter = ResponsesConverter(return_token_id_information=True, uses_reasoning_parser=True)

    def result(self, row: dict[str, Any]) -> dict[str, Any]:
        from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming

        task, member = row["_ng_task_index"], row["_ng_rollout_index"]
        prompt = [20, 21, 22 + task]
        ask = NeMoGymResponseCreateParamsNonStreaming.model_validate(row["responses_create_params"])

        def call(given: list[int], text: str, finish: str = "stop", tool: str = "") -> dict[str, Any]:
            completion = self.sampler.completion(given, text, finish, tool)
            return NeMoGymResponse(
                id="resp_0",
                created_at=completion.created,
                model="policy",
                object="response",
                output=[item.model_dump() for item in self.converter.postprocess_chat_response(completion.choices[0])],
                tool_choice=ask.tool_choice,
                parallel_tool_calls=ask.parallel_tool_calls,
                tools=[],
                temperature=ask.temperature,
                incomplete_details={"reason": "max_output_tokens"} if finish == "length" else None,
            ).model_dump(mode="json")

        if task < 2 and member == 0:
            first = call(prompt, "<think>\nI ask.\n</think>\nWait.", tool="adder")
            spoken = first["output"][-1]
            before = [*spoken["prompt_token_ids"], *spoken["generation_token_ids"]]
            if task == 1:
                before[1] = 27  # the template renders what was said in other tokens
            last = call([*before, 5, 6, 7], "3")
            answer = {"type": "function_call_output", "call_id": "call_0", "output": "3", "id": None, "status": None}
            last["output"] = [*first["output"], answer, *last["output"]]
        else:
            last = call(prompt, "<think>\nShort.\n</think>\n4", finish="length" if task == 1 else "stop")
        result = {**row, "response": last, "reward": float(member), "extracted": "3"}
        if task == 2:
            if member == 0:
                result["failure_reason"] = "no_sql_extracted"
            elif not self.has_failed:
                self.has_failed = True
                result |= {"reward": 0.0, "_ng_failure_class": "judge_failed", "_ng_failure_judge_error": "503"}
        return result


async def collect(folder: Path) -> None:
    import nemo_gym.rollout_collection as theirs

    rollouts = Rollouts()

    class Collector(theirs.RolloutCollectionHelper):
        def run_examples(self, examples: list[dict[str, Any]], *_: Any, **__: Any) -> Any:
            async def done(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
                return row, rollouts.result(row)

            return [done(row) for row in examples]

    theirs.get_global_config_dict = dict
    inputs = folder.parent / "inputs.jsonl"
    rows = [
        {"responses_create_params": {"input": [{"role": "user", "content": task}], "temperature": 0.7}, "id": number}
        for number, task in enumerate(TASKS)
    ]
    inputs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for resume in (False, True):  # the second time, what failed is sampled again
        config = theirs.RolloutCollectionConfig(
            agent_name="simple_agent",
            input_jsonl_fpath=str(inputs),
            output_jsonl_fpath=str(folder / "rollouts.jsonl"),
            num_repeats=2,
            resume_from_cache=resume,
            disable_aggregation=True,
            upload_rollouts_to_wandb=False,
        )
        await Collector().run_from_config(config)
    inputs.unlink()
    (folder.parent / "policy.json").write_text(json.dumps(np.round(rollouts.sampler.logps, 12).tolist()))


def make(folder: Path = FOLDER) -> None:
    os.environ.setdefault("WANDB_MODE", "disabled")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    asyncio.run(collect(folder / "results"))


if __name__ == "__main__":
    make()
