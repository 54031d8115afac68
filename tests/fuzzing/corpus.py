"""What broke once, by target: values as they were found, made small."""

from typing import Any

KEPT: dict[str, list[Any]] = {
    "schema": [
        [("sequences", "reward", "there twice")],
        [("tokens", "step", "uint64")],
        [("tokens", "gate", "some -inf")],
        [("sequences", "response", "text that is not UTF-8")],
        [("tokens", "behavior_version", "smallest of its type"), ("steps", "policy_version", "smallest of its type")],
        [("tokens", "step", "largest"), ("steps", "eval_accuracy", "all -inf")],
    ],
    "marks": [
        ("healthy_03_reward_parts-verl", "tokens", "position", "smallest of its type", "late"),
        ("healthy_03_reward_parts-verl", "sequences", "n_tokens", "nulls of its type", "not late"),
    ],
    "limits": ["a = " + "[" * 5_000, "a = " + "{a=" * 3_000],
    "mapping": ["a = " + "[" * 5_000],
    "sources": [
        ("verl", 0, 0, "file: a pipe", False),
        ("verl", 0, 0, "file: to a device", False),
        ("verl", 0, 0, "file: empty", False),
    ],
    "sql": ["select infinity::timestamp from tokens a, tokens b"],
}
