"""Settings that do not fit together: one sentence each, before anything is loaded or written."""

import re
import sys
from pathlib import Path

import pytest

from ratioscope import RatioscopeError
from ratioscope.dashboard import cli
from ratioscope.rules import parameters as floor
from ratioscope.rules.parameters import keywords_of
from ratioscope.trainer.algorithms.algorithm import PARTS
from ratioscope.trainer.algorithms.parameters import ALGORITHM_PARAMETERS
from ratioscope.trainer.algorithms.parts import CHOICES, algorithm_of_parts, takes
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from ratioscope.trainer.settings import elsewhere
from ratioscope.trainer.settings.config import AlgorithmChoice
from ratioscope.trainer.settings.elsewhere import CALLED_HERE, LACKING
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.settings.table import settings
from ratioscope.trainer.training.record import manifest_fields

MISTAKES: list[tuple[list[str], str]] = [
    # ratioscope.trainer.settings.checks: the algorithm
    (["algorithm=pp"], "There is no algorithm 'pp' (did you mean 'ppo'?); there are: vanilla_pg, reinforce,"),
    (["algorithm=gspo", "cap=2"], "gspo has no parameter 'cap'; it takes epsilon_low, epsilon_high (cap is one of"),
    (["algorithm=seq_is", "cap=2"], "it takes no parameters (cap is one of weight=truncated,"),
    (["aggregation=mean"], "There is no aggregation 'mean'; there are: token_mean, sequence_mean,"),
    (["gate=twoside"], "There is no gate 'twoside' (did you mean 'two_side'?); there are: none, one_side,"),
    (["gates=none"], "There is no setting 'gates' (did you mean 'gate'?)."),
    (["gate=none", "epsilon_low=0.2"], "grpo has no parameter 'epsilon_low'; it takes no parameters (epsilon_low is"),
    (["algorithm=reinforce", "level=sequence"], "algorithm.level=sequence has no effect on reinforce, whose weight"),
    (["algorithm=red_weight", "advantage=gae"], "algorithm.advantage=gae does not compare them; use one or the other."),
    (["gate=adaptive"], "algorithm.epochs=1 leaves the clip of grpo without effect"),
    (["algorithm=trpo", "gate=two_side"], "it does not take algorithm.gate=two_side."),
    (["algorithm=trpo", "advantage=gae"], "it does not take algorithm.advantage=gae."),
    # the passes
    (["minibatches=5"], "sampler.prompts=12 cannot be divided into algorithm.minibatches=5 equal parts."),
    (
        ["minibatches=2", "micro_batch=4"],
        "A minibatch of 6 prompts cannot be divided into parts of optimiser.micro_batch=4 prompts.",
    ),
    (["algorithm=trpo", "epochs=2"], "trpo takes one step on the whole batch: algorithm.epochs=2 and"),
    (["algorithm=trpo", "minibatches=2"], "algorithm.minibatches=2 must be 1."),
    (
        ["algorithm=trpo", "micro_batch=2"],
        "trpo judges its step by the token mean over the whole batch; it does not take optimiser.micro_batch=2.",
    ),
    (
        ["algorithm=trpo", "reference_kl=1"],
        "trpo judges its step by the token mean over the whole batch; it does not take algorithm.reference_kl=1.0.",
    ),
    (["algorithm=trpo", "aggregation=sequence_mean"], "it does not take algorithm.aggregation=sequence_mean."),
    (["algorithm=method_one", "epochs=1"], "algorithm.epochs=1 leaves the clip of adaptive_clip without effect"),
    (["algorithm=decoupled_ppo", "epochs=1"], "Use at least 2 epochs or minibatches."),
    (["samples_per_prompt=1"], "sampler.samples_per_prompt=1 must be at least 2."),
    # the schedule
    (["mixture=[0, 0]"], "schedule.mixture=[0.0, 0.0] must hold weights of at least 0, and not only zeros."),
    (["mixture=[1, -1]"], "schedule.mixture=[1.0, -1.0] must hold weights of at least 0, and not only zeros."),
    (["switch_probability=0.5"], "schedule.switch_probability=0.5 needs old versions to switch away from"),
    (["switch_probability=0.5", "mixture=[1]"], "set schedule.mixture, for example [0, 1]."),
    (["offline=true", "mixture=[1, 1]"], "schedule.offline=true has one version only; it goes with neither mixture"),
    (["offline=true", "actors=2"], "schedule.offline=true has one version only"),
    (["actors=2", "sync_interval=3"], "schedule.actors=2 measures the lag that sync_interval, sync_offset and mixture"),
    (["actors=2", "sync_offset=3"], "use one or the other."),
    (["actors=3", "mixture=[1, 1]"], "schedule.actors=3 measures the lag"),
    (["algorithm=dapo", "actors=2"], "dapo samples again until it has signal, which actors cannot do."),
    (["mixture_unit=response"], "schedule.mixture_unit has no effect with schedule.mixture=[]; leave it out."),
    # experts
    (["expert_share=0.25"], "weight=ratio of grpo needs the expert's log-probabilities; give them in"),
    (["expert_share=0.25", "algorithm=opmd"], "regulariser=squared_log_ratio of opmd needs the expert's"),
    (["expert_share=0.01", "algorithm=reinforce"], "schedule.expert_share=0.01 of sampler.samples_per_prompt=8 is no"),
    (["expert_share=0.5", "algorithm=reinforce", "actors=2"], "no version of the policy; schedule.actors does not go"),
    (["expert_file=here.jsonl"], "schedule.expert_file has no effect with schedule.expert_share=0; leave it out."),
    # workers
    (["workers=2", "sync_interval=3"], "apply their gradients as they come; schedule.sync_interval=3 does not go with"),
    (["workers=2", "top_p=0.9"], "a sampler that differs from the policy does not go with it."),
    (["workers=2", "algorithm=ppo"], "each applies one gradient of AdamW a batch, and ppo makes 4 passes"),
    (["workers=2", "algorithm=trpo"], "and trpo steps otherwise; take another algorithm, such as a3c."),
    # the model and the task
    (["task.name=chain_sum"], "task.name='chain_sum' needs a pretrained model: set model.path"),
    (["model.path=/no/such/model"], "/no/such/model"),
    (["model.lora_rank=8"], "model.lora_rank=8 is for a pretrained model (model.path): the built-in one is tiny, and"),
    (["model.lora_alpha=8"], "model.lora_alpha has no effect with model.lora_rank=0; leave it out."),
    (["digits=1"], "task.digits=1 makes 100 prompts, too few for task.evaluation_prompts=512 and sampler.prompts=12."),
    (["hidden_size=36"], "model.hidden_size=36 must be a multiple of twice model.heads=4."),
    # ratioscope.trainer.algorithms.parameters
    (["epsilon_low=1.5"], "algorithm.parameters.epsilon_low=1.5 does not fit grpo: it must be from 0 to 1 (lower clip"),
    (["epsilon_high=-1"], "algorithm.parameters.epsilon_high=-1 does not fit grpo: it must be from 0 (upper clip"),
    (["algorithm=sapo", "tau_positive=0"], "algorithm.parameters.tau_positive=0 does not fit sapo: it must be above 0"),
    (["algorithm=trpo", "cg_steps=2.5"], "algorithm.parameters.cg_steps=2.5 does not fit trpo: it must be a whole"),
    (["algorithm=trpo", "shrink=1"], "algorithm.parameters.shrink=1 does not fit trpo: it must be above 0 to 0.99"),
    (
        ["algorithm=rec_ring_is", "outer_low=0.1"],
        "algorithm.parameters.outer_low=0.1 must not be less than epsilon_low=0.2: the ring's outer margin",
    ),
    (["algorithm=rec_ring_nois", "epsilon_high=3"], "algorithm.parameters.outer_high=2 must not be less than"),
    # ratioscope.trainer.settings.load, and the ranges of single settings
    (["actor=2"], "There is no setting 'actor' (did you mean 'actors'?)"),
    (["gae_lamda=1"], "There is no setting 'gae_lamda' (did you mean 'gae_lambda'?)"),
    (["top_p=0"], "sampler.top_p: Input should be greater than 0 (got 0"),
    (["top_p=1.5"], "sampler.top_p: Input should be less than or equal to 1 (got 1.5)."),
    (["top_k=-1"], "sampler.top_k: Input should be greater than or equal to 0 (got -1)."),
    (["sampler.dtype=int4"], "sampler.dtype: Input should be 'same', 'bfloat16' or 'int8' (got 'int4')."),
    (["model.dtype=float16"], "model.dtype: Input should be 'float32' or 'bfloat16' (got 'float16')."),
    (["device=tpu"], "model.device: Input should be 'auto', 'cpu' or 'cuda' (got 'tpu')."),
    (
        ["reference_kl_estimator=k4"],
        "algorithm.reference_kl_estimator: Input should be 'k1', 'k2', 'k3' or 'in_reward'",
    ),
    (["reference_kl=-1"], "algorithm.reference_kl: Input should be greater than or equal to 0 (got -1"),
    (["actors=65"], "schedule.actors: Input should be less than or equal to 64 (got 65)."),
    (["window=0"], "schedule.window: Input should be greater than or equal to 1 (got 0)."),
    (["epsilon_stale=0"], "schedule.epsilon_stale: Input should be greater than 0 (got 0"),
    (["switch_probability=2"], "schedule.switch_probability: Input should be less than or equal to 1 (got 2"),
    (["segment_length=0"], "schedule.segment_length: Input should be greater than or equal to 1 (got 0)."),
    (["mixture=1"], "schedule.mixture: Input should be a valid list (got 1)."),
    (["probe_batches=1"], "logging.probe_batches: Input should be greater than or equal to 2 (got 1)."),
    (["dtype=int8"], "'dtype' is ambiguous: sampler.dtype or model.dtype."),
    # what other trainers call it
    (["lr=1e-6"], "There is no setting 'lr'; here it is optimiser.learning_rate."),
    (["beta=0.04"], "There is no setting 'beta'; here it is algorithm.reference_kl, the weight of the KL to the"),
    (["num_generations=8"], "here it is sampler.samples_per_prompt."),
    (["batch_size=8"], "here it is sampler.prompts x sampler.samples_per_prompt, the responses of an update."),
    (
        ["actor_rollout_ref.actor.clip_ratio=0.2"],
        "here it is epsilon_low and epsilon_high, of an algorithm that clips.",
    ),
    (["epsilon=0.2"], "grpo has no parameter 'epsilon'; here it is epsilon_low and epsilon_high"),
    (["max_steps=20"], "There is no setting 'max_steps'; here it is updates."),
    (["actor_rollout_ref.rollout.n=8"], "here it is sampler.samples_per_prompt."),
    (["algorithm.filter_groups.enable=true"], "here it is selection=mixed_groups, as in algorithm=dapo."),
    (["algorithm.gamma=1"], "There is no setting 'algorithm.gamma' (did you mean 'gamma'?)"),
    (["learning-rate=1"], "There is no setting 'learning-rate' (did you mean 'learning_rate'?)"),
    (
        ["--lr", "1e-4"],
        "There is no option '--lr' (see --help), and settings are written key=value, without dashes; here",
    ),
    (["use_vllm=true"], "There is no setting 'use_vllm': this trainer samples with the model that it trains;"),
    (["lora_r=16"], "There is no setting 'lora_r'; here it is model.lora_rank."),
    (
        ["load_in_8bit=true"],
        "There is no setting 'load_in_8bit': this trainer does not quantise the weights of a model",
    ),
    (["model=Qwen"], "There is no setting 'model', it is a section of: model.path,"),
    (["algorithm=GRPO"], "There is no algorithm 'GRPO' (did you mean 'grpo'?)"),
    (["algorithm=Dr.GRPO"], "There is no algorithm 'Dr.GRPO' (did you mean 'dr_grpo'?)"),
    (["algorithm=reinforce++"], "(did you mean 'reinforce_plus_plus'?)"),
    (["accuracy=0.5"], "There is no setting 'accuracy'; the one of the warm start is warm_start.accuracy."),
    (["algorithm=dpo"], "'dpo' is not an algorithm of this trainer: it learns from pairs of preferred and rejected"),
    (["algorithm=SAC"], "'SAC' is not an algorithm of this trainer: it learns the values of actions"),
    # what would have no effect
    (
        ["task.name=counting"],
        "task.response_length=24 cuts every right response of task.name=counting, which have 33 to",
    ),
    (
        ["task.name=counting", "task.response_length=90", "task.digits=2"],
        "task.digits has no effect with task.name=counting",
    ),
    (
        ["task.name=counting", "task.response_length=90", "evaluation_prompts=1495"],
        "task.name=counting has 1500 prompts, too few",
    ),
    (["task.seed=3"], "task.seed has no effect with task.name=addition; leave it out."),
    (["task.options.min_terms=3"], "task.options.min_terms has no effect with task.name=addition"),
    (["segment_length=4"], "schedule.segment_length has no effect with schedule.switch_probability=0; leave it out."),
    (["chat_template=false"], "model.chat_template has no effect with the built-in model; leave it out."),
    (["offline=true", "sync_interval=3"], "schedule.sync_interval has no effect with schedule.offline=true"),
    (["reference_kl_estimator=k3"], "algorithm.reference_kl_estimator has no effect with algorithm.reference_kl=0"),
    (["probe_batches=8"], "logging.probe_batches has no effect with logging.probe_every=0; leave it out."),
    (
        ["algorithm=trpo", "learning_rate=1e-3"],
        "optimiser.learning_rate has no effect with algorithm=trpo; leave it out.",
    ),
    (["window=2"], "schedule.window has no effect with one version at a time (no mixture, no actors); leave it out."),
]


@pytest.mark.parametrize(("overrides", "sentence"), MISTAKES, ids=[" ".join(overrides) for overrides, _ in MISTAKES])
def test_settings_that_do_not_fit_are_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(RatioscopeError) as caught:
        load_settings("on_policy", overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_what_a_preset_sets_beside_the_point_is_not_the_users_slip(tmp_path: Path) -> None:
    assert load_settings("sync_interval", ["offline=true"]).schedule.offline
    mine = tmp_path / "mine.toml"
    mine.write_text("[schedule]\noffline = true\nsync_interval = 20\n", encoding="utf-8")
    with pytest.raises(RatioscopeError, match=r"schedule.sync_interval has no effect with schedule.offline=true"):
        load_settings(str(mine))


def test_what_other_trainers_call_it_leads_to_a_setting_that_there_is() -> None:
    """Every dotted path that is named is one, and no name hides a setting of ours."""
    paths = set(settings())
    said = [*CALLED_HERE.values(), *LACKING.values()]
    named = {
        word.rstrip(",;").partition("=")[0]
        for text in said
        for word in text.split()
        if re.match(r"[a-z]+\.[a-z]", word)
    }
    assert named <= paths | {f"algorithm.{part}" for part in PARTS}
    ours = {path.rpartition(".")[2] for path in paths if not path.startswith("warm_start.")}
    assert CALLED_HERE.keys() & ours <= {"epsilon"}
    assert not LACKING.keys() & (ours | CALLED_HERE.keys())
    assert not {name for name in [*ALGORITHMS, *ALIASES] if elsewhere.algorithm(name)}


def test_a_device_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RatioscopeError, match="PyTorch finds no CUDA device here"):
        load_settings("on_policy", ["device=cuda"])


@pytest.mark.parametrize("overrides", [["algorithm=trpo", "epochs=2"], ["mixture=[0]"], ["epsilon_low=2"], ["actor=2"]])
def test_a_mistake_leaves_no_folder_and_loads_no_model(
    overrides: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RATIOSCOPE_CACHE", str(tmp_path / "cache"))
    arguments = ["train", "on_policy", *overrides, "--folder", str(tmp_path / "run"), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["ratioscope", *arguments])
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == cli.USAGE_ERROR
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=vanilla_pg", "samples_per_prompt=1"],
        ["algorithm=ppo", "samples_per_prompt=1"],
        ["algorithm=adaptive_clip", "epochs=1", "minibatches=2"],
        ["minibatches=3", "micro_batch=2"],
        ["switch_probability=0.5", "mixture=[0, 1]"],
        ["actors=2", "window=3", "epsilon_stale=0.5"],
        ["algorithm=rec_ring_is", "outer_low=0.2", "outer_high=0.2"],
        ["algorithm=asymre", "baseline_shift=-0.1"],
        ["algorithm=token_tis", "cap=1"],
        ["hidden_size=32", "heads=2"],
        ["algorithm=trpo", "gradient_checkpointing=true", "probe_every=5"],
    ],
    ids=" ".join,
)
def test_what_lies_on_the_bounds_is_accepted(overrides: list[str]) -> None:
    assert load_settings("on_policy", overrides)


def test_parts_are_exchanged_and_bring_their_usual_parameters() -> None:
    def used(*overrides: str) -> tuple[dict[str, str], dict[str, float]]:
        config = load_settings("sync_interval", overrides)
        return config.declared.parts(), config.parameters

    parts, parameters = used("gate=two_side", "weight=truncated", "cap=3", "advantage=leave_one_out")
    assert parts == ALGORITHMS["grpo"].parts() | {
        "gate": "two_side", "weight": "truncated", "advantage": "leave_one_out",
    }  # fmt: skip
    assert parameters == {"epsilon_low": 0.2, "epsilon_high": 0.2, "cap": 3}
    assert used("gate=none")[1] == {}
    # The default is that of the most similar algorithm, and where there is none, what the sliders start from.
    assert used("weight=truncated", "gate=none")[1] == {"cap": 2}
    assert used("weight=truncated", "gate=none", "level=sequence")[1] == {"cap": 5}
    assert used("algorithm=reinforce", "sample_weight=exponential")[1] == {"tau": 1}
    assert used("algorithm=reinforce", "regulariser=squared_log_ratio")[1] == {"tau": 0.1}
    assert used("gate=dual_clip")[1] == {"epsilon_low": 0.2, "epsilon_high": 0.2, "dual": 3}
    assert used("algorithm=reinforce", "advantage=gae")[1] == {"gamma": 1, "gae_lambda": 1, "value_coefficient": 0.5}
    assert used("algorithm=reinforce", "entropy_coefficient=0.1")[1] == {"entropy_coefficient": 0.1}


def test_every_part_of_every_row_is_a_setting_with_known_parameters() -> None:
    assert CHOICES.keys() == set(PARTS) <= AlgorithmChoice.model_fields.keys()
    for part, choices in CHOICES.items():
        for choice in choices:
            assert set(takes(part, choice)) <= ALGORITHM_PARAMETERS.keys()
            algorithm_of_parts("reinforce", ((part, choice),))  # every parameter that it needs has a default
    for algorithm in ALGORITHMS.values():
        assert algorithm_of_parts(algorithm.name) == algorithm, "a row has parameters that its parts do not take"


def test_a_run_with_other_parts_says_so() -> None:
    config = load_settings("sync_interval", ["gate=two_side", "weight=none", "epsilon_low=0.4"])
    assert config.run_name() == "sync_interval20-grpo_weight_none_two_side_0.4-seed0"
    assert manifest_fields(config)["algorithm"] == {
        "name": "grpo",
        "parts": config.declared.parts(),
        "parameters": {"epsilon_low": 0.4, "epsilon_high": 0.2, "epochs": 1, "minibatches": 1},
    }


@pytest.mark.parametrize("name", sorted(ALGORITHM_PARAMETERS))
def test_every_parameter_is_somebodys_and_its_defaults_are_allowed(name: str) -> None:
    owners = [algorithm for algorithm in ALGORITHMS.values() if name in algorithm.parameters]
    assert owners or name in floor.PARAMETERS  # a gate that no algorithm has is for the what-if analysis
    assert all(ALGORITHM_PARAMETERS[name].allows(algorithm.parameters[name]) for algorithm in owners)
    assert ALGORITHM_PARAMETERS[name].meaning and ALGORITHM_PARAMETERS[name].range


def test_a_part_takes_its_keyword_only_arguments() -> None:
    def part(a: int, *, epsilon_low: float, cap: float) -> None:
        """Has two parameters."""

    assert keywords_of(part) == ["epsilon_low", "cap"]
