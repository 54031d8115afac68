"""The injected faults: what is done to a healthy log of the trainer, what must be found, and what must be blamed.

The logs are of a sampler in int8 that gets new weights every fourth update, with every column; and of samplers with a
temperature, top-p and top-k, for the faults that need other draws.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Manifest
from ratioscope.analysis.diagnosis import Severity
from ratioscope.recorder import write_table_file
from tests.making.faults import KEY

Tables = dict[str, pd.DataFrame]
Damage = Callable[[Tables], None]

B, T, C, N, F = "logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "logp_reference"
SHORT = {"behavior": B, "behavior_train": T, "current": C, "new": N, "reference": F, "entropy": "entropy"}
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


def read(folder: Path) -> Tables:
    """The tables of a run in frames; null where a column was not logged."""
    found = {}
    for table in ("tokens", "sequences", "steps"):
        files = [pq.read_table(file) for file in sorted((folder / table).glob("*.parquet"))]
        found[table] = pa.concat_tables(files, promote_options="default").to_pandas()
    found["tokens"] = found["tokens"].sort_values(KEY).reset_index(drop=True)
    return found


def write(tables: Tables, source: Path, to: Path, manifest: Mapping[str, Any]) -> Path:
    """A run with these tables, in one file each; NaN is written as NaN, and a column without a value as null."""
    schemas = {table: pq.read_schema(next((source / table).glob("*.parquet"))) for table in tables}
    for table, frame in tables.items():
        (to / table).mkdir(parents=True)
        arrays = []
        for of in schemas[table]:
            values = frame[of.name]
            empty = of.name not in frame.attrs.get("filled", ()) and values.isna().all()
            floats = pa.types.is_floating(of.type) and not empty
            arrays.append(
                pa.array(values.to_numpy(), of.type, from_pandas=False)
                if floats
                else pa.Array.from_pandas(values, type=of.type)
            )
        written = pa.Table.from_arrays(arrays, schema=schemas[table])
        steps = frame["step"]
        write_table_file(to / table / f"{steps.min():06d}-{steps.max():06d}-w0.parquet", written)
    of_run = Manifest.read(source)
    for key, value in manifest.items():
        setattr(of_run, key, getattr(of_run, key) | value)
    of_run.write(to)
    return to


# What is done ---------------------------------------------------------------------------------------------------------


def column(name: str, change: Callable[[pd.DataFrame], Any]) -> Damage:
    """A column of the tokens, made of the table."""

    def damage(tables: Tables) -> None:
        tables["tokens"][name] = np.asarray(change(tables["tokens"]), dtype=tables["tokens"][name].dtype)
        tables["tokens"].attrs["filled"] = (name,)

    return damage


def moved(name: str, by: int) -> Damage:
    """A column that is `by` positions late, -0.01 where there is nothing to take."""
    return column(
        name,
        lambda t: (
            t.groupby(["step", "seq_id"])[name].shift(by, fill_value=0.01 if name == "entropy" else -0.01).to_numpy()
        ),
    )


def set_to(name: str, value: float) -> Damage:
    return column(name, lambda t: np.full(len(t), value))


def copied(to: str, of: str) -> Damage:
    return column(to, lambda t: t[of].to_numpy())


def exchanged(one: str, other: str) -> Damage:
    def damage(tables: Tables) -> None:
        t = tables["tokens"]
        t[one], t[other] = t[other].copy(), t[one].copy()

    return damage


def rows(table: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Damage:
    def damage(tables: Tables) -> None:
        tables[table] = change(tables[table]).reset_index(drop=True)

    return damage


def both(*damages: Damage) -> Damage:
    def damage(tables: Tables) -> None:
        for each in damages:
            each(tables)

    return damage


def _length(t: pd.DataFrame) -> "pd.Series[int]":
    return t.groupby(["step", "seq_id"])["position"].transform("size")


def _reported(every: int) -> Damage:
    """The sampler reports the version of the last push, every so many updates, whatever it draws with."""
    return column("behavior_version", lambda t: t["step"] // every * every)


def _without(condition: Callable[[pd.DataFrame], Any]) -> Damage:
    """Responses that are in no table."""

    def damage(tables: Tables) -> None:
        sequences = tables["sequences"]
        gone = sequences[np.asarray(condition(sequences), dtype=bool)][["step", "seq_id"]].assign(gone=True)
        for table in ("sequences", "tokens"):
            marked = tables[table].merge(gone, how="left", on=["step", "seq_id"])["gone"].notna()
            tables[table] = tables[table][~marked.to_numpy()].reset_index(drop=True)

    return damage


def _no_signal(s: pd.DataFrame) -> Any:
    return s.groupby(["step", "group_id"])["reward"].transform("std").fillna(0) == 0


def _again(tables: Tables) -> None:
    """The first two responses of every group are there again under other numbers."""
    for table in ("sequences", "tokens"):
        frame = tables[table]
        extra = frame[frame["seq_id"] % 8 < 2].assign(seq_id=lambda each: each["seq_id"] + 1000)
        tables[table] = pd.concat([frame, extra]).sort_values([c for c in KEY if c in frame]).reset_index(drop=True)


def _prompt_rows(tables: Tables) -> None:
    """Three tokens of the prompt stand before every response and count as its own."""
    t = tables["tokens"]
    first = t[t["position"] == 0]
    rng, parts = np.random.default_rng(0), []
    for place in range(3):
        logp = -rng.exponential(2.0, len(first)) - 0.05
        of_group = pd.Series(logp).groupby([first["step"].to_numpy(), first["group_id"].to_numpy()]).transform("first")
        noise = {name: (of_group + 0.001 * k).to_numpy().astype(np.float32) for k, name in enumerate((B, T, C, N, F))}
        token = (first["group_id"] * 7 + place) % 11
        parts.append(first.assign(position=place, token_id=token.astype(np.int32), **noise))
    tables["tokens"] = pd.concat([*parts, t.assign(position=t["position"] + 3)]).sort_values(KEY).reset_index(drop=True)
    tables["sequences"]["n_tokens"] += 3


def _prompt_only(tables: Tables) -> None:
    """The mask is inverted: the rows are the prompt's tokens, and the response's are left out."""
    _prompt_rows(tables)
    tables["tokens"] = tables["tokens"][tables["tokens"]["position"] < 3].reset_index(drop=True)
    tables["sequences"]["n_tokens"] = np.int32(3)


def _padded(tables: Tables) -> None:
    """Responses are filled up to a common length with a padding token, which is logged."""
    t = tables["tokens"]
    last = t[t["position"] == _length(t) - 1]
    parts = [t]
    for _, row in last.iterrows():
        n = 7 - int(row["position"]) - 1
        extra = pd.DataFrame([row] * n).assign(position=np.arange(int(row["position"]) + 1, 7), token_id=13)
        parts.append(extra.assign(**{name: -0.001 * (1 + k) for k, name in enumerate((B, T, C, N, F))}))
    tables["tokens"] = pd.concat(parts).astype(t.dtypes.to_dict()).sort_values(KEY).reset_index(drop=True)
    tables["sequences"]["n_tokens"] = np.int32(7)


def _restarted(tables: Tables) -> None:
    """The counter of the steps begins again after a restart."""
    for frame in tables.values():
        frame["step"] = np.where(frame["step"] >= 10, frame["step"] - 10, frame["step"]).astype(frame["step"].dtype)
    tables["tokens"] = tables["tokens"].sort_values(KEY).reset_index(drop=True)


def _groups_mixed(tables: Tables) -> None:
    """Responses are numbered into groups in another order than the prompts."""
    for table in ("sequences", "tokens"):
        tables[table]["group_id"] = tables[table]["seq_id"] % 16
        if table == "sequences":
            tables[table] = (
                tables[table]
                .drop(columns=["prompt_id"])
                .assign(prompt_id=pd.array([pd.NA] * len(tables[table]), "Int64"))
            )


def _of_another(tables: Tables) -> None:
    """Advantages of other responses of the step."""
    t, rng = tables["tokens"], np.random.default_rng(0)
    of = t.groupby(["step", "seq_id"])["advantage"].first().reset_index()
    of["advantage"] = of.groupby("step")["advantage"].transform(lambda a: rng.permutation(a.to_numpy()))
    t["advantage"] = t.drop(columns="advantage").merge(of, on=["step", "seq_id"])["advantage"].to_numpy()


def _noise(scale: float, seed: int = 0) -> Callable[[pd.DataFrame], Any]:
    return lambda t: scale * np.random.default_rng(seed).standard_normal(len(t))


def _nothing(tables: Tables) -> None:
    """The log as the trainer wrote it: the fault is the sampler's."""


RAW = both(copied(B, T), column(T, lambda t: np.full(len(t), np.nan)))
ALL_LOGS = (B, T, C, N, F)


def _raw(tables: Tables) -> None:
    """The sampler's own log-probabilities before temperature, top-k or top-p; nothing else tells of them."""
    t = tables["tokens"]
    t[B] = t[T]
    t[T] = np.float32(np.nan)


def _in_base(base: float, *names: str) -> Damage:
    return both(*(column(name, lambda t, name=name: t[name] / np.log(base)) for name in names))


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
    "top-p 0.8": Injected("the trainer knows of no top-p", _nothing, ("truncated_support",), (B, T), "top-p"),
    "top-k 2": Injected("the trainer knows of no top-k", _nothing, ("truncated_support",), (B, T), "top-k"),
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
        ("sampler_not_following", "on_policy_ratio"),
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
        "rows are permuted before the join", _of_another, ("advantages",), ("advantage",)
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
