"""verifiers' traces: trees of messages with their tokens, as responses, tokens and messages.

Read from verifiers 0.4.0, `verifiers/v1/trace.py`, `graph.py` and `episode.py`. A trace is a tree: every message is
stored once, and a conversation is a path from a root to a leaf. Log-probabilities and the like are stored for sampled
tokens alone (`mask` true), so they are shorter than `token_ids`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers.responses import Response, fitting
from ratioscope.analysis.importers.source import BadLine
from ratioscope.analysis.importers.values import (
    as_number,
    at,
    calls_of,
    joined_columns,
    moment,
    nulls,
    numbers,
    part_of_reward,
    said,
    scattered,
    transcript,
    with_nulls,
    words_of,
)
from ratioscope.run_format import schema

DECIMALS = 4
"""That the writer keeps of a log-probability (`RECORD_FLOAT_DECIMALS`)."""

LISTS = tuple(f"traces[*].nodes[*].{name}" for name in ("token_ids", "mask", "logprobs"))
"""In an episode, which has most of its numbers in these."""

_COMPACT = {
    "logprobs": "logp_behavior",
    "trainer_logprobs": "logp_current",
    "reference_logprobs": "logp_reference",
    "advantages": "advantage",
    "entropies": "entropy",
    "is_masked": "clipped",
}
_TRUNCATING = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")


@dataclass(frozen=True)
class Branch:
    """A path from a root to a leaf: one conversation, and one sample of the trainer."""

    trace: Mapping[str, Any]
    path: tuple[int, ...]
    """Its nodes."""
    counted: frozenset[int]
    """Those whose sampled tokens are its own: a message that several branches share belongs to the first of them."""

    @cached_property
    def nodes(self) -> list[Mapping[str, Any]]:
        return [self.trace["nodes"][place] for place in self.path]

    @cached_property
    def token_ids(self) -> NDArray[np.int32]:
        """All tokens, prompt and tools too. (n_all,)"""
        return np.concatenate([list_of(node, "token_ids", np.int32) for node in self.nodes])

    @cached_property
    def messages_of_tokens(self) -> NDArray[np.int16]:
        """By token, which message of the conversation it is in. (n_all,)"""
        lengths = [len(_list(node, "token_ids")) for node in self.nodes]
        return np.repeat(np.arange(len(lengths), dtype=np.int16), lengths)

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Which of its tokens are sampled and its own. (n_all,)"""
        parts = []
        for place, node in zip(self.path, self.nodes, strict=True):
            own = list_of(node, "mask", np.bool_)
            parts.append(own if place in self.counted else np.zeros(len(own), dtype=bool))
        return np.concatenate(parts)

    def tokens(self) -> dict[str, Any] | None:
        """Columns over its own sampled tokens; None where the trace has no token ids.

        Raises:
            BadLine: a list of a message is shorter or longer than its sampled tokens; says which.
        """
        mask = self.mask
        ids = self.token_ids
        if len(mask) != len(ids):
            raise BadLine(f"a trace has {len(ids)} token ids and a mask of {len(mask)}")
        if not mask.any():
            return None
        columns: dict[str, Any] = {"token_id": ids[mask], "turn": self.messages_of_tokens[mask]}
        own = [self.trace["nodes"][place] for place in self.path if place in self.counted]
        for stored, column in _COMPACT.items():
            if any(_has(node, stored) for node in own):
                columns[column] = joined_columns([_compact(node, stored) for node in own])
        if "clipped" in columns:
            columns |= _gated(columns)
        weights = self._weights("rl")
        if weights is not None and (weights[mask] == 0).any():
            columns.setdefault("rejected", scattered(weights[mask] == 0, "weight 0 in the loss"))
        return columns

    def _weights(self, name: str) -> NDArray[np.float32] | None:
        streams = [at(node, "loss_weights", name) for node in self.nodes]
        if all(stream is None for stream in streams):
            return None
        return np.concatenate(
            [
                np.zeros(len(_list(node, "token_ids")), np.float32) if stream is None else np.array(stream, np.float32)
                for node, stream in zip(self.nodes, streams, strict=True)
            ]
        )


@dataclass
class Told:
    """All that a trace tells of one conversation, in the columns of the run format."""

    group: Any
    """What the responses to its prompt have in common."""
    row: dict[str, Any]
    """Of the sequences table, without seq_id and group_id."""
    tokens: dict[str, Any] | None
    messages: list[dict[str, Any]]
    ids: NDArray[np.int32]
    """All of its tokens, prompt and tools too. (n_all,)"""
    messages_of_tokens: NDArray[np.int16]
    trace: Mapping[str, Any]
    used: bool = False

    def response(self, row: dict[str, Any]) -> Response:
        """It as a response with this row; of one that was dropped the tokens are not taken."""
        tokens = self.tokens if row.get("dropped") is None else None
        return Response(values=dict(tokens or {}), row=row, messages=self.messages)


def told(episode: Mapping[str, Any]) -> list[Told]:
    """The conversations of an episode that the policy had: what a judge or a simulated user says is none.

    Raises:
        SURPRISES: the episode has another shape.
    """
    found = []
    for trace in episode.get("traces") or []:
        if at(trace, "agent", "trainable") is False:
            continue
        for branch in branches(trace):
            row, tokens = fitting(schema.SEQUENCES, sequence_of(branch, episode)), branch.tokens()
            if tokens is not None and row.get("behavior_version_min") is not None:
                tokens["behavior_version"] = np.full(len(tokens["token_id"]), row["behavior_version_min"], np.int32)
            group = episode_group(episode, trace)
            ids, places = branch.token_ids, branch.messages_of_tokens
            hash(group)
            messages = [fitting(schema.MESSAGES, message) for message in messages_of(branch)]
            found.append(Told(group, row, tokens, messages, ids, places, trace))
    return found


def branches(trace: Mapping[str, Any]) -> Iterator[Branch]:
    """The conversations of a trace that are trained on, in the order of their leaves.

    A message that several share is counted in the first, as prime-rl trains it. An attempt at a compaction that nothing
    went on from is no conversation.
    """
    nodes = trace.get("nodes") or []
    links = [link for node in nodes for link in node.get("semantic_parents") or []]
    accepted = {link.get("node") for link in links if link.get("type") == "compaction"}
    taken: set[int] = set()
    for path in leaf_paths(nodes):
        if _is_attempt(nodes[path[-1]]) and path[-1] not in accepted:
            continue
        own = {place for place in path if nodes[place].get("sampled") and place not in taken}
        if own or not any(node.get("sampled") for node in nodes):
            yield Branch(trace, path, frozenset(own))
        taken |= own


def leaf_paths(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[int, ...]]:
    """Every path from a root to a leaf, in the order of the leaves; a branch's number is its place here."""
    parents = {node.get("parent") for node in nodes}
    paths = []
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path = [leaf]
        while (parent := nodes[path[-1]].get("parent")) is not None and len(path) <= len(nodes):
            path.append(parent)
        paths.append(tuple(reversed(path)))
    return paths


def sequence_of(branch: Branch, episode: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a conversation; without seq_id and group_id, which are the batch's to give."""
    trace, nodes = branch.trace, branch.nodes
    messages = [node.get("message") or {} for node in nodes]
    first = next((place for place, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    own = [node for place, node in zip(branch.path, nodes, strict=True) if place in branch.counted]
    calls = [call for call in trace.get("calls") or [] if call.get("node") in branch.counted]
    finish = next((call.get("finish_reason") for call in reversed(calls) if not call.get("error")), None)
    agent, ended = at(trace, "agent", "name"), trace.get("stop_condition")
    sampling = next((call.get("sampling") for call in calls if call.get("sampling")), None) or {}
    tokens = sum(_sampled(node) for node in own)
    example = at(trace, "task", "data", "idx")
    return {
        "prompt_id": example if isinstance(example, int) else None,
        "prompt": transcript(messages[:first]) or None,
        "response": transcript(messages[first:]) or None,
        "n_tokens": tokens if any(len(_list(node, "token_ids")) for node in nodes) else None,
        **_rewards(trace),
        "finish_reason": words_of(finish or ended),
        "truncated": ended in _TRUNCATING or finish == "length" if finish or ended else None,
        "failure": failure_of(trace),
        "environment": words_of(at(episode, "env", "name") or at(episode, "env", "id") or None),
        "source": words_of(agent) if agent != "agent" else None,
        "temperature": as_number(sampling.get("temperature")),
        "top_p": as_number(sampling.get("top_p")),
        "top_k": sampling.get("top_k") if isinstance(sampling.get("top_k"), int) else None,
        "n_turns": len(own),
        "n_tool_calls": sum(len(calls_of(node.get("message") or {})) for node in own),
        "seconds_generating": _seconds(call.get("time") for call in calls),
        "seconds_tools": as_number(at(trace, "timing", "agent", "harness", "duration")) or None,
        **_versions(episode),
    }


def messages_of(branch: Branch) -> Iterator[dict[str, Any]]:
    """The rows of a conversation's messages, without seq_id."""
    times = {call.get("node"): call.get("time") or {} for call in branch.trace.get("calls") or []}
    names: dict[str, str] = {}
    position = 0
    for turn, (place, node) in enumerate(zip(branch.path, branch.nodes, strict=True)):
        message = node.get("message") or {}
        names |= {str(call.get("id")): str(call.get("name")) for call in message.get("tool_calls") or []}
        called = calls_of(message)
        answered = message.get("name") or names.get(str(message.get("tool_call_id")))
        sampled = place in branch.counted
        time = times.get(place, {})
        ids = len(_list(node, "token_ids"))
        size = _sampled(node) if sampled else ids
        yield {
            "turn": turn,
            "role": words_of(message.get("role")),
            "content": said(message),
            "tool": called[0][0] if called else (answered if message.get("role") == "tool" else None),
            "n_tokens": size if ids else None,
            "first_position": position if sampled and ids else None,
            "started": moment(time.get("start")),
            "ended": moment(time.get("end")),
        }
        position += size if sampled else 0


def episode_group(episode: Mapping[str, Any], trace: Mapping[str, Any]) -> Any:
    """What the responses of a prompt have in common: the episode's group, else the task."""
    group = at(episode, "group", "id")
    if group is not None:
        return group
    task = trace.get("task") or episode.get("task") or {}
    return task.get("key") or task.get("hash") or at(task, "data", "idx")


def failed(trace: Mapping[str, Any]) -> bool:
    """Whether its rollout ended in an error."""
    return bool(trace.get("errors")) and not trace.get("ok")


def failure_of(record: Mapping[str, Any]) -> str | None:
    """Why a trace or an episode failed: all errors that verifiers types are of what surrounds the policy."""
    if record.get("is_timeout"):
        return "timeout"
    return "environment" if failed(record) else None


def without_trace(episode: Mapping[str, Any]) -> dict[str, Any]:
    """The row of an episode that failed before there was a trace; without seq_id and group_id.

    Of the errors of all attempts, oldest first, the last is named: with it verifiers gave up.
    """
    error: Mapping[str, Any] = next(reversed(episode.get("errors") or []), {})
    return {
        "environment": words_of(at(episode, "env", "name") or at(episode, "env", "id") or None),
        "dropped": f"failed: {at(error, 'type') or 'error'}",
        "failure": failure_of(episode) or "environment",
    }


def _is_attempt(node: Mapping[str, Any]) -> bool:
    return any(link.get("type") == "compaction_attempt" for link in node.get("semantic_parents") or [])


def list_of(node: Mapping[str, Any], stored: str, kind: type[np.generic]) -> NDArray[Any]:
    """A list of a message as an array, empty where it has none."""
    return np.asarray(_list(node, stored), dtype=kind)


def _list(node: Mapping[str, Any], stored: str) -> Any:
    values = node.get(stored)
    return () if values is None else values


def _sampled(node: Mapping[str, Any]) -> int:
    """How many of a message's tokens were sampled."""
    return int(np.count_nonzero(_list(node, "mask")))


def _has(node: Mapping[str, Any], stored: str) -> bool:
    values = node.get(stored)
    return values is not None and len(values) > 0  # [] and null: nobody scored it


def _compact(node: Mapping[str, Any], stored: str) -> Any:
    """Values over the sampled tokens of a message, masked where it has none."""
    wanted = _sampled(node)
    if not _has(node, stored):
        return nulls(wanted)
    values = node[stored]
    if len(values) != wanted:
        raise BadLine(f"a message has {len(values)} {stored} for {wanted} sampled tokens")
    return values if isinstance(values, np.ma.MaskedArray) else numbers(values)


def _gated(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the mask of the trainer's loss says of each token: clipped or not, or (null) that it is not in this loss.

    A token that the trainer scored nowhere is in no loss at all. Of one that is in it, a value that is absent was not
    finite, which is how the trainer writes those.
    """
    stopped = np.ma.filled(columns["clipped"], np.nan)
    outside = np.isnan(stopped)
    hit = ~outside & (stopped != 0)
    found: dict[str, Any] = {
        "clipped": with_nulls(hit, outside),
        "gate": with_nulls((~hit).astype(np.float32), outside),
    }
    if "logp_current" in columns:
        unscored = np.ma.getmaskarray(columns["logp_current"])
        values = np.ma.filled(columns["logp_current"], np.nan)
        found["logp_current"] = with_nulls(values, unscored & outside)
        if outside.any():
            found["rejected"] = scattered(outside, "trained by another loss")
            found["rejected"][outside & unscored] = "not in the loss"
        if "logp_behavior" in columns:
            above = values > np.ma.getdata(columns["logp_behavior"])
            found["clip_side"] = with_nulls(np.where(above, np.int8(1), np.int8(-1)) * hit, outside)
    return found


def _rewards(trace: Mapping[str, Any]) -> dict[str, float | None]:
    """The weighted parts, and their sum; null where no reward was given, which the writer counts as 0."""
    parts = {
        part_of_reward(name): score * (1.0 if (weight := as_number(reward.get("weight"))) is None else weight)
        for name, reward in (trace.get("rewards") or {}).items()
        if isinstance(reward, Mapping) and (score := as_number(reward.get("score"))) is not None
    }
    return {"reward": sum(parts.values()) if parts else None, **(parts if len(parts) > 1 else {})}


def _versions(episode: Mapping[str, Any]) -> dict[str, int]:
    policy = at(episode, "run", "work", "policy") or {}
    return {
        column: policy[name]
        for column, name in (("behavior_version_min", "start"), ("behavior_version_max", "end"))
        if isinstance(policy.get(name), int)
    }


def _seconds(spans: Any) -> float | None:
    """Together; None where nothing was timed."""
    lengths = [span["end"] - span["start"] for span in spans if span and span.get("end") and span.get("start")]
    return sum(lengths) if lengths else None
