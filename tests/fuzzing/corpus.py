"""What broke once, by target: values as they were found, made small."""

from typing import Any

KEPT: dict[str, list[Any]] = {
    "schema": [
        [("sequences", "reward", "there twice")],
        [("tokens", "step", "uint64")],
        [("tokens", "gate", "some -inf")],
        [("tokens", "step", "largest"), ("steps", "eval_accuracy", "all -inf")],
    ],
    "limits": ["a = " + "[" * 5_000, "a = " + "{a=" * 3_000],
    "mapping": ["a = " + "[" * 5_000],
    "sql": ["select infinity::timestamp from tokens a, tokens b"],
}
