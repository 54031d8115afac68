"""A setting that somebody gives changes what is recorded, or is refused: for the algorithm that takes fewest."""

from pathlib import Path

from ratioscope import RatioscopeError
from ratioscope.run_format import schema
from ratioscope.trainer.settings.table import PARAMETERS, settings
from tests.making.training import small, table, train

BASE = ("algorithm=trpo", "sync_interval=2", "updates=3", "evaluate_every=2", "logging.exact=false")
OTHER = {
    "updates": 2, "seed": 1, "evaluate_every": 1,
    "algorithm.name": "reinforce", "algorithm.parameters.max_kl": 0.001, "algorithm.advantage": "group_normalised",
    "algorithm.selection": "balanced", "algorithm.sample_weight": "exponential", "algorithm.level": "sequence",
    "algorithm.weight": "none", "algorithm.gate": "two_side", "algorithm.filter": "opposite_sign",
    "algorithm.aggregation": "sequence_mean", "algorithm.regulariser": "squared_log_ratio", "algorithm.step": "adamw",
    "algorithm.epochs": 2, "algorithm.minibatches": 2, "algorithm.reference_kl": 0.3,
    "algorithm.reference_kl_estimator": "k3", "algorithm.parameters.entropy_coefficient": 0.5,
    "algorithm.parameters.overlong_fraction": 0.9,
    "schedule.sync_interval": 3, "schedule.sync_offset": 1, "schedule.offline": "true", "schedule.mixture": "[1, 1]",
    "schedule.mixture_unit": "response", "schedule.switch_probability": 0.5, "schedule.segment_length": 2,
    "schedule.workers": 2, "schedule.expert_share": 0.25, "schedule.expert_file": "mine.jsonl",
    "schedule.epsilon_stale": 0.01, "schedule.window": 1,
    "sampler.prompts": 4, "sampler.samples_per_prompt": 6, "sampler.temperature": 1.3, "sampler.top_k": 5,
    "sampler.top_p": 0.8, "sampler.smoothing": 0.3, "sampler.dtype": "int8",
    "model.chat_template": "false", "model.dtype": "bfloat16",
    "task.size": 1000, "task.seed": 3, "task.response_length": 5, "task.options.min_terms": 3,
    "optimiser.learning_rate": 0.01, "optimiser.beta1": 0.5, "optimiser.beta2": 0.9, "optimiser.weight_decay": 5,
    "optimiser.max_grad_norm": 0.01, "optimiser.warmup_updates": 5, "optimiser.micro_batch": 2,
    "optimiser.gradient_checkpointing": "true",
    "logging.exact": "true", "logging.noise_floor_every": 1, "logging.held_out_groups": 2, "logging.probe_every": 2,
    "logging.probe_batches": 3,
}  # fmt: skip
# What is not in the tables, or is what another start or another process makes (`test_warm_start`, `test_actors`).
ELSEWHERE = {"name", "notes", "tags", "pace", "checkpoint_every", "deterministic", "schedule.actors"}
STARTS = ("warm_start.", "model.", "task.")


def test_every_setting_has_an_effect_or_is_refused(tmp_path: Path) -> None:
    tried = {"algorithm.parameters", "task.options", *OTHER}
    paths = [path for path in settings() if not path.startswith((*STARTS, f"{PARAMETERS}."))]
    assert {path for path in paths if path not in tried} == ELSEWHERE

    def recorded(*overrides: str) -> str:
        config = small(*BASE, *overrides)
        folder = train(config, tmp_path / str(len([*tmp_path.iterdir()]))).folder
        tables = [name for name in (*schema.TABLES, "probes") if [*(folder / name).glob("*.parquet")]]
        return repr([table(folder, name).to_pydict() for name in tables])

    usual, without_effect, refused = recorded(), [], set()
    for path, value in OTHER.items():
        try:
            if recorded(f"{path}={value}") == usual:
                without_effect.append(path)
        except RatioscopeError as error:
            assert path in str(error) or path.rpartition(".")[2] in str(error)
            refused.add(path)
    assert not without_effect
    assert {path for path in OTHER if path.startswith("optimiser.")} <= refused
    assert not {path for path in OTHER if path.startswith("sampler.")} & refused
