"""A field of a template that prompts still hold is named where they earn less; braces that belong there are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ratioscope.analysis.linter import Finding
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import Columns, Log, Shape, chances, share, simulate, write
from tests.making.loops import in_one_loop

TASK = "Find out why test {} fails."


class Case(NamedTuple):
    """One prompt of three holds a text, in an environment of its own or among others."""

    text: Callable[[int], str]
    chance: float
    own: bool


def found(folder: Path, case: Case, words: str = "", alike: int = 1) -> list[Finding]:
    def mine(responses: Columns) -> Any:
        return share(responses["group_id"], 91) < 1 / 3

    def setup(responses: Columns) -> None:
        own = mine(responses)
        numbers = (responses["prompt_id"] // alike).tolist()
        prompts = [f"{case.text(at)} {TASK.format(at)}" if has else f"Work in /src/{at}. {TASK.format(at)}"
                   for at, has in zip(numbers, own, strict=True)]  # fmt: skip
        responses["prompt"] = np.array(prompts, dtype=object)
        responses["environment"] = np.where(own & case.own, "swe", "web").astype(object)

    def reward(log: Log) -> Columns:
        chance = np.where(mine(log.responses), case.chance, chances(log))
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(91, steps=16, groups=9, lag=0, longest=20, shortest=6), setup=setup, reward=reward)
    named = asked(open_run(write(log, folder, "sampler")), "selection")
    return [each for each in named if each.of_cause == "template_not_filled_in" and words in each.sentence]


FAULTS = {
    "{{ cwd }}": Case(lambda at: "Work in {{ cwd }}.", 0.1, True),
    "{% if tools %}": Case(lambda at: "{% if tools %} Work with tools.", 0.15, False),
    "${repo_path}": Case(lambda at: "Work in ${repo_path}.", 0.1, False),
    "{repo_path}": Case(lambda at: "Work in {repo_path}.", 0.1, False),
    "<REPO_PATH>": Case(lambda at: "Work in <REPO_PATH>.", 0.1, False),
    "%(repo)s": Case(lambda at: "Work in %(repo)s.", 0.1, True),
}


@in_one_loop("case", {name: (name, case) for name, case in FAULTS.items()})
def test_a_field_that_is_not_filled_in_is_named(tmp_path: Path, case: tuple[str, Case]) -> None:
    (one,) = found(tmp_path / str(id(case)), case[1], f"'{case[0]}' stands in ")
    inside = "all prompts of swe" if case[1].own else " prompts, which earn 0.1"
    assert inside in one.sentence and "Print a prompt" in one.do, one.sentence


NEAR_MISSES = {
    "earns as others": Case(lambda at: "Work in {{ cwd }}.", 0.5, True),
    "of each task": Case(lambda at: f"Print {{{{ user_{at}.name }}}}.", 0.05, True),
    "how to answer": Case(lambda at: "End with {{ answer }}.", 0.05, True),
    "how tools are called": Case(lambda at: "Call {tool_name} with <TOOL_INPUT> in ${HOME}.", 0.05, True),
    "a fraction": Case(lambda at: r"Simplify \frac{{aa}}{{bb}} and x_{max}.", 0.05, False),
    "nothing": Case(lambda at: "Work.", 0.05, True),
}


@in_one_loop("case", NEAR_MISSES)
def test_braces_that_belong_there_are_not_named(tmp_path: Path, case: Case) -> None:
    assert found(tmp_path / str(id(case)), case) == []


def test_few_prompts_with_a_field_are_not_judged(tmp_path: Path) -> None:
    """They are solved less, too, and one or two hard tasks may be about templates."""
    assert found(tmp_path / "run", FAULTS["{{ cwd }}"], alike=30) == []
