"""What goes wrong when other programs' logs are read: placeholders, copies without an age, rounding."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ratioscope.analysis.linter import Finding, Outcome, lint, rest_of
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import END, Shape, simulate, write
from tests.making.loops import in_one_loop
from tests.making.runs import Step, plain_step, random_step, write_run

_OTHERS = ("logp_behavior_train", "logp_new", "logp_reference", "entropy")


def of(folder: Path, change: Callable[[Step], Step], check: str, **manifest: object) -> list[Finding]:
    steps = [random_step(np.random.default_rng(k), k, groups=12, responses=4, longest=20) for k in range(2)]
    return asked(open_run(write_run(folder, map(change, steps), **manifest)), check)


def test_responses_of_nothing_but_probability_1_are_placeholders(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        logp = np.where(np.isin(step.tokens["seq_id"], range(10)), 0, step.tokens["logp_behavior"])
        alone = dict.fromkeys((*_OTHERS, "logp_current"))
        return step.with_tokens(**alone | {"logp_behavior": logp.astype(np.float32)})

    (remark,) = of(tmp_path / "run", change, "zero_filled")
    assert remark.is_broken and remark.columns == ("logp_behavior",) and "placeholder" in remark.sentence
    assert {example.seq_id for example in remark.examples} <= set(range(10))


def test_old_that_is_the_sampler_to_the_last_digit_is_a_copy_where_no_age_explains_it(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        return step.with_tokens(
            **dict.fromkeys((*_OTHERS, "behavior_version")), logp_current=step.tokens["logp_behavior"]
        )

    (remark,) = of(tmp_path / "run", change, "copied_columns")
    assert remark.is_problem and remark.columns == ("logp_behavior", "logp_current")


def test_rounding_that_the_source_states_is_neither_a_copy_nor_an_engine(tmp_path: Path) -> None:
    def change(step: Step) -> Step:
        behavior = step.tokens["logp_behavior"]
        noise = 1e-4 * np.random.default_rng(0).standard_normal(len(behavior))
        columns = {"logp_behavior": behavior, "logp_current": np.minimum(behavior + noise, 0)}
        rounded = {name: np.round(values, 2).astype(np.float32) for name, values in columns.items()}
        fresh = np.full(len(behavior), step.number, np.int32)
        return step.with_tokens(**dict.fromkeys(_OTHERS), **rounded, behavior_version=fresh)

    for check, outcome in (("on_policy_ratio", Outcome.PASSED), ("copied_columns", Outcome.NOT_CHECKED)):
        (remark,) = of(tmp_path / check, change, check, log_probability_decimals=2)
        assert remark.outcome is outcome and "2 decimals" in remark.sentence


RESPONSES, LENGTH, TURN = 32, 24, 8


class Filled(NamedTuple):
    """What is 0 in a log of the sampler's values alone, and what is said of it."""

    zero: Callable[[Mapping[str, Any]], Any]
    words: str = ""
    token: Callable[[Mapping[str, Any]], Any] = lambda of: of["drawn"]
    values: Callable[[Mapping[str, Any]], Any] = lambda of: of["values"]
    turns: bool = True
    uneven: bool = False
    """Whether first turns are of several lengths."""
    others: bool = False
    """Whether the trainer's values are logged, too, and all of them are as certain."""
    responses: int = RESPONSES
    per_group: int = 4
    manifest: Mapping[str, Any] = {}
    temperature: float | None = None


def later(of: Mapping[str, Any]) -> Any:
    return of["position"] >= TURN


FILLS = {
    "later turns": Filled(later, "in all 1,024 tokens from turn 1 on."),
    "the last turn": Filled(lambda of: of["position"] >= 2 * TURN, "from turn 2 on."),
    "later positions": Filled(later, "in all 1,024 tokens from position 8 on.", turns=False),
    "of groups of one": Filled(later, "from turn 1 on.", per_group=1),
    "turns of other lengths": Filled(lambda of: of["turn"] >= 1, "tokens from turn 1 on.", uneven=True),
    "all but one": Filled(lambda of: later(of) & (of["row"] != len(of["row"]) - 1)),
    "the first turn": Filled(lambda of: ~later(of)),
    "few tokens": Filled(lambda of: of["position"] >= LENGTH - 4, turns=False),
    "few responses": Filled(later, responses=8),
    "a template": Filled(later, token=lambda of: np.where(later(of), 100 + of["position"], of["drawn"])),
    "a template behind turns of other lengths": Filled(
        lambda of: of["turn"] >= 1,
        uneven=True,
        token=lambda of: np.where(of["turn"] >= 1, 100 + of["in_turn"] + 20 * of["turn"], of["drawn"]),
    ),
    "of its prompt": Filled(
        later, token=lambda of: np.where(later(of), 100 * of["group"] + of["position"], of["drawn"])
    ),
    "one token": Filled(later, token=lambda of: np.where(later(of), 7, of["drawn"])),
    "loops to the limit": Filled(lambda of: (of["sequence"] % 8 > 0) & (of["position"] >= 2) | later(of), turns=False),
    "certain before, too": Filled(later, values=lambda of: np.where(of["drawn"] % 2, 0.0, of["values"])),
    "greedy": Filled(later, manifest={"sampler": {"temperature": 0}}),
    "greedy, by response": Filled(later, temperature=0.0),
    "rounded": Filled(later, manifest={"log_probability_decimals": 2}),
    "certain in the trainer": Filled(later, others=True),
    "nowhere": Filled(lambda of: of["position"] < 0),
}


def filled(fill: Filled) -> list[Step]:
    steps = []
    for number in range(2):
        rng, n = np.random.default_rng([number, 4]), fill.responses * LENGTH
        sequence, position = np.repeat(np.arange(fill.responses), LENGTH), np.tile(np.arange(LENGTH), fill.responses)
        place = position + (sequence % 3 if fill.uneven else 0)
        of: dict[str, Any] = {
            "row": np.arange(n), "sequence": sequence, "position": position, "turn": place // TURN,
            "group": sequence // fill.per_group, "drawn": rng.integers(0, 90, n), "values": -rng.exponential(1.0, n),
            "in_turn": np.where(place < TURN, position, place % TURN),
        }  # fmt: skip
        of["values"] = np.minimum(of["values"], -1e-6)
        logp = np.where(fill.zero(of), 0.0, fill.values(of))
        step = plain_step(
            logp, logp if fill.others else np.zeros(n), number=number, sequence=sequence, group=of["group"],
            token_id=fill.token(of).astype(np.int32),
        )  # fmt: skip
        step = step.with_tokens(
            **{} if fill.others else {"logp_current": None}, turn=of["turn"].astype(np.int16) if fill.turns else None
        )
        if fill.temperature is not None:
            step = step.with_sequences(temperature=np.full(fill.responses, fill.temperature, np.float32))
        steps.append(step)
    return steps


@in_one_loop("fill", FILLS)
def test_zeros_behind_a_place_are_missing_values_where_nobody_can_be_as_certain(tmp_path: Path, fill: Filled) -> None:
    run = open_run(write_run(tmp_path / str(len([*tmp_path.iterdir()])), filled(fill), **fill.manifest))
    found = [each for each in asked(run, "zero_filled") if "exactly 0" in each.sentence and " on. " in each.sentence]
    assert len(found) == bool(fill.words)
    for each in found:
        assert fill.words in each.sentence and each.is_broken and each.columns == ("logp_behavior",), each.sentence


@pytest.mark.parametrize("kind", ["padding", "some ends", "sampler", "certain"])
def test_an_end_token_that_the_trainer_takes_for_padding_is_named(kind: str, tmp_path: Path) -> None:
    log = simulate(Shape(91, steps=8, groups=6, lag=0, noise=0.0, closing=0.15))
    ends = log.tokens["token_id"] == END
    if kind == "some ends":
        ends &= log.row % 2 == 0
    for name in ("logp_behavior",) if kind == "sampler" else ("logp_behavior_train", "logp_current", "logp_new"):
        log.tokens[name] = np.where(ends, 0.0, log.tokens[name])
    if kind == "certain":
        for name, sure in (("logp_behavior", -1e-5), ("entropy", 1e-4)):
            log.tokens[name] = np.where(ends, sure, log.tokens[name])
    run = open_run(write(log, tmp_path / "run", "verl"))
    found = [each for each in asked(run, "zero_filled") if each.severity]
    assert bool(found) is (kind != "certain")
    named = [each for each in found if f"always the last one (token id {END} each time)" in each.sentence]
    assert len(named) == (kind == "padding"), found
    for each in named:
        assert each.do.startswith("Mask padding by the length") and each.wrong_rows is not None
        (part,) = rest_of(run, lint(run)).left_out
        assert part.where == each.wrong_rows.where
