"""The injected faults: what is done to a healthy log of the trainer, what must be found, and what must be blamed.

The logs are of a sampler in int8 that gets new weights every fourth update, with every column; and of samplers with a
temperature, top-p and top-k, for the faults that need other draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis import Severity
from tests.analysis.linter.damaging import (
    ALL_LOGS,
    SHORT,
    B,
    C,
    Damage,
    N,
    T,
    _again,
    _groups_mixed,
    _in_base,
    _length,
    _no_signal,
    _noise,
    _nothing,
    _of_another,
    _padded,
    _prompt_only,
    _prompt_rows,
    _raw,
    _repeating,
    _reported,
    _restarted,
    _without,
    both,
    column,
    copied,
    exchanged,
    moved,
    rows,
    set_to,
)
from tests.making.faults import KEY

LARGE = (
    "prompts=16",
    "samples_per_prompt=8",
    "updates=16",
    "digits=2",
    "warm_start.max_steps=900",
    "learning_rate=0.002",
)
BASE = (*LARGE, "sync_interval=4", "reference_kl=0.001", "sampler.dtype=int8", "noise_floor_every=4")
RUNS: dict[str, tuple[str, ...]] = {
    "base": BASE,
    "temperature": (*LARGE, "temperature=0.7"),
    "top-p": (*LARGE, "top_p=0.8"),
    "top-k": (*LARGE, "top_k=2"),
    "offline": (*LARGE, "offline=true", "reference_kl=0.001"),
}


@dataclass(frozen=True)
class Injected:
    """A fault."""

    how: str
    """What goes wrong, in words."""
    damage: Damage
    found: tuple[str, ...]
    """Checks of the linter or rules of the diagnosis, one of which must find it."""
    blamed: tuple[str, ...]
    """The columns to blame, one of which must be among those that a remark names first; or words of a finding."""
    run: str = "base"
    missed: str = ""
    """Why it is not found, where it is known not to be."""
    least: Severity = Severity.WARNING
    """Where a notice is right, because it changes nothing that matters."""
    manifest: Mapping[str, Any] = field(default_factory=dict)


SHIFTS = {
    f"{word} shifted {direction}": Injected(
        f"{word} is gathered one position {direction}", moved(name, by), ("shifted", "own_token", "advantages"), (name,)
    )
    for word, name in (SHORT | {"advantage": "advantage"}).items()
    for direction, by in (("late", 1), ("early", -1))
}
ZEROS = {
    f"{word} zero": Injected(
        "missing values are replaced by 0",
        set_to(name, 0.0),
        ("zero_filled", "constant_columns", "advantages"),
        (name,),
    )
    for word, name in (SHORT | {"advantage": "advantage"}).items()
}
NANS = {
    f"{word} NaN": Injected("the forward pass overflows", set_to(name, np.nan), ("invalid_values",), (name,))
    for word, name in (SHORT | {"advantage": "advantage"}).items()
}
CONSTANTS = {
    f"{word} constant": Injected("a placeholder is logged", set_to(name, -1.5), ("constant_columns",), (name,))
    for word, name in SHORT.items()
    if word != "entropy"
}
COPIES = {
    f"{to} copied from {of}": Injected(
        "one column is logged twice", copied(SHORT[to], SHORT[of]), ("copied_columns",), (SHORT[to],)
    )
    for to, of in (
        ("behavior", "current"),
        ("current", "behavior"),
        ("new", "current"),
        ("current", "new"),
        ("behavior", "behavior_train"),
        ("behavior_train", "behavior"),
        ("behavior_train", "current"),
        ("reference", "current"),
    )
}
SWAPS = {
    f"{one} and {other} exchanged": Injected(
        "the columns are passed in the wrong order",
        exchanged(SHORT[one], SHORT[other]),
        ("swapped",),
        (SHORT[one], SHORT[other]),
    )
    for one, other in (
        ("behavior", "current"),
        ("behavior", "behavior_train"),
        ("behavior", "new"),
        ("behavior", "reference"),
        ("behavior_train", "current"),
        ("behavior_train", "new"),
        ("behavior_train", "reference"),
        ("current", "new"),
        ("current", "reference"),
        ("new", "reference"),
    )
}
NUMBERS = {
    "behavior in base 2": Injected("log2", _in_base(2, B), ("scale",), (B,)),
    "behavior in base 10": Injected("log10", _in_base(10, B), ("scale",), (B,)),
    "current in base 2": Injected("log2", _in_base(2, C), ("scale",), (C,)),
    "everything in base 10": Injected("log10", _in_base(10, *ALL_LOGS), ("scale",), ALL_LOGS),
    "everything in base 2": Injected(
        "log2",
        _in_base(2, *ALL_LOGS),
        ("drawn_as_logged", "scale"),
        (B, C),
    ),
    "behavior as probability": Injected(
        "exp is taken too early", column(B, lambda t: np.exp(t[B])), ("invalid_values",), (B,)
    ),
    "new as probability": Injected(
        "exp is taken too early", column(N, lambda t: np.exp(t[N])), ("invalid_values",), (N,)
    ),
    "behavior of the whole response": Injected(
        "the response's log-probability is repeated for each token",
        column(B, lambda t: t.groupby(["step", "seq_id"])[B].transform("sum")),
        ("own_token",),
        (B,),
    ),
    "behavior of the last token a placeholder": Injected(
        "the engine returns no value for the token that ends a response",
        column(B, lambda t: np.where(t["position"] == _length(t) - 1, -0.02, t[B])),
        ("placeholders",),
        (B,),
    ),
    "behavior averaged over the response": Injected(
        "the mean over the response is repeated",
        column(B, lambda t: t.groupby(["step", "seq_id"])[B].transform("mean")),
        ("own_token",),
        (B,),
    ),
    "behavior divided by the length": Injected(
        "normalised by the number of tokens", column(B, lambda t: t[B] / _length(t)), ("scale",), (B,)
    ),
    "behavior in float16": Injected(
        "stored in half precision",
        column(B, lambda t: t[B].astype(np.float16)),
        ("precision",),
        (B,),
        least=Severity.NOTICE,
    ),
    "behavior of other responses": Injected(
        "joined in another order",
        column(B, lambda t: t.groupby(["step", "position"])[B].transform(lambda x: np.roll(x, 3))),
        ("own_token",),
        (B,),
    ),
}
POLICIES = {
    "raw log-probs at temperature 0.7": Injected(
        "vLLM's default: log-probabilities before the temperature", _raw, ("drawn_as_logged",), (B,), "temperature"
    ),
    "raw log-probs at top-p 0.8": Injected("before top-p", _raw, ("drawn_as_logged",), (B,), "top-p"),
    "raw log-probs at top-k 2": Injected("before top-k", _raw, ("drawn_as_logged",), (B,), "top-k"),
    "temperature 0.7": Injected(
        "the trainer knows of no temperature", _nothing, ("temperature",), (B, T), "temperature"
    ),
    "top-p 0.8": Injected(
        "the trainer knows of no top-p, and the manifest states none",
        _nothing,
        ("truncated_support",),
        (B, T),
        "top-p",
        manifest={"sampler": {"top_p": 1.0}},
    ),
    "top-k 2": Injected(
        "the trainer knows of no top-k, and the manifest states none",
        _nothing,
        ("truncated_support",),
        (B, T),
        "top-k",
        manifest={"sampler": {"top_k": 0}},
    ),
    "int8 engine": Injected(
        "the sampler's weights are rounded", _nothing, ("on_policy_ratio",), (B,), least=Severity.NOTICE
    ),
    "frozen sampler": Injected(
        "new weights never arrive, and the version counts on",
        _reported(4),
        ("sampler_not_following",),
        ("sampler",),
        "offline",
    ),
    "stale by 3, reported fresh": Injected(
        "the version of the push is logged before the weights have arrived",
        both(_reported(1), set_to(T, np.nan), lambda tables: tables["tokens"].attrs.clear()),
        ("mismatch_cause", "sampler_not_following", "on_policy_ratio"),
        ("behavior_version", "sampler"),
    ),
    "recomputed denominators": Injected(
        "the trainer computes them anew with the current weights and another engine",
        column(B, lambda t: np.minimum(t[C] + _noise(0.002)(t), 0)),
        ("recomputed",),
        (B,),
    ),
    "old logp_new": Injected(
        "the forward pass comes before the optimiser's step",
        column(N, lambda t: np.minimum(t[C] + _noise(1e-7)(t), 0)),
        ("copied_columns",),
        (N,),
    ),
}
LOSS = {
    "flipped advantages": Injected(
        "the sign is that of a loss", column("advantage", lambda t: -t["advantage"]), ("advantages",), ("advantage",)
    ),
    "advantages of other responses": Injected(
        "rows are permuted before the join", _of_another, ("credit",), ("advantage",)
    ),
    "advantages constant": Injected("one value for all", set_to("advantage", 1.0), ("advantages",), ("advantage",)),
    "clip_side flipped": Injected(
        "the sign of the other convention", column("clip_side", lambda t: -t["clip_side"]), ("masks",), ("clip_side",)
    ),
    "clipped all false": Injected(
        "the mask is not logged",
        both(
            column("clipped", lambda t: np.zeros(len(t), bool)),
            column("clip_side", lambda t: np.zeros(len(t), np.int8)),
        ),
        ("masks",),
        ("clipped",),
    ),
    "rewards NaN": Injected(
        "the judge fails",
        rows("sequences", lambda s: s.assign(reward=s["reward"].where(s["seq_id"] % 20 > 0))),
        ("rewards",),
        ("reward",),
    ),
    "a part of the reward NaN": Injected(
        "one of two judges fails on some responses, and the sum counts that as 0",
        rows(
            "sequences",
            lambda s: s.assign(
                reward_judge=np.where(s["seq_id"] % 20 > 0, s["reward"], np.nan),
                reward_style=0.5,
                reward=s["reward"].where(s["seq_id"] % 20 > 0, 0.0) + 0.5,
            ),
        ),
        ("rewards",),
        ("reward_judge",),
    ),
    "losses NaN": Injected(
        "the update overflows",
        rows("steps", lambda s: s.assign(loss=s["loss"].where(s["step"] < 12))),
        ("rewards",),
        ("loss",),
    ),
}
RESPONSES = {
    "dropped groups": Injected(
        "groups without signal are left out, and nothing says so", _without(_no_signal), ("sizes",), ("sequences",)
    ),
    "dropped long responses": Injected(
        "what is unfinished is left out",
        _without(lambda s: np.random.default_rng(0).random(len(s)) < 0.1),
        ("sizes", "advantages"),
        ("sequences",),
    ),
    "duplicated rows": Injected(
        "a retry is logged again",
        rows("tokens", lambda t: pd.concat([t, t[t["seq_id"] == 3]]).sort_values(KEY)),
        ("sequence_rows",),
        ("step", "seq_id", "position"),
    ),
    "duplicated responses": Injected("two ranks log the same", _again, ("repeated",), ("seq_id",)),
    "prompt tokens included": Injected(
        "the response mask is not applied", _prompt_rows, ("response_mask",), ("token_id",)
    ),
    "mask inverted": Injected("the response mask is negated", _prompt_only, ("response_mask",), ("token_id",)),
    "padding included": Injected("the attention mask is not applied", _padded, ("padding",), ("token_id", "n_tokens")),
    "padding counted": Injected(
        "n_tokens counts the padding",
        rows("sequences", lambda s: s.assign(n_tokens=np.int32(7))),
        ("sequence_rows",),
        ("n_tokens",),
    ),
    "rewards of other responses": Injected(
        "rows are permuted before the join, and nothing says of which kind advantages are",
        rows("sequences", lambda s: s.assign(reward=np.random.default_rng(0).permutation(s["reward"]))),
        ("credit",),
        ("reward",),
        manifest={"algorithm": {"parts": {}}},
    ),
    "wrong group ids": Injected(
        "responses are numbered in another order", _groups_mixed, ("own_token", "advantages"), ("group_id",)
    ),
}
STEPS = {
    "steps missing": Injected(
        "files are lost",
        both(*(rows(table, lambda f: f[~f["step"].isin([5, 6])]) for table in ("tokens", "sequences", "steps"))),
        ("steps",),
        ("step",),
    ),
    "steps repeated": Injected("every second batch is that of the step before", _repeating, ("repeated",), ("step",)),
    "steps restarted": Injected("a restart counts from 0", _restarted, ("sequence_rows", "steps"), ("step",)),
    "versions back": Injected(
        "a restart counts versions from 0",
        both(
            column(
                "behavior_version",
                lambda t: np.where(t["step"] >= 10, t["behavior_version"] - 8, t["behavior_version"]),
            ),
            rows(
                "steps",
                lambda s: s.assign(
                    policy_version=np.where(s["step"] >= 10, s["policy_version"] - 8, s["policy_version"]).astype(
                        np.int32
                    )
                ),
            ),
        ),
        ("versions",),
        ("policy_version",),
    ),
    "sampler's versions back": Injected(
        "the engine restarts and counts from 0",
        column(
            "behavior_version", lambda t: np.where(t["step"] >= 8, t["behavior_version"] - 8, t["behavior_version"])
        ),
        ("versions",),
        ("behavior_version",),
    ),
    "versions from the future": Injected(
        "the version after the update is logged",
        column("behavior_version", lambda t: t["behavior_version"] + 2),
        ("versions",),
        ("behavior_version",),
    ),
}

INJECTED: dict[str, Injected] = (
    SHIFTS | ZEROS | NANS | CONSTANTS | COPIES | SWAPS | NUMBERS | POLICIES | LOSS | RESPONSES | STEPS
)
