"""Configurations: presets, overrides in every spelling, and one clear sentence for each slip."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope import RatioscopeError
from ratioscope.trainer.algorithms.parameters import ALGORITHM_PARAMETERS
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from ratioscope.trainer.settings.config import TrainConfig
from ratioscope.trainer.settings.load import build, load_settings
from ratioscope.trainer.settings.table import presets
from tests.making.training import QUICK


@pytest.mark.parametrize("preset", presets())
def test_every_preset_loads_and_says_what_it_is_for(preset: str) -> None:
    assert load_settings(preset).notes


def test_the_settings_of_figure_3_and_a_demo_are_presets() -> None:
    assert {"demo", "offline", "on_policy", "sync_interval", "sync_offset"} <= set(presets())
    told = {"notes", "logging"}
    assert load_settings("on_policy").model_dump(exclude=told) == TrainConfig().model_dump(exclude=told)


@pytest.mark.parametrize("preset", presets())
def test_every_preset_trains_an_algorithm_with_its_own_defaults(preset: str) -> None:
    """What a preset is about is where the data come from."""
    config = load_settings(preset)
    assert config.parameters == dict(ALGORITHMS[config.algorithm.name].parameters)


@pytest.mark.parametrize("name", [*ALGORITHMS, *ALIASES])
def test_an_algorithm_is_a_preset_of_its_own(name: str) -> None:
    config = load_settings(name, ["seed=3"])
    assert config.algorithm.name == ALIASES.get(name, name)
    assert config.schedule == load_settings("on_policy").schedule or name in presets()  # a3c needs its workers
    assert config.seed == 3


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("schedule.sync_interval=7", "schedule.sync_interval", 7),
        ("sync_interval=7", "schedule.sync_interval", 7),
        ("offline=true", "schedule.offline", True),
        ("algorithm=reinforce", "algorithm.name", "reinforce"),
        ("algorithm.name=reinforce", "algorithm.name", "reinforce"),
        ('algorithm="reinforce"', "algorithm.name", "reinforce"),
        ("epsilon_low=0.3", "algorithm.parameters", {"epsilon_low": 0.3}),
        ("algorithm.parameters.epsilon_high=1", "algorithm.parameters", {"epsilon_high": 1.0}),
        ("epsilon_low=.3", "algorithm.parameters", {"epsilon_low": 0.3}),
        ("epochs=4", "algorithm.epochs", 4),
        ("minibatches=3", "algorithm.minibatches", 3),
        ("learning_rate=1e-3", "optimiser.learning_rate", 1e-3),
        ("warm_start.learning_rate=1", "warm_start.learning_rate", 1.0),
        ("name=my run = the best", "name", "my run = the best"),
        ('tags=["a", "b"]', "tags", ["a", "b"]),
        ("seed=3", "seed", 3),
        ("warm_start.seed=3", "warm_start.seed", 3),
        ("mixture=[1, 0.5]", "schedule.mixture", [1.0, 0.5]),
        ("actors=2", "schedule.actors", 2),
        ("epsilon_stale=0.4", "schedule.epsilon_stale", 0.4),
        ("top_p=0.9", "sampler.top_p", 0.9),
        ("sampler.dtype=int8", "sampler.dtype", "int8"),
        ("exact=false", "logging.exact", False),
        ("reference_kl=0.1", "algorithm.reference_kl", 0.1),
    ],
)
def test_a_setting_is_named_by_its_path_or_by_a_name_that_is_its_own(override: str, path: str, value: object) -> None:
    found: object = load_settings("on_policy", [override])
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_the_last_override_wins() -> None:
    assert load_settings("sync_interval", ["sync_interval=3", "schedule.sync_interval=5"]).schedule.sync_interval == 5


def test_a_preset_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('updates = 3\n[algorithm]\nname = "reinforce"\n', encoding="utf-8")
    config = load_settings(str(path), ["seed=2"])
    assert (config.updates, config.algorithm.name, config.seed) == (3, "reinforce", 2)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["updates"], "'updates' is not of the form key=value"),
        (["=3"], "'=3' is not of the form key=value"),
        (
            ["updatez=3"],
            r"There is no setting 'updatez' \(did you mean 'updates'\?\)\.",
        ),
        (["xyzzyq=3"], "There is no setting 'xyzzyq'"),
        (["schedule=3"], "There is no setting 'schedule'"),
        (["schedule.wimdow=3"], r"There is no setting 'schedule.wimdow' \(did you mean 'schedule.window'\?\)"),
        (["sync_intervall=3"], r"There is no setting 'sync_intervall' \(did you mean 'sync_interval'\?\)"),
        (["epsilon_hi=3"], r"There is no setting 'epsilon_hi' \(did you mean 'epsilon_high'\?\)"),
        (["algorithm=grpoo"], r"There is no algorithm 'grpoo' \(did you mean 'grpo'\?\); there are: vanilla_pg"),
        (
            ["algorithm=reinforce", "epsilon_low=0.2"],
            "reinforce has no parameter 'epsilon_low'; it takes no parameters",
        ),
        (["algorithm.parameters.a.b=1"], "algorithm.parameters.a: Input should be a valid number"),
        (["parameters=3", "epsilon_low=0.2"], "'epsilon_low=0.2' cannot be set: parameters is 3, not a section"),
        (["updates=many"], "updates: Input should be a valid integer.*got 'many'"),
        (["updates=1.5"], "updates: Input should be a valid integer .*got 1.5"),
        (["updates=true"], "updates: Input should be a valid integer .*got True"),
        (["updates="], "updates: Input should be a valid integer"),
        (["updates=0"], "updates: Input should be greater than or equal to 1"),
        (["sync_interval=0"], "schedule.sync_interval: Input should be greater than or equal to 1"),
        (["sync_offset=-1"], "schedule.sync_offset: Input should be greater than or equal to 0"),
        (["offline=1"], "schedule.offline: Input should be a valid boolean"),
        (["temperature=0"], "sampler.temperature: Input should be greater than 0"),
        (["temperature=warm"], "sampler.temperature: Input should be a valid number"),
        (["learning_rate=inf"], "optimiser.learning_rate: Input should be a finite number"),
        (["learning_rate=nan"], "optimiser.learning_rate: Input should be a finite number"),
        (["epsilon_high=inf"], "algorithm.parameters.epsilon_high: Input should be a finite number"),
        (["samples_per_prompt=0"], "sampler.samples_per_prompt: Input should be greater than or equal to 1"),
        (["samples_per_prompt=1"], "grpo compares the .* sampler.samples_per_prompt=1 must be at least 2"),
        (["passes=4"], "There is no setting 'passes'"),
        (["tags=a"], "tags: Input should be a valid list"),
        (["task.name=chess"], "task.name='chess' needs a pretrained model: set model.path"),
        (["seed=-1"], "seed: Input should be greater than or equal to 0"),
        ([f"seed={2**64}"], "seed: Input should be less than"),
        (
            ["digits=1"],
            "task.digits=1 makes 100 prompts, too few for task.evaluation_prompts=512 and sampler.prompts=12",
        ),
        (
            ["digits=1", "evaluation_prompts=95", "prompts=6"],
            "too few for task.evaluation_prompts=95 and sampler.prompts=6",
        ),
        (["hidden_size=30"], "model.hidden_size=30 must be a multiple of twice model.heads=4"),
        (["updates=" + "[" * 5_000], "updates: Input should be a valid integer"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_slip_is_one_clear_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(RatioscopeError, match=sentence) as caught:
        load_settings("on_policy", overrides)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 2_000


def test_the_largest_evaluation_that_leaves_a_batch_is_accepted() -> None:
    assert load_settings("on_policy", ["digits=1", "evaluation_prompts=94", "prompts=6"]).task.evaluation_prompts == 94


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        (b"updates = ", "cannot be read as TOML"),
        (b"\xff\xfe", "cannot be read as TOML"),
        (b"schedule = 3", "schedule: Input should be a valid dictionary"),
        (b"what = 3", "There is no setting 'what'"),
        (b"updatez = 3", r"There is no setting 'updatez' \(did you mean 'updates'\?\)"),
        (b"[schedule]\nwindw = 3", r"There is no setting 'schedule.windw' \(did you mean 'schedule.window'\?\)"),
    ],
)
def test_a_bad_preset_file_is_one_clear_sentence(tmp_path: Path, contents: bytes, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(contents)
    with pytest.raises(RatioscopeError, match=sentence):
        load_settings(str(path))


def test_an_override_into_something_that_is_no_section_is_one_clear_sentence() -> None:
    with pytest.raises(RatioscopeError, match="schedule is 3, not a section"):
        build({"schedule": 3}, ["sync_interval=2"])


@pytest.mark.parametrize("preset", ["nothing", "", "a\0b", "x" * 5_000, "missing.toml"])
def test_an_unknown_preset_is_one_clear_sentence(preset: str) -> None:
    with pytest.raises(RatioscopeError, match=r"There is no preset|cannot be read"):
        load_settings(preset)


def test_a_folder_is_no_preset(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(RatioscopeError, match="cannot be read as TOML"):
        load_settings(str(tmp_path / "folder.toml"))


KEYS = [*TrainConfig.model_fields, "sync_interval", "epsilon_low", "learning_rate", "parameters", "digits", "heads"]


@QUICK
@given(st.lists(st.one_of(st.text(max_size=12), st.builds("{}={}".format, st.sampled_from(KEYS), st.text(max_size=8)))))
def test_whatever_is_typed_gives_a_configuration_or_a_sentence(overrides: list[str]) -> None:
    try:
        load_settings("on_policy", overrides)
    except RatioscopeError as error:
        assert str(error)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_takes_its_own_parameters(name: str) -> None:
    own = {
        parameter: value + 1 if ALGORITHM_PARAMETERS[parameter].whole else value
        for parameter, value in ALGORITHMS[name].parameters.items()
    }
    config = load_settings(
        "on_policy", [f"algorithm={name}", *(f"{parameter}={value}" for parameter, value in own.items())]
    )
    assert config.algorithm.parameters == config.parameters == own


@pytest.mark.parametrize("preset", presets())
def test_a_configuration_survives_the_manifest(preset: str) -> None:
    config = load_settings(preset, ["pace=1", "learning_rate=1"])
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("preset", "overrides", "name"),
    [
        ("on_policy", [], "on_policy-grpo-seed0"),
        ("sync_interval", ["algorithm=reinforce", "seed=3"], "sync_interval20-reinforce-seed3"),
        ("offline", ["epsilon_low=0.6", "epsilon_high=2"], "offline-grpo_0.6_2-seed0"),
        ("sync_offset", ["sync_interval=2"], "sync_interval2_sync_offset10-grpo-seed0"),
        ("demo", [], "live demo"),
        ("mixture", ["mixture=[1, 1]"], "sync_interval5_mixture2-grpo-seed0"),
        ("segment", ["switch_probability=0.25"], "sync_interval5_mixture3_switch0.25-grpo-seed0"),
        ("on_policy", ["actors=2"], "actors2-grpo-seed0"),
        ("on_policy", ["temperature=1.1"], "mismatch-grpo-seed0"),
    ],
)
def test_a_run_is_named_after_what_makes_it_special(preset: str, overrides: list[str], name: str) -> None:
    assert load_settings(preset, overrides).run_name() == name
