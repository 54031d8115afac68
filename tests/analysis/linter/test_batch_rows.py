"""Rows that a batch should not have, or lacks, are seen; what a healthy run does that looks alike is not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from ratioscope import RunRecorder
from ratioscope.analysis.findings.mark import Mark, Observed
from ratioscope.analysis.linter import batch_rows as marks
from ratioscope.analysis.linter import scored_by_kind
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from tests.making.loops import in_one_loop

ALL = [one for module in (marks, scored_by_kind) for one in vars(module).values() if isinstance(one, Mark)]
RESPONSES = 8


class Case(NamedTuple):
    mark: Mark
    rows: Callable[[], pd.DataFrame]
    words: str = ""
    """In the clause where the mark is present; "": it is absent, or there is too little to tell."""
    value: float | None = None


def table(steps: int = 12, groups: int = 8, responses: int = RESPONSES, seed: int = 0) -> pd.DataFrame:
    """Responses to prompts that are all new, of which each has a rate of success of its own."""
    rng, n = np.random.default_rng(seed), groups * responses
    step, seq = np.divmod(np.arange(steps * n), n)
    rows = pd.DataFrame({"step": step, "seq_id": seq, "group_id": seq // responses})
    rows["prompt_id"] = rows["step"] * groups + rows["group_id"]
    return rows.assign(reward=chance(rows, rng.uniform(0.2, 0.8, steps * groups)[rows["prompt_id"]], 1.0, 0.0, seed))


def chance(rows: pd.DataFrame, of: Any, one: Any, other: Any, seed: int = 1) -> Any:
    """The first value with some chance, and else the other, by row."""
    return np.where(np.random.default_rng([seed, 7]).random(len(rows)) < of, one, other)


def look(
    folder: Path, *asked: Mark, rows: pd.DataFrame, tokens: pd.DataFrame | None = None, **manifest: Any
) -> list[Observed]:
    """What marks see in a log of these rows."""
    run = folder / str(len([*folder.iterdir()]))
    with RunRecorder(run, flush_seconds=float("inf"), **manifest) as recorder:
        for step, of in rows.groupby("step"):
            own = None if tokens is None else _columns(tokens[tokens["step"] == step])
            recorder.record_step(int(str(step)), sequences=_columns(of), tokens=own)
    opened = open_run(run)
    with relations(opened) as connection:
        evidence = LogEvidence(opened, connection)
        return [mark(evidence) for mark in asked]


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    return {
        str(name): of.to_numpy() if of.dtype.kind in "bif" else [None if pd.isna(value) else value for value in of]
        for name, of in rows.drop(columns="step").items()
    }


def judge(folder: Path, case: Case) -> None:
    """Whether a case is seen as it should be."""
    (seen,) = look(folder, case.mark, rows=case.rows())
    assert seen.present is bool(case.words), (seen.reading.value, seen.reading.clause)
    assert case.words in seen.reading.clause
    assert case.value is None or seen.reading.value == pytest.approx(case.value, abs=5e-4)


def with_singles(prompt: int | None, every: int = 4) -> pd.DataFrame:
    """In some steps eight of twelve groups are one response, to the same prompts each time or to new ones."""
    rows = table(groups=12)
    other = (rows["step"] % every == 0) & (rows["group_id"] >= 4)
    if prompt is not None:
        rows["prompt_id"] = rows["prompt_id"].mask(other, prompt + rows["group_id"])
    return rows[~other | (rows["seq_id"] % RESPONSES == 0)]


def told(share: float, text: str = "the answer is {:06d}, as I have shown") -> pd.DataFrame:
    """Prompts that come again every four steps; so many responses are those of the first time."""
    rows = table()
    turn = rows["step"] % 4
    which = chance(rows, share, turn, rows["step"]) * 1000 + rows["seq_id"]
    return rows.assign(prompt_id=turn * 8 + rows["group_id"], response=[text.format(one) for one in which])


def given_up(share: float, text: str = "I do not know the answer to that.", since: int = 8) -> pd.DataFrame:
    rows = told(0.0)
    return rows.assign(response=chance(rows, np.where(rows["step"] >= since, share, 0.0), text, rows["response"]))


def mixed(there: Callable[[Any], Any], share: float = 0.4) -> pd.DataFrame:
    """Two environments, of which one is there in some steps."""
    rows = table(steps=18, groups=12, responses=4)
    drawn = np.random.default_rng(2).random(18 * 12)[rows["prompt_id"]]
    return rows.assign(environment=np.where((drawn < share) & there(rows["step"]), "tools", "maths"))


def by_place(rate: Callable[[Any], Any], other: str = "sums") -> pd.DataFrame:
    """Responses that succeed by the place of their group in the step, 0 to 7; the last two may be of another kind."""
    rows = table(steps=16)
    kind = np.where(rows["group_id"] >= 6, other, "sums")
    return rows.assign(reward=chance(rows, rate(rows["group_id"]), 1.0, 0.0), environment=kind)


def served(of_last: Callable[[Any], Any], of_others: Callable[[Any], Any] = lambda step: step) -> pd.DataFrame:
    """Three servers, with their versions by step."""
    rows = table(steps=16, groups=6)
    at = rows["seq_id"] % 3
    newest = np.where(at == 2, of_last(rows["step"]), of_others(rows["step"]))
    return rows.assign(engine="s" + at.astype(str), behavior_version_min=newest, behavior_version_max=newest)


CASES = {
    "transposed": Case(
        marks.groups_mix_prompts, lambda: table().assign(prompt_id=lambda of: of["seq_id"] % RESPONSES),
        "96 of 96 groups have responses to several prompts, up to 8", 1.0,
    ),
    "a quarter": Case(
        marks.groups_mix_prompts, lambda: table().assign(prompt_id=lambda of: of["seq_id"].clip(upper=15)), value=0.25
    ),
    "drawn twice": Case(marks.groups_mix_prompts, lambda: table().assign(prompt_id=lambda of: of["prompt_id"] // 2)),
    "groups of one": Case(marks.groups_mix_prompts, lambda: table(groups=64, responses=1)),
    "evaluation": Case(
        marks.same_prompts_alone, lambda: with_singles(10_000),
        "in steps 0, 4, 8 the same 8 prompts come again with one response each, where others have 8", 1.0,
    ),
    "lost from their groups": Case(marks.same_prompts_alone, lambda: with_singles(None)),
    "always": Case(marks.same_prompts_alone, lambda: with_singles(10_000, every=1)),
    "cached": Case(marks.texts_of_an_earlier_step, lambda: told(1.0), "100% of 512 responses", 1.0),
    "without prompt_id": Case(
        marks.texts_of_an_earlier_step,
        lambda: told(1.0).assign(prompt=lambda of: "task " + of["prompt_id"].astype(str), prompt_id=None),
        "100% of 512 responses", 1.0,
    ),
    "short": Case(marks.texts_of_an_earlier_step, lambda: told(1.0, "{}")),
    "held out": Case(marks.texts_of_an_earlier_step, lambda: told(1.0).assign(dropped="held_out")),
    "learned from again": Case(
        marks.texts_of_an_earlier_step, lambda: told(1.0).assign(behavior_version_min=lambda of: of["step"] % 4)
    ),
    "as others": Case(marks.texts_of_an_earlier_step, lambda: given_up(0.9, since=0)),
    "given up": Case(marks.one_text_for_all, lambda: given_up(0.8), "one text answers 32 prompts, first in step 8"),
    "a number": Case(marks.one_text_for_all, lambda: given_up(0.9, "42")),
    "of four prompts": Case(
        marks.one_text_for_all, lambda: given_up(1.0, since=0).assign(prompt_id=lambda of: of["group_id"] % 4)
    ),
    "lost": Case(
        marks.environment_is_missing, lambda: mixed(lambda step: (step < 7) | (step > 9), share=0.5),
        "not there in steps 7–9",
    ),
    "every fourth step": Case(marks.environment_is_missing, lambda: mixed(lambda step: step % 4 != 3, share=0.5)),
    "every other step": Case(marks.environment_is_missing, lambda: mixed(lambda step: step % 2 == 0)),
    "begins and ends": Case(marks.environment_is_missing, lambda: mixed(lambda step: (step > 3) & (step < 13))),
    "rare": Case(marks.environment_is_missing, lambda: mixed(lambda step: step >= 0, share=0.05)),
    "sandboxes run out": Case(
        marks.last_of_a_step_earn_less, lambda: by_place(lambda place: np.where(place >= 6, 0.1, 0.5)),
        "the last quarter of the responses of a step earns 0.1",
    ),
    "slowly": Case(marks.last_of_a_step_earn_less, lambda: by_place(lambda place: 0.6 - 0.04 * place)),
    "sorted": Case(
        marks.last_of_a_step_earn_less, lambda: by_place(lambda place: np.where(place >= 6, 0.1, 0.5), "proofs")
    ),
    "stuck": Case(
        marks.server_keeps_its_version, lambda: served(lambda step: step.clip(upper=5)),
        "s2 samples from version 5 from step 5 to the end, and the others went on to 15", 10.0,
    ),
    "behind": Case(marks.server_keeps_its_version, lambda: served(lambda step: (step - 4).clip(lower=0))),
    "slower": Case(marks.server_keeps_its_version, lambda: served(lambda step: step // 3 * 3)),
    "every five steps": Case(marks.server_keeps_its_version, lambda: served(lambda step: step // 5 * 5)),
    "every ten steps": Case(marks.server_keeps_its_version, lambda: served(*[lambda step: step // 10 * 10] * 2)),
    "taken away": Case(
        marks.server_keeps_its_version, lambda: served(lambda step: step).query("engine != 's2' or step < 6")
    ),
}  # fmt: skip


@in_one_loop("case", CASES)
def test_rows_of_a_batch(tmp_path: Path, case: Case) -> None:
    judge(tmp_path, case)


def tokens_of(rows: pd.DataFrame, length: int = 24, words: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    tokens = rows.loc[rows.index.repeat(length), ["step", "seq_id"]].reset_index(drop=True)
    drawn = {
        "token_id": rng.integers(0, words, len(tokens)),
        "logp_behavior": -rng.exponential(1.0, len(tokens)) - 0.02,
    }
    return tokens.assign(position=np.arange(len(tokens)) % length, **drawn)


def test_texts_that_begin_again(tmp_path: Path) -> None:
    mark, rows = marks.tokens_come_again, table(groups=2)
    drawn = tokens_of(rows, length=48)
    pieces = np.array([*range(16), *range(32)])  # of a stream, each with the whole text so far
    again = drawn.loc[drawn.index - drawn["position"] + pieces[drawn["position"]]].reset_index(drop=True)
    (seen,) = look(tmp_path, mark, rows=rows, tokens=again.assign(position=drawn["position"]))
    assert seen.present and seen.reading.value == pytest.approx(11 / 43, abs=0.01) and seen.reading.examples
    form = drawn.assign(logp_behavior=drawn["logp_behavior"].mask(drawn["position"] < 12, -1e-4))
    form["token_id"] = form["token_id"].mask(form["position"] < 12, 7)  # certain, and the same
    rounded = drawn.assign(logp_behavior=drawn["logp_behavior"].round(2))
    for near in (drawn, form, rounded, tokens_of(rows, words=3)):
        (seen,) = look(tmp_path, mark, rows=rows, tokens=near)
        assert seen.known and not seen.present, seen.reading.clause


def test_advantages_that_compare_in_groups(tmp_path: Path) -> None:
    mark, rows = marks.advantages_balance_in_groups, table()
    for key in (["step", "group_id"], ["step"], ["step", "seq_id"]):
        advantage = rows["reward"] - rows.groupby(key)["reward"].transform("mean")
        tokens = rows[["step", "seq_id", "group_id"]].assign(position=0, advantage=advantage)
        (seen,) = look(tmp_path, mark, rows=rows, tokens=tokens)
        assert seen.present is ("group_id" in key), seen.reading


HOSTILE = "<b>`$(x)`\n'; drop table sequence; --"
TEXT = ("prompt", "response", "environment", "engine", "finish_reason")


def whole() -> pd.DataFrame:
    """A healthy log with every column that the marks read."""
    rows = told(0.0).query("group_id < 4").assign(finish_reason="stop", n_tokens=24, truncated=False, dropped=None)
    parity = (rows["seq_id"] % 2).astype(str)
    rows = rows.assign(
        prompt="task " + rows["prompt_id"].astype(str), engine="s" + parity, environment="maths" + parity
    )
    rows = rows.assign(n_turns=1 + rows["seq_id"] % 2, behavior_version_min=rows["step"])
    return rows.assign(reward_task=rows["reward"], reward_form=0.0)


ODD: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "whole": lambda rows: rows,
    "one step": lambda rows: rows.query("step == 4"),
    "one response": lambda rows: rows.query("step == 4 and seq_id == 9"),
    "one group": lambda rows: rows.assign(group_id=0),
    "no reward": lambda rows: rows.assign(reward=None, reward_task=None),
    "NaN": lambda rows: rows.assign(reward=np.nan, reward_task=np.inf),
    "null": lambda rows: rows.assign(**dict.fromkeys((*TEXT, "prompt_id", "n_tokens", "n_turns"))),
    "empty": lambda rows: rows.assign(**dict.fromkeys(TEXT, "")),
    "hostile": lambda rows: rows.assign(**dict.fromkeys(TEXT, HOSTILE)),
    "half": lambda rows: rows.mask(rows["step"] > 8, rows.assign(**dict.fromkeys(TEXT), reward=np.nan)).mask(
        rows["step"] < 4, rows.assign(**dict.fromkeys(TEXT, HOSTILE))
    ),
    "dropped": lambda rows: rows.assign(dropped="held_out"),
    "bare": lambda rows: rows[["step", "seq_id"]],
}  # fmt: skip


@in_one_loop("name", {name: name for name in ODD})
def test_odd_logs_raise_nothing(tmp_path: Path, name: str) -> None:
    rows = ODD[name](whole())
    tokens = None if name in ("bare", "null") else tokens_of(rows, length=2).assign(advantage=np.nan)
    seen = look(tmp_path, *ALL, rows=rows, tokens=tokens)
    assert len(seen) >= 14 and not {one.mark.name for one in seen if one.present}
