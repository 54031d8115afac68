"""Makes stored/atropos with Atropos' own environment and managed server: python -m tests.making.foreign.atropos

Made with atroposlib 0.4.0, of which it needs nothing else. A policy over pairs of tokens stands for the inference
server; it answers twice, with a tool's words between, and gives too few log-probabilities once. The second group has
advantages, a teacher and a response whose advantage is set to zero.
"""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored/atropos"
WORDS = ["<unk>", "<eos>", "system", "user", "assistant", "tool", "one", "two", "three", "four", "five", "six"]
TEMPLATE = (
    "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)
GROUP = 3


class Sampler:
    """What a managed server asks of an inference server."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.random = np.random.default_rng(7)
        logits = self.random.normal(0, 1.2, (len(WORDS), len(WORDS)))
        logits[:, :6] -= 6  # words alone
        self.logps = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        self.calls = 0
        self.config = type("Config", (), {"model_name": "policy"})()

    async def tokens_and_logprobs_completion(self, **asked: Any) -> tuple[Any, ...]:
        ids = asked.get("input_ids") or self.tokenizer.encode(asked["prompt"])
        made: list[int] = []
        for _ in range(int(self.random.integers(3, 7))):
            made.append(int(self.random.choice(len(WORDS), p=np.exp(self.logps[[*ids, *made][-1]]))))
        logps = [float(self.logps[before, after]) for before, after in zip([ids[-1], *made], made, strict=False)]
        self.calls += 1
        return ids, [made], [logps[: -1 if self.calls == 2 else None]], ["stop"]


async def groups(folder: Path, place: Path) -> None:
    from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
    from atroposlib.envs.server_handling.managed_server import ManagedServer
    from transformers import AutoTokenizer

    class Environment(BaseEnv):
        name = "words"

        async def get_next_item(self) -> Any:
            return None

        async def evaluate(self, *_: Any, **__: Any) -> None:
            return None

        async def setup(self) -> None:
            return None

    environment = Environment(
        BaseEnvConfig(
            tokenizer_name=str(place),
            group_size=GROUP,
            use_wandb=False,
            include_messages=True,
            data_path_to_save_groups=str(folder / "groups/words.jsonl"),
        ),
        [APIServerConfig(model_name="policy", base_url="http://localhost:9/v1", api_key="x", server_type="openai")],
        testing=True,
    )
    sampler = Sampler(AutoTokenizer.from_pretrained(place))
    for number, question in enumerate(("one two", "three four", "five six")):
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[], messages=[])
        for member in range(GROUP):
            server = ManagedServer(sampler, tokenizer=sampler.tokenizer)
            talk = [{"role": "user", "content": question}]
            for turn in range(2 if member == 0 else 1):
                answer = await server.chat_completion(messages=talk, n=1)
                talk.append({"role": "assistant", "content": answer.choices[0].message.content})
                if member == 0 and turn == 0:
                    talk.append({"role": "tool", "content": "six six"})
            (node,) = server.get_state()["nodes"]
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["messages"].append(talk)
            group["scores"].append(float(node.tokens.count(6)))
        if number == 1:
            group["advantages"] = [
                [score - 0.5] * len(ids) for score, ids in zip(group["scores"], group["tokens"], strict=True)
            ]
            group["overrides"] = [{}, {"set_advantage_to_zero": True}, {}]
            group["distill_token_ids"] = [
                [*([one, (one + 1) % 12] for one in ids[:-1]), [0, 1]] for ids in group["tokens"]
            ]
            group["distill_logprobs"] = [[[-0.5, -1.5]] * len(ids) for ids in group["tokens"]]
        group["scores"][-1] += 0.25
        await environment.handle_send_to_api(group, do_send_to_api=False)
    environment.jsonl_writer.close()
    (folder / "policy.json").write_text(json.dumps(np.round(sampler.logps, 12).tolist()))


def make(folder: Path = FOLDER) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", chat_template=TEMPLATE).save_pretrained(
            place
        )
        asyncio.run(groups(folder, Path(place)))


if __name__ == "__main__":
    make()
