"""The step summary of a large run: against a bare sum of the same columns, polars and pandas; memory and caches."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from ratioscope import Manifest
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import Summariser, summarise
from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow, write_table_file
from tests.benchmarks.timing import row, seconds

GROUPS, RESPONSES, LENGTHS = 64, 8, (140, 252)
STEPS_A_FILE, MEGABYTE = 10, 2**20
LOG_PROBABILITIES = ("logp_behavior", "logp_current", "logp_new")
READ = ("step", "group_id", "seq_id", *LOG_PROBABILITIES, "advantage", "clip_side", "clipped", "behavior_version")


def run() -> None:
    """Print the comparisons on RATIOSCOPE_BENCHMARK_STEPS steps of 100,000 tokens; 1,000 when it is not set."""
    steps = int(os.environ.get("RATIOSCOPE_BENCHMARK_STEPS", "1000"))
    with tempfile.TemporaryDirectory() as place:
        os.environ["RATIOSCOPE_CACHE"] = str(Path(place) / "cache")
        folder = write_large(Path(place) / "run", steps)
        files = sorted(map(str, (folder / "tokens").iterdir()))
        print(f"  {_tokens(files):,} tokens in {steps} steps, {len(files)} files")
        bare, same, ours = _in_turns(
            (_bare_sum, files, LOG_PROBABILITIES), (_bare_sum, files, READ), (_summary, folder)
        )
        row("every metric of every step", ours.seconds, bare.seconds, "DuckDB's sum of the three log-probs")
        row("every metric of every step", ours.seconds, same.seconds, "DuckDB's sum of all columns read")
        row("the same, time of processors", ours.processor, same.processor, "DuckDB's sum of all columns read")
        print(f"  {_tokens(files) / ours.seconds / 1e6:.1f} million tokens a second, {ours.megabytes:.0f} MB at most")
        few = files[: max(1, len(files) // 10)]
        part, *others = _in_turns((_summary_of_files, few), (_polars, few), (_pandas, few))
        for name, theirs in zip(("polars, streaming", "pandas"), others, strict=True):
            row(f"the same metrics, {len(few)} files", part.seconds, theirs.seconds, name)
            print(f"    at most {part.megabytes:.0f} MB against {theirs.megabytes:.0f} MB of {name}")
        _appended_file(Path(place) / "live")
        _cached_summaries(Path(place) / "many")


@dataclass(frozen=True)
class _Cost:
    seconds: float
    processor: float
    """Seconds of all processors: what else runs on the machine disturbs them less."""
    megabytes: float


def _in_turns(*actions: tuple[Any, ...]) -> list[_Cost]:
    """Of each action with its arguments, the best of three in processes of their own, so that each has its own memory.

    They take turns: whatever else the machine does meanwhile meets all of them.
    """
    context = multiprocessing.get_context("spawn")
    costs: list[list[_Cost]] = [[] for _ in actions]
    for _ in range(3):
        for found, (action, *arguments) in zip(costs, actions, strict=True):
            with context.Pool(1) as pool:
                found.append(pool.apply(_cost, (action, arguments)))
    return [
        _Cost(
            min(cost.seconds for cost in found),
            min(cost.processor for cost in found),
            max(cost.megabytes for cost in found),
        )
        for found in costs
    ]


def _cost(action: Callable[..., None], arguments: list[object]) -> _Cost:
    os.environ["RATIOSCOPE_CACHE"] = tempfile.mkdtemp(dir=os.environ["RATIOSCOPE_CACHE"].rpartition("/")[0])
    started, worked = time.perf_counter(), time.process_time()
    action(*arguments)
    took, work = time.perf_counter() - started, time.process_time() - worked
    status = Path("/proc/self/status").read_text(encoding="ascii")  # of this process alone, unlike getrusage
    return _Cost(took, work, int(status.partition("VmHWM:")[2].split()[0]) * 1024 / MEGABYTE)


def _bare_sum(files: list[str], columns: tuple[str, ...]) -> None:
    sums = ", ".join(f"sum({name}::double)" for name in columns)
    duckdb.sql(f"select {sums} from read_parquet({files})").fetchall()


def _summary(folder: Path) -> None:
    summarise(open_run(folder))


def _summary_of_files(files: list[str]) -> None:
    """A run of nothing but these files."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        for table in schema.TABLES:
            (folder / table).mkdir(parents=True)
            for path in map(Path, files):
                (folder / table / path.name).hardlink_to(path.parents[1] / table / path.name)
        Manifest(name="part", status="finished").write(folder)
        summarise(open_run(folder))


def _polars(files: list[str]) -> None:
    """The sums, sequence ratios, clusters, quantiles and histogram of each step."""
    x, y = pl.col("x"), pl.col("y")
    tokens = pl.scan_parquet(files).with_columns(
        x=pl.col("logp_current").cast(pl.Float64) - pl.col("logp_behavior"),
        y=pl.col("logp_new").cast(pl.Float64) - pl.col("logp_behavior"),
    )
    terms = [
        pl.len().alias("n"),
        x.sum().alias("log_w"),
        (x.exp() - 1).sum().alias("d"),
        (x.exp() - 1).abs().sum().alias("s"),
        ((x.exp() - 1) ** 2).sum().alias("chi2"),
        (x**2).sum().alias("k2"),
        (x.exp() - 1 - x).sum().alias("k3"),
        (x.exp() * x - x.exp() + 1).sum().alias("reverse"),
        (y.exp() - x.exp()).abs().sum().alias("u"),
        (y.exp() - 1).abs().sum().alias("tv_new"),
        (1 - x.exp()).clip(lower_bound=0).sum().alias("bounded"),
        (1 - y.exp()).clip(lower_bound=0).sum().alias("bounded_new"),
        *((pl.col("clip_side") == side).sum().alias(f"clipped{side}") for side in (-1, 1)),
        *(((pl.col("advantage") * side > 0) & pl.col("clipped")).sum().alias(f"sign{side}") for side in (-1, 1)),
        (pl.col("step") - pl.col("behavior_version")).sum().alias("lag"),
    ]
    sequences = tokens.group_by("step", "group_id", "seq_id").agg(terms).collect(engine="streaming")
    sequences.group_by("step", "group_id").agg(pl.all().sum())
    quantiles = [x.quantile(q, "linear").alias(f"q{q}") for q in (0.01, 0.5, 0.9, 0.99, 0.999)]
    tails = [x.top_k(1000).alias("top"), y.top_k(1000).alias("top_new")]
    tokens.group_by("step").agg(*quantiles, *tails).collect(engine="streaming")
    bins = (x / 0.01).arcsinh().floordiv(0.15)
    tokens.group_by("step", bins.alias("bin")).agg(pl.len()).collect(engine="streaming")


def _pandas(files: list[str]) -> None:
    """The same in memory."""
    tokens = pd.concat([pd.read_parquet(path, columns=list(READ)) for path in files], ignore_index=True)
    x = tokens["logp_current"].astype(float) - tokens["logp_behavior"]
    y = tokens["logp_new"].astype(float) - tokens["logp_behavior"]
    d, e = np.expm1(x), np.expm1(y)
    tokens = tokens.assign(
        x=x, y=y, d=d, s=d.abs(), chi2=d**2, k2=x**2, k3=d - x, reverse=(x - 1) * d + x, u=(e - d).abs(),
        tv_new=e.abs(), bounded=(-d).clip(lower=0), bounded_new=(-e).clip(lower=0),
        low=tokens["clip_side"] < 0, high=tokens["clip_side"] > 0,
        positive=tokens["clipped"] & (tokens["advantage"] > 0), negative=tokens["clipped"] & (tokens["advantage"] < 0),
        lag=tokens["step"] - tokens["behavior_version"], bin=np.round(np.arcsinh(x / 0.01) / 0.15),
    )  # fmt: skip
    sums = tokens.drop(columns=[*READ[3:], "y", "bin"]).groupby(["step", "group_id", "seq_id"]).sum()
    sums.groupby(["step", "group_id"]).sum()
    tokens.groupby("step")["x"].quantile([0.01, 0.5, 0.9, 0.99, 0.999])
    for name in ("x", "y"):
        tokens.groupby("step")[name].nlargest(1000)
    tokens.groupby(["step", "bin"]).size()


def _appended_file(folder: Path) -> None:
    """A live run whose next file holds 500,000 tokens in five steps; the first files have the compiler loaded."""
    write_large(folder, STEPS_A_FILE, status="running")
    live = Summariser()
    live.summarise(open_run(folder))
    times, work = [], []
    for number in range(1, 10):
        first = number * STEPS_A_FILE
        _write_file(folder, first, first + 4)
        started, worked = time.perf_counter(), time.process_time()
        live.summarise(open_run(folder))
        times.append(time.perf_counter() - started)
        work.append(time.process_time() - worked)
    last = sorted(map(str, (folder / "tokens").iterdir()))[-1:]
    bare = seconds(lambda: _bare_sum(last, READ))
    row("one appended file of 500,000 tokens", median(times[4:]), bare, "DuckDB's sum of all columns read")
    print(f"    {median(work[4:]) * 1e3:.0f} ms of processors")


def _cached_summaries(folder: Path) -> None:
    """20 runs of 1,000 steps, opened and summarised before; few tokens, as many numbers."""
    from tests.making.runs import random_step, write_run

    rng = np.random.default_rng(0)
    steps = [random_step(rng, number, groups=2, responses=2, longest=4) for number in range(1000)]
    folders = [write_run(folder / f"run-{number}", steps) for number in range(20)]
    for each in folders:
        summarise(open_run(each))
    loaded = seconds(lambda: [summarise(open_run(each)) for each in folders])
    read = seconds(lambda: [pd.read_parquet(each / "tokens", columns=list(LOG_PROBABILITIES)) for each in folders])
    row("20 runs of 1,000 steps, summarised before", loaded, read, "reading their log-probs with pandas")


def write_large(folder: Path, steps: int, status: str = "finished", lengths: tuple[int, int] = LENGTHS) -> Path:
    """A run of so many steps, each of GROUPS x RESPONSES responses that have between these two numbers of tokens."""
    folder.mkdir(parents=True)
    Manifest(name=folder.name, status=status).write(folder)
    for table in schema.TABLES:
        (folder / table).mkdir()
    for first in range(0, steps, STEPS_A_FILE):
        _write_file(folder, first, min(first + STEPS_A_FILE, steps) - 1, lengths)
    return folder


def _write_file(folder: Path, first: int, last: int, lengths: tuple[int, int] = LENGTHS) -> None:
    rng = np.random.default_rng(first)
    parts: dict[str, list[pa.Table]] = {table: [] for table in schema.TABLES}
    for step in range(first, last + 1):
        for table, columns in _step(rng, step, lengths).items():
            parts[table].append(to_arrow(schema.TABLES[table], columns, step))
    for table, tables in parts.items():
        write_table_file(folder / table / str(schema.FileName(first, last)), pa.concat_tables(tables))


def _step(rng: np.random.Generator, step: int, between: tuple[int, int]) -> dict[str, dict[str, object]]:
    """One step, of about 100,000 tokens with LENGTHS, a few updates off-policy."""
    lengths = rng.integers(*between, GROUPS * RESPONSES)
    sequence, n = np.repeat(np.arange(len(lengths)), lengths), int(lengths.sum())
    behavior = -rng.exponential(0.5, n).astype(np.float32)
    spread = np.sqrt(-behavior)
    current = np.minimum(behavior + 0.1 * spread * rng.standard_normal(n, dtype=np.float32), 0).astype(np.float32)
    new = np.minimum(current + 0.03 * spread * rng.standard_normal(n, dtype=np.float32), 0).astype(np.float32)
    advantage = np.repeat(rng.standard_normal(len(lengths)).astype(np.float32), lengths)
    ratio = np.exp(current - behavior)
    side = ((advantage > 0) & (ratio > 1.2)).astype(np.int8) - ((advantage < 0) & (ratio < 0.8)).astype(np.int8)
    tokens = {
        "seq_id": sequence,
        "group_id": sequence // RESPONSES,
        "position": (np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)).astype(np.int32),
        "token_id": rng.integers(0, 30_000, n).astype(np.int32),
        "behavior_version": np.full(n, step - step % 5, dtype=np.int32),
        "logp_behavior": behavior,
        "logp_current": current,
        "logp_new": new,
        "advantage": advantage,
        "clipped": side != 0,
        "clip_side": side,
    }
    sequences = {
        "seq_id": np.arange(len(lengths)),
        "group_id": np.arange(len(lengths)) // RESPONSES,
        "n_tokens": lengths.astype(np.int32),
        "reward": rng.integers(0, 2, len(lengths)).astype(np.float32),
    }
    steps = {"policy_version": [step], "wall_time": [np.datetime64("2026-01-01T00:00:00")]}
    return {"tokens": tokens, "sequences": sequences, "steps": steps}


def _tokens(files: list[str]) -> int:
    return sum(duckdb.sql(f"select count(*) from read_parquet({files})").fetchall()[0])
