"""`make quick` picks the tests of what changed, and no more than there is time for; mutants change what they say."""

import grimp
import pytest

from tests import quick
from tests.making.mutants import mutants_of
from tests.quick import BUDGET, UNKNOWN, affordable, by_distance


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("ratioscope", "tests", cache_dir=None)


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("ratioscope/rules/gates.py", "tests.floor.test_gates"),
        ("analysis/summary/optional_sums.sql", "tests.analysis.summary.test_brute_force"),
        ("dashboard/views/drift.py", "tests.dashboard.test_drift"),
        ("trainer/settings/presets/on_policy.toml", "tests.trainer.settings.test_checks"),
        ("tests/oracles/brute_force.py", "tests.analysis.summary.test_brute_force"),
        ("tests/dashboard/conftest.py", "tests.dashboard.test_drift"),
        ("tests/floor/test_gates.py", "tests.floor.test_gates"),
    ],
)
def test_a_change_reaches_the_tests_of_it(graph: grimp.ImportGraph, path: str, test: str) -> None:
    found = by_distance([path], graph)
    assert test in found and len(found) == len(set(found))


def test_the_tests_of_a_module_come_before_those_of_its_users(graph: grimp.ImportGraph) -> None:
    found = by_distance(["ratioscope/rules/gates.py"], graph)
    assert found.index("tests.floor.test_gates") < found.index("tests.test_one_story")
    assert by_distance(["README.md", "a file that is gone.py"], graph) == []


def test_what_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "by_file", lambda: {"long": {"a": BUDGET, "b": 1.0}, "short": {"a": 0.5}})
    assert affordable(["long", "short"]) == ["long"]  # the nearest one in any case
    assert affordable(["short", "long", *map(str, range(100))]) == ["short", *map(str, range(int(BUDGET / UNKNOWN)))]


def test_a_mutant_is_another_operator_or_constant() -> None:
    source = (
        'def f(x: int = 1) -> "int | None":\n    """Text 2."""\n    return x + 3 if x < 4 and not é else f"{x - 5}"\n'
    )
    found = {mutant.of(source).splitlines()[2].strip() for mutant in mutants_of("f.py", source)}
    whole = 'return x + 3 if x < 4 and not é else f"{x - 5}"'
    changes = (("+", "-"), ("3", "4"), ("< 4", "< 5"), ("<", "<="), ("and", "or"), ("not ", ""))
    assert found == {whole, *(whole.replace(one, other) for one, other in changes)}
