"""Ablations: seeds together, settings apart, labels by what differs, ends with their intervals."""

import pytest

from ratioscope.analysis.compare.differences import component_differences, differences
from ratioscope.analysis.compare.grouping import Member, grouped_settings, schedule_words
from ratioscope.dashboard.theme import ALGORITHMS as COLOURED
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from tests.making.members import member
from tests.making.samples import NAMES, run_of, summary_of


@pytest.fixture(scope="module")
def members() -> list[Member]:
    """The runs of figure 3."""
    names = ("reinforce", "grpo", "rec_oneside_is", "rec_oneside_nois")
    runs = [run_of(name) for name in NAMES if "-lr" not in name]
    runs = [run for run in runs if run.manifest.algorithm["name"] in names and not run.manifest.schedule["mixture"]]
    runs = [run for run in runs if run.manifest.sampler["top_p"] == 1 and not run.manifest.model["path"]]
    # The numbers of others than GRPO's are not looked at.
    nothing = member([]).summary
    summaries = {name: summary_of(name) for name in NAMES if name.startswith("sync_interval20-grpo")}
    return [Member(run.folder.name, run, summaries.get(run.folder.name, nothing)) for run in runs]


def test_runs_that_differ_in_their_seed_only_are_one_setting(members: list[Member]) -> None:
    found = grouped_settings(members)
    assert len(found) == 15
    assert {len(setting.members) for setting in found if setting.schedule == "sync_interval = 20"} == {2}
    assert {len(setting.members) for setting in found if setting.schedule != "sync_interval = 20"} == {1}


def test_settings_are_named_by_what_tells_them_apart(members: list[Member]) -> None:
    variants = {setting.variant for setting in grouped_settings(members)}
    assert variants == {
        "reinforce", "grpo", "rec_oneside_is", "rec_oneside_nois (epsilon 0.2)",
        "rec_oneside_nois (epsilon 0.6/2.0)",
    }  # fmt: skip


def test_schedules_are_ordered_from_fresh_to_stale(members: list[Member]) -> None:
    schedules = list(dict.fromkeys(setting.schedule for setting in grouped_settings(members)))
    assert schedules == ["sync_interval = 20", "sync_offset = 10", "offline"]
    assert schedule_words({"sync_interval": 1, "sync_offset": 0, "offline": False}) == "on-policy"
    assert schedule_words({"sync_interval": 1}, {"dtype": "int8", "top_p": 1.0}) == "on-policy (sampler: dtype int8)"
    assert schedule_words({}) == "schedule not stated"
    assert schedule_words({"max_off_policy_steps": 8}) == "schedule not stated"  # another program's, and not on-policy
    assert schedule_words({"sync_interval": 5, "mixture": [1, 1]}) == "sync_interval = 5, mixture of 2 versions"
    assert schedule_words({"actors": 2, "epsilon_stale": 0.4}) == "actors = 2, epsilon_stale = 0.4"


def test_differences_show_the_settings_and_not_the_seed(members: list[Member]) -> None:
    two = [member for member in members if member.run_id.startswith("sync_interval20-grpo")]
    assert len(differences(two)) == 0
    table = differences(members)
    assert "schedule.sync_interval" in table.index
    assert "algorithm.parameters.epsilon_high" in table.index
    assert not any("seed" in key for key in table.index)


def test_component_differences_are_the_rows_in_which_settings_differ(members: list[Member]) -> None:
    here = [setting for setting in grouped_settings(members) if setting.schedule == "sync_interval = 20"]
    table, named = component_differences(here), {setting.label: setting for setting in here}
    assert table.columns.tolist() == [*named]
    assert table.loc["epsilon_low", "reinforce, sync_interval = 20"] == "-"
    for name, setting in named.items():
        parts = setting.members[0].run.manifest.algorithm["parts"]
        assert table.loc["gate", name] == parts["gate"]
    grpo, one_side = named["grpo, sync_interval = 20"], named["rec_oneside_is, sync_interval = 20"]
    table = component_differences([grpo, one_side])
    assert table.to_dict(orient="index") == {
        "advantage": {grpo.label: "group_normalised", one_side.label: "group_mean"}
    }
    assert not len(component_differences([grpo]))


def test_settings_that_differ_in_a_part_are_named_by_it() -> None:
    runs = [member([0.5], name=name, parts={"aggregation": name}) for name in ("token_mean", "sequence_mean")]
    variants = {setting.variant for setting in grouped_settings(runs)}
    assert variants == {"grpo (aggregation token_mean)", "grpo (aggregation sequence_mean)"}
    assert schedule_words({"segment_length": 4, "switch_probability": 0.5}) == (
        "switch_probability = 0.5, segment_length = 4"
    )


def test_every_algorithm_of_the_trainer_has_its_colour_by_place() -> None:
    assert set(ALGORITHMS) == set(COLOURED)
