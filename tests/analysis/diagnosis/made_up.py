"""Evidence with a fault, and a near miss, for every rule."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.diagnosis import RULES, RunEvidence, Severity
from ratioscope.analysis.findings.finding import Finding, Number
from ratioscope.analysis.runs.left_out import LeftOut
from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.metrics import COUNTS
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format.manifest import Manifest
from tests.making.runs import Columns, Step, plain_step, write_run

STEPS = 60
HEALTHY = {
    "s_k_bounded": 0.05, "u_k": 0.01, "u_k_bounded": 0.01, "ratio_mean": 1.0, "ratio_mean_z": 0.0,
    "chi2_token": 0.02, "ess_token": 0.98, "ess_seq": 0.9, "log1p_chi2_seq_predicted": 0.2, "khat_token": 0.3,
    "top1pct_share": 0.02, "ratio_min": 0.7, "ratio_max": 1.4, "clip_fraction": 0.05, "clip_fraction_positive": 0.05,
    "clip_fraction_negative": 0.05, "effective_token_fraction": 0.9, "zero_advantage_group_fraction": 0.1,
    "entropy": 1.0, "reward": 0.5, "eval_accuracy": 0.5, "version_lag": 2.0, "kl_k1": 0.01, "response_length": 10.0,
    "n_tokens": 1000.0, "n_ratios": 1000.0, "n_sequences": 100.0,
}  # fmt: skip


def made_up(width: float = 1e-3, dropped: dict[str, float] | None = None, **series: Any) -> RunEvidence:
    """A healthy run with some series replaced, each a number or one a step; every interval is value ± width."""
    values = pd.DataFrame(np.nan, index=pd.Index(range(STEPS), name="step"), columns=[*COUNTS, *CATALOGUE])
    for key, value in (HEALTHY | series).items():
        values[key] = value
    steps = pd.DataFrame(dropped or {}, index=values.index)
    return RunEvidence(StepSummary(values, values - width, values + width, {}, pd.DataFrame(), steps))


def with_parts(
    folder: Path, evidence: RunEvidence, schedule: dict[str, Any] | None = None, **parts: Any
) -> RunEvidence:
    """The same series of a run whose manifest says this of the algorithm."""
    algorithm = {"parts": parts, "parameters": {key: parts.pop(key) for key in ("epochs",) if key in parts}}
    name = "-".join(map(str, (*parts.values(), *(schedule or {}).values())))
    run = open_run(write_run(folder / name, [], algorithm=algorithm, schedule=schedule or {}))
    return RunEvidence(evidence.summary, run)


def first(count: int, value: float, then: float) -> np.ndarray[Any, Any]:
    """`value` in the first steps, `then` in the others."""
    return np.where(np.arange(STEPS) < count, value, then)


def turning(period: int) -> np.ndarray[Any, Any]:
    """A slow rise on which a value stands that repeats."""
    return 0.4 + 0.2 * RAMP + 0.15 * np.cos(2 * np.pi * np.arange(STEPS) / period)


def every_twelfth(value: float, then: float) -> np.ndarray[Any, Any]:
    """`value` in each twelfth step, `then` in the one behind it, 0.01 in the others."""
    place = np.arange(STEPS) % 12
    return np.select([place == 8, place == 9], [value, then], 0.01)


def between(start: int, end: int, value: float, meanwhile: float) -> np.ndarray[Any, Any]:
    """`value`, but for some steps."""
    return np.where((np.arange(STEPS) < start) | (np.arange(STEPS) >= end), value, meanwhile)


def remark_of(severity: Severity, column: str = "logp_current", steps: tuple[int, ...] = ()) -> Finding:
    """Something that the linter found; of all steps where none is named."""
    numbers = (Number("rows", 30.0),)
    return Finding(f"{column} is late.", severity, "Shift it.", numbers, steps, (column,), rule="shifted")


def wrong_rows_of(share: float) -> Finding:
    """What the linter says of a rank with a share of the tokens, whose rows are left out."""
    rows = LeftOut("rank 2, whose values are of others", "rank = 2", "sequences", share=share)
    return replace(remark_of(Severity.WARNING), wrong_rows=rows)


def cause_of_mismatch(name: str) -> Finding:
    """What the linter says of a mismatch's cause; "" for none that it knows."""
    numbers, steps = (Number("lift", 3.0),), tuple(range(STEPS))
    return Finding(
        "One server differs.", Severity.WARNING, "Restart it.", numbers, steps, why="1 of 1 signs: its share is 90%.",
        source="a report", of_cause=name, rule="mismatch_cause",
    )  # fmt: skip


RAMP = np.linspace(0, 1, STEPS)

# Rule: evidence with the fault, and a near miss.
MADE_UP: dict[str, tuple[RunEvidence, RunEvidence]] = {
    "nothing_to_judge": (
        made_up(s_k_bounded=np.nan, n_tokens=0.0, n_invalid=1000.0, n_invalid_nan=1000.0),
        made_up(n_tokens=first(59, 0.0, 100.0), n_invalid=1000.0, n_invalid_nan=1000.0),
    ),
    "diverged": (
        made_up(n_tokens=first(50, 1000.0, 0.0), n_invalid=first(50, 0.0, 1000.0)),
        made_up(n_tokens=first(50, 1000.0, 600.0), n_invalid=first(50, 0.0, 400.0)),
    ),
    "log_broken": (
        replace(made_up(), remarks=[remark_of(Severity.WARNING), remark_of(Severity.CRITICAL)]),
        replace(made_up(), remarks=[remark_of(Severity.CRITICAL, steps=(3, 4))]),
    ),
    "log_broken_in_part": (
        replace(made_up(), remarks=[remark_of(Severity.CRITICAL, "advantage")]),
        replace(made_up(), remarks=[remark_of(Severity.WARNING, "advantage")]),
    ),
    "rows_left_out": (
        replace(made_up(), remarks=[wrong_rows_of(0.25)]),
        replace(made_up(), remarks=[wrong_rows_of(0.5)]),
    ),
    "mismatch_cause": (
        replace(made_up(s_k_engine_bounded=0.03), remarks=[cause_of_mismatch("one_server")]),
        replace(made_up(s_k_engine_bounded=0.03), remarks=[cause_of_mismatch("")]),
    ),
    "sampler_not_following": (
        made_up(s_k_bounded=0.4 * RAMP, version_lag=1.0),
        made_up(s_k_bounded=0.4 * RAMP, version_lag=np.maximum(np.arange(STEPS) - 1, 0)),
    ),
    "engine_mismatch": (
        made_up(s_k_engine_bounded=0.03, s_k_version_bounded=0.04),
        made_up(s_k_engine_bounded=0.02, s_k_version_bounded=0.04),
    ),
    "denominator_wrong": (made_up(ratio_mean=1.1, ratio_mean_z=5.0), made_up(ratio_mean=1.1, ratio_mean_z=2.5)),
    "truncated_support": (
        made_up(ratio_mean=0.97, ratio_mean_z=-5.0),
        made_up(ratio_mean=0.97, ratio_mean_z=first(20, -5.0, 0.0)),
    ),
    "survivor_bias": (
        made_up(dropped={"tokens_dropped_stale": 200.0}),
        made_up(dropped={"tokens_dropped_stale": 100.0}),
    ),
    "staleness_high": (
        made_up(s_k_bounded=0.25),
        made_up(s_k_bounded=0.25, width=0.06),
    ),
    "staleness_growing": (made_up(s_k_bounded=0.19 * RAMP), made_up(s_k_bounded=np.minimum(0.3 * RAMP, 0.12))),
    "kl_high": (made_up(kl_k1=0.15), made_up(kl_k1=first(5, 0.15, 0.05))),
    "bias_regime": (made_up(s_k_bounded=0.3), made_up(s_k_bounded=first(29, 0.3, 0.1))),
    "update_large": (made_up(u_k=0.15), made_up(u_k=0.105, width=0.01)),
    "update_period": (made_up(u_k=every_twelfth(0.08, 0.01)), made_up(u_k=every_twelfth(0.08, 0.06))),
    "heavy_tail": (made_up(khat_token=1.2, top1pct_share=0.5), made_up(khat_token=1.2, top1pct_share=0.05)),
    "variance_regime": (
        made_up(chi2_token=5.0, log1p_chi2_seq=1.0),
        made_up(chi2_token=5.0, log1p_chi2_seq=1.0, s_k_bounded=0.3),
    ),
    "ess_collapse": (made_up(ess_token=0.2), made_up(ess_token=first(5, 0.2, 0.4))),
    "length_trap": (made_up(ess_seq=0.1), made_up(ess_seq=0.1, ess_token=0.2)),
    "clip_saturated": (made_up(clip_fraction=0.6), made_up(clip_fraction=0.45)),
    "clip_zero": (
        made_up(clip_fraction=0.0, ratio_max=5.0),
        made_up(clip_fraction=first(1, 0.01, 0.0), ratio_max=5.0),
    ),
    "zero_signal": (
        made_up(zero_advantage_group_fraction=0.7),
        made_up(zero_advantage_group_fraction=first(4, 1.0, 0.3)),
    ),
    "entropy_collapse": (made_up(entropy=np.exp(-3 * RAMP)), made_up(entropy=np.exp(-1.4 * RAMP))),
    "not_learning": (
        made_up(dropped={"learning_rate": 0.0}),
        made_up(reward=0.3 + 0.5 * RAMP, eval_accuracy=0.3 + 0.2 * RAMP, dropped={"learning_rate": 1e-6}),
    ),
    "far_from_reference": (made_up(kl_to_initial=5 * RAMP), made_up(kl_to_initial=5 * RAMP, s_k_bounded=0.3)),
    "reward_collapse": (made_up(eval_accuracy=first(30, 0.5, 0.2)), made_up(eval_accuracy=first(30, 0.5, 0.4))),
    "reward_drop": (made_up(eval_accuracy=first(59, 0.5, 0.2)), made_up(eval_accuracy=first(59, 0.5, 0.4))),
    "evaluation_turns": (
        made_up(eval_accuracy=turning(4), reward=first(30, 0.5, 0.52)),
        made_up(eval_accuracy=turning(4), reward=turning(4)),  # the policy goes up and down
    ),
    "reward_setback": (
        made_up(eval_accuracy=between(20, 30, 0.5, 0.2)),
        made_up(eval_accuracy=between(20, 22, 0.5, 0.2)),
    ),
}


def run_of(folder: Path, length: int, shift: float, **columns: Any) -> RunEvidence:
    """Five steps of 20 groups with 4 responses of `length` tokens; log-ratios ± shift, rewards 0 and 1 in turn."""
    sequence = np.repeat(np.arange(80), length)
    good = sequence % 2 == 0
    behavior = np.full(len(sequence), -2.0)
    current = behavior + shift * np.where(sequence // 2 % 2 == 0, 1.0, -1.0)
    new = current + np.where(good, 0.02, -0.02)
    parts = {"gate": columns.pop("gate", "one_side")}

    def step(number: int) -> Step:
        made = plain_step(
            behavior, current, new, number=number, sequence=sequence, group=sequence // 4,
            advantage=np.where(good, 1.0, -1.0), **columns,
        )  # fmt: skip
        made.sequences["reward"] = (np.arange(80) % 2 == 0).astype(np.float32)
        return made

    run = open_run(write_run(folder, [step(number) for number in range(5)], algorithm={"parts": parts}))
    return RunEvidence(summarise(run), run)


def spread(folder: Path, value: float, gate: str = "one_side") -> RunEvidence:
    """Four versions a batch, a tenth of the states `value` from the oldest one."""
    of = np.arange(80)
    return run_of(
        folder, 1, 0.05, gate=gate, behavior_version=(of % 4).astype(np.int32),
        tv_version_spread=np.where(of % 10 == 0, value, 0.02).astype(np.float32),
    )  # fmt: skip


def with_a_file(folder: Path, contents: bytes) -> RunEvidence:
    """Five steps, and one more file among those of the tokens."""
    evidence = run_of(folder, 1, 0.05)
    (folder / "tokens" / "000005-000005-w0.parquet").write_bytes(contents)
    return RunEvidence(evidence.summary, open_run(folder))


def that_failed(folder: Path) -> RunEvidence:
    evidence = run_of(folder, 1, 0.05)
    manifest = Manifest.read(folder)
    manifest.status = "failed"
    manifest.write(folder)
    return RunEvidence(evidence.summary, open_run(folder))


def with_environments(folder: Path, math_at_the_end: float) -> RunEvidence:
    """16 groups of two responses in each of 12 steps; one environment is learned, and the other ends as is said."""

    def step(number: int) -> Step:
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((3, 32), -1.0), number=number, group=np.arange(32) // 2)
        code = made.sequences["group_id"] % 2 == 0
        done = number / 11
        chance = np.where(code, 0.4 + 0.5 * done, 0.7 + (math_at_the_end - 0.7) * done)
        made.sequences["reward"] = (rng.random(32) < chance).astype(np.float32)
        made.sequences["environment"] = np.where(code, "code", "math")
        return made

    run = open_run(write_run(folder, [step(number) for number in range(12)]))
    return RunEvidence(summarise(run), run)


def with_a_format(folder: Path, kept: float, right: float) -> RunEvidence:
    """Each of 30 steps has 64 responses; from step 12 on one part of the reward, or the other, is earned less often."""

    def step(number: int) -> Step:
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((3, 64), -1.0), number=number, group=np.arange(64) // 8)
        late = number >= 12
        parts = {"reward_task": rng.random(64) < (right if late else 0.5),
                 "reward_format": rng.random(64) < (kept if late else 0.9)}  # fmt: skip
        made.sequences.update({name: each.astype(np.float32) for name, each in parts.items()})
        made.sequences["reward"] = made.sequences["reward_task"] + 0.5 * made.sequences["reward_format"]
        return replace(made, scalars=made.scalars | {"eval_accuracy": 0.5 + 0.01 * rng.standard_normal()})

    run = open_run(write_run(folder, [step(number) for number in range(30)]))
    return RunEvidence(summarise(run), run)


def with_a_rising_format(folder: Path, right: float) -> RunEvidence:
    """No evaluation; in 24 steps one part of the reward goes from 0.1 to 0.9, the other from 0.2 to what is said."""

    def step(number: int) -> Step:
        rng, done = np.random.default_rng(number), number / 23
        made = plain_step(*np.full((3, 96), -1.0), number=number, group=np.arange(96) // 8)
        parts = {"reward_task": rng.random(96) < 0.2 + (right - 0.2) * done,
                 "reward_format": rng.random(96) < 0.1 + 0.8 * done}  # fmt: skip
        made.sequences.update({name: each.astype(np.float32) for name, each in parts.items()})
        made.sequences["reward"] = made.sequences["reward_task"] + 0.5 * made.sequences["reward_format"]
        return made

    run = open_run(write_run(folder, [step(number) for number in range(24)]))
    return RunEvidence(summarise(run), run)


def of_groups(folder: Path, chance: Callable[[int, Columns], Any], **columns: Any) -> RunEvidence:
    """Each of 24 steps has 12 groups of 8 responses, which earn 1 by a chance of step and rows, else 0.

    Args:
        columns: further ones of the sequences table, each made of a step and the numbers of its responses.
    """

    def step(number: int) -> Step:
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((3, 96), -1.0), number=number, group=np.arange(96) // 8)
        made.sequences.update({name: make(number, np.arange(96)) for name, make in columns.items()})
        made.sequences["reward"] = (rng.random(96) < chance(number, made.sequences)).astype(np.float32)
        return made

    run = open_run(write_run(folder, [step(number) for number in range(24)]))
    return RunEvidence(summarise(run), run)


def that_end(cut: float) -> Callable[[Path], RunEvidence]:
    """Three of eight responses end at a limit of turns, and then earn 1 by this chance, the others by 0.6."""
    return lambda folder: of_groups(
        folder,
        lambda number, rows: np.where(rows["finish_reason"] == "max_turns", cut, 0.6),
        finish_reason=lambda number, row: np.where((row + number) % 8 < 3, "max_turns", "stop"),
    )


def in_their_order(recurs: int) -> Callable[[Path], RunEvidence]:
    """The later in six steps, the harder; the same prompts come again after so many steps."""
    return lambda folder: of_groups(
        folder,
        lambda number, rows: 0.8 - 0.12 * (number % 6),
        prompt_id=lambda number, row: number % recurs * 12 + row // 8,
    )


def best_earn(right: Callable[[int, Any], Any], **columns: Any) -> Callable[[Path], RunEvidence]:
    """So many of the eight responses of a group earn 1, other ones in each step."""
    return lambda folder: of_groups(
        folder, lambda number, rows: (rows["seq_id"] + number) % 8 < right(number, rows["group_id"]), **columns
    )


def late_by(updates: int) -> Callable[[Path], RunEvidence]:
    """A run that may learn from data two updates old, and of which each tenth token is so old."""

    def made(folder: Path) -> RunEvidence:
        steps = [
            plain_step(
                np.full(200, -1.0), np.full(200, -1.0), number=number,
                behavior_version=np.maximum(number - np.where(np.arange(200) % 10, 2, updates), 0).astype(np.int32),
            )
            for number in range(8)
        ]  # fmt: skip
        run = open_run(write_run(folder / f"late-{updates}", steps, schedule={"max_staleness": 2}))
        return RunEvidence(summarise(run), run)

    return made


def hotter(at: int) -> Callable[[Path], RunEvidence]:
    """Accuracy holds; the reward falls by 40 % in step 12 of 24, and the temperature is raised in some step."""

    def step(number: int) -> Step:
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((3, 96), -1.0), number=number, group=np.arange(96) // 8)
        made.sequences["reward"] = (rng.random(96) < (0.7 if number < 12 else 0.42)).astype(np.float32)
        made.sequences["temperature"] = np.full(96, 0.9 if number < at else 1.5, dtype=np.float32)
        return replace(made, scalars=made.scalars | {"eval_accuracy": 0.5 + 0.01 * rng.standard_normal()})

    def made(folder: Path) -> RunEvidence:
        run = open_run(write_run(folder, [step(number) for number in range(24)]))
        return RunEvidence(summarise(run), run)

    return made


def judged_anew(of_all: bool) -> Callable[[Path], RunEvidence]:
    """Accuracy holds; from step 12 of 24 on all prompts earn less, or a third are new ones that earn nothing."""

    def step(number: int) -> Step:
        rng = np.random.default_rng(number)
        made = plain_step(*np.full((3, 96), -1.0), number=number, group=np.arange(96) // 8)
        prompt = made.sequences["group_id"] + 100 * (not of_all and number >= 12) * (
            made.sequences["group_id"] % 3 == 0
        )
        earns = np.where(prompt < 100, 0.4 if of_all and number >= 12 else 0.7, 0.0)
        made.sequences.update(prompt_id=prompt, reward=(rng.random(96) < earns).astype(np.float32))
        return replace(made, scalars=made.scalars | {"eval_accuracy": 0.5 + 0.01 * rng.standard_normal()})

    def made(folder: Path) -> RunEvidence:
        run = open_run(write_run(folder, [step(number) for number in range(24)]))
        return RunEvidence(summarise(run), run)

    return made


FROM_TOKENS: dict[str, tuple[Callable[[Path], RunEvidence], Callable[[Path], RunEvidence]]] = {
    "environment_forgotten": (
        lambda folder: with_environments(folder, 0.1),
        lambda folder: with_environments(folder, 0.6),
    ),
    "reward_part_drop": (
        lambda folder: with_a_format(folder, 0.1, 0.5),
        lambda folder: with_a_format(folder, 0.6, 0.3),
    ),
    "reward_part_rise": (
        lambda folder: with_a_rising_format(folder, 0.2),
        lambda folder: with_a_rising_format(folder, 0.5),
    ),
    "reward_jump": (judged_anew(True), judged_anew(False)),
    "reward_with_temperature": (hotter(12), hotter(6)),
    "responses_apart": (
        lambda folder: of_groups(folder, lambda number, rows: 0.1 * (1 + rows["seq_id"] % 8)),
        lambda folder: of_groups(folder, lambda number, rows: 0.1 * (1 + rows["group_id"] % 8)),
    ),
    "reward_decided": (that_end(0.0), that_end(0.1)),
    "older_than_allowed": (late_by(5), late_by(3)),
    "relative_reward": (best_earn(lambda step, group: 4), best_earn(lambda step, group: 3 + step % 3)),
    "prompts_in_order": (in_their_order(recurs=6), in_their_order(recurs=24)),
    "files_left_out": (lambda folder: with_a_file(folder, b"torn"), lambda folder: run_of(folder, 1, 0.05)),
    "ended_badly": (that_failed, lambda folder: run_of(folder, 1, 0.05)),
    "trust_region_infeasible": (lambda folder: spread(folder, 0.5), lambda folder: spread(folder, 0.15)),
}


def finding_of(rule: str, evidence: RunEvidence) -> Finding:
    finding = RULES[rule](evidence)
    assert finding is not None
    return finding


def faulty(rule: str, folder: Path) -> RunEvidence:
    return MADE_UP[rule][0] if rule in MADE_UP else FROM_TOKENS[rule][0](folder)
