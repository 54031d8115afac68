"""What a generation knows of its responses: texts, rewards by function, groups, lengths, turns."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import Tensor

from ratioscope.adapters.trl.columns import Message, ScoredResponse


@dataclass(frozen=True)
class GatheredRewards:
    """What the reward functions of one process were given, and what those of all processes returned."""

    prompts: list[Any]
    """Texts, or lists of messages; prompt groups in order."""
    completions: list[Any]
    ids: list[list[int]]
    """Token ids of the completions, without padding."""
    rewards: Tensor
    """(responses of all processes, reward functions), NaN where a function has nothing to say."""
    own: list[list[int]] | None = None
    """Of each token of the completions whether the policy drew it, where the user's rollout_func says so (env_mask)."""


def responses_of(trainer: Any, scored: GatheredRewards, *, first_group: int) -> list[ScoredResponse]:
    """One for each row of a generation, before TRL shuffles them.

    Groups are counted over all processes: a process's rows are a slice of the generation.
    """
    n, place = len(scored.ids), trainer.accelerator.process_index
    rewards = scored.rewards.detach().cpu().float()[place * n : (place + 1) * n]
    totals = (rewards * trainer.reward_weights.detach().cpu().float()).nansum(dim=1).tolist()
    unscored, by_function = rewards.isnan().all(dim=1).tolist(), rewards.tolist()
    names = [str(name) for name in trainer.reward_func_names]
    ends = _end_ids(trainer)
    version = int(trainer.state.global_step)
    result = []
    for row in range(n):
        prompt, completion, ids = scored.prompts[row], scored.completions[row], scored.ids[row]
        if row == 0 or prompt != scored.prompts[row - 1]:  # a group has one
            text = conversation_text(prompt)
            number = prompt_id(text)
        result.append(
            ScoredResponse(
                group=first_group + (place * n + row) // int(trainer.num_generations),
                version=version,
                prompt=text,
                prompt_id=number,
                text=conversation_text(completion),
                reward=None if unscored[row] else totals[row],
                parts={
                    name: None if math.isnan(part) else part for name, part in zip(names, by_function[row], strict=True)
                },
                length=len(ids),
                ended=bool(ids) and ids[-1] in ends,
                messages=conversation_messages(prompt, completion)
                or (_with_environment(trainer, prompt, ids, scored.own[row]) if scored.own else ()),
            )
        )
    return result


def groups_in(trainer: Any, responses: int) -> int:
    """Prompt groups in a generation, over all processes.

    Args:
        responses: of one process.
    """
    return -(-responses * int(trainer.accelerator.num_processes) // int(trainer.num_generations))


def prompt_id(text: str) -> int:
    """The same number for the same prompt in every run: TRL does not say which row of the data set a prompt is."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest(), "big")


def conversation_text(conversation: Any) -> str:
    """A text as it is; of messages the only one's content, or all of them with their roles."""
    if isinstance(conversation, str):
        return conversation
    messages = [message for message in conversation if isinstance(message, dict)]
    if len(messages) == 1:
        return _content(messages[0])
    return "\n".join(f"{message.get('role', '')}: {_content(message)}" for message in messages)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):  # parts of a multimodal message
        content = " ".join(
            str(part.get("text", f"[{part.get('type', 'part')}]")) for part in content if isinstance(part, dict)
        )
    calls = message.get("tool_calls") or ()
    return "\n".join([*([str(content)] if content else []), *(str(call.get("function", call)) for call in calls)])


def conversation_messages(prompt: Any, completion: Any) -> tuple[Message, ...]:
    """Return the messages of a conversation in which a tool spoke; of a prompt and an answer there are their texts."""
    if isinstance(completion, str) or isinstance(prompt, str):
        return ()
    said = [message for message in (*prompt, *completion) if isinstance(message, dict)]
    if not any(message.get("role") == "tool" for message in said[len(prompt) :]):
        return ()
    return tuple(message_of(message, sampled=index >= len(prompt)) for index, message in enumerate(said))


def message_of(message: dict[str, Any], *, sampled: bool) -> Message:
    """Return a message of a conversation, as the messages table has it."""
    return Message(str(message.get("role", "")), _content(message), _tool(message), sampled=sampled)


def _with_environment(trainer: Any, prompt: Any, ids: list[int], own: list[int]) -> tuple[Message, ...]:
    """Of a response into which an environment wrote: what it and the policy said in turn, by the mask of its tokens."""
    if all(own):
        return ()
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    before = [message_of(message, sampled=False) for message in asked if isinstance(message, dict)]
    decode = trainer.processing_class.decode
    after = []
    for policy, run in groupby(zip(own, ids, strict=True), key=lambda pair: bool(pair[0])):
        said = decode([token for _, token in run], skip_special_tokens=True)
        after.append(Message("assistant" if policy else "tool", str(said), None, sampled=True))
    return (*before, *after)


def _tool(message: dict[str, Any]) -> str | None:
    if message.get("role") == "tool":
        return None if message.get("name") is None else str(message["name"])
    names = [
        str(call.get("function", {}).get("name", ""))
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
    ]
    return ", ".join(names) or None


def _end_ids(trainer: Any) -> set[int]:
    """What TRL takes for the end of a completion; one that has none of them at its end was cut."""
    processing = getattr(trainer, "_tokenizer", None) or trainer.processing_class
    tokenizer = getattr(processing, "tokenizer", processing)
    ends = getattr(trainer, "eos_token_ids", None) or [tokenizer.eos_token_id]  # in older versions it has one
    return {int(token) for token in [*ends, tokenizer.pad_token_id] if token is not None}


def text_of_token(tokenizer: Any) -> Callable[[int], str]:
    """Text of a token id; its name where it is no text: special tokens, and parts of a character."""
    special = set(tokenizer.all_special_ids)

    def text(token: int) -> str:
        shown = str(tokenizer.decode([token]))
        if shown and "\N{REPLACEMENT CHARACTER}" not in shown and token not in special:
            return shown
        name: str | Sequence[str] | None = tokenizer.convert_ids_to_tokens(token)
        return f"<{token}>" if name is None else str(name)

    return text
