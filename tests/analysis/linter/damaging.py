"""What goes wrong with a log: tables of a run in frames, and what a writer's bug does to them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Manifest
from ratioscope.run_format.table_files import write_table_file
from tests.making.faults import KEY

Tables = dict[str, pd.DataFrame]
Damage = Callable[[Tables], None]

B, T, C, N, F = "logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "logp_reference"
SHORT = {"behavior": B, "behavior_train": T, "current": C, "new": N, "reference": F, "entropy": "entropy"}


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
    for name in tables["sequences"].columns.difference(schemas["sequences"].names):
        schemas["sequences"] = schemas["sequences"].append(pa.field(name, pa.float32()))
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
    """Every response is there again under another number."""
    for table in ("sequences", "tokens"):
        frame = tables[table]
        extra = frame.assign(seq_id=frame["seq_id"] + 1000)
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
    extra = last.loc[last.index.repeat(6 - last["position"])]
    later = extra["position"] + extra.groupby(["step", "seq_id"]).cumcount() + 1
    filled = {name: -0.001 * (1 + k) for k, name in enumerate((B, T, C, N, F))}
    extra = extra.assign(position=later, token_id=13, **filled)
    tables["tokens"] = pd.concat([t, extra]).astype(t.dtypes.to_dict()).sort_values(KEY).reset_index(drop=True)
    tables["sequences"]["n_tokens"] = np.int32(7)


def _restarted(tables: Tables) -> None:
    """The counter of the steps begins again after a restart."""
    for frame in tables.values():
        frame["step"] = np.where(frame["step"] >= 10, frame["step"] - 10, frame["step"]).astype(frame["step"].dtype)
    tables["tokens"] = tables["tokens"].sort_values(KEY).reset_index(drop=True)


def _repeating(tables: Tables) -> None:
    """Batches are written until the next one comes, which is every second step."""
    for table in ("sequences", "tokens"):
        even = tables[table][tables[table]["step"] % 2 == 0]
        frame = pd.concat([even, even.assign(step=even["step"] + 1)])
        tables[table] = frame.sort_values([c for c in KEY if c in frame]).reset_index(drop=True)


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
