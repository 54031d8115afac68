"""RL frameworks: what was read of each, and the defaults that their presets and their dialect share."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Framework:
    """What was read of a framework."""

    title: str
    repository: str
    version: str
    """The release, or the snapshot of a repository."""
    files: str
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Values that its presets and its dialect (`analysis.frameworks`) share, by the framework's names."""

    @property
    def source(self) -> str:
        return f"{self.repository} {self.version}, {self.files}"


# Releases are those whose defaults tests/analysis/frameworks/test_defaults.py compares where they are installed; the
# snapshots are of August 2026, if nothing else is said.
FRAMEWORKS: dict[str, Framework] = {
    "verl": Framework(
        "verl", "verl-project/verl", "0.9.1",
        "trainer/config/algorithm.py, trainer/ppo/rollout_corr_helper.py, core_algos.py, workers/config/actor.py, "
        "utils/debug/metrics.py",
        {"rollout_is_threshold": 2.0, "clip_ratio": 0.2, "clip_ratio_c": 3.0},
    ),
    "trl": Framework(
        "TRL", "huggingface/trl", "1.16.0", "trainer/grpo_config.py, trainer/grpo_trainer.py",
        {"clip_max": 3.0, "epsilon": 0.2},
    ),
    "trinity_rft": Framework(
        "Trinity-RFT", "agentscope-ai/Trinity-RFT", "0.6.0",
        "algorithm/policy_loss_fn, trainer/verl/config.py; S3 4.1 and B.3",
    ),
    "areal": Framework(
        "AReaL", "areal-project/AReaL", "1.0.4",
        "api/cli_args.py, trainer/ppo/actor.py, utils/functional/functional.py",
        {"eps_clip": 0.2},
    ),
    "slime": Framework("slime", "THUDM/slime", "624b824a8 (0.3.1)", "utils/arguments.py, megatron_utils/loss.py"),
    "miles": Framework(
        "miles", "radixark/miles", "31f1ca961", "utils/arguments.py, training_utils/loss_hub/corrections.py"
    ),
    "prime_rl": Framework(
        "prime-rl", "PrimeIntellect-ai/prime-rl", "349283db (September 2026)",
        "trainer/rl/loss.py, trainer/rl/train.py, configs/trainer.py and configs/orchestrator.py",
        {"eps": 0.3},
    ),
    "skyrl": Framework(
        "SkyRL", "NovaSky-AI/SkyRL", "0.4.0",
        "train/config/config.py, skyrl_train/utils/off_policy_correction_utils.py and ppo_utils.py",
    ),
    "nemo_rl": Framework(
        "NeMo-RL", "NVIDIA-NeMo/RL", "7ea279ab (0.6.0)", "nemo_rl/algorithms/loss/loss_functions.py",
        {"ratio_clip_min": 0.2, "ratio_clip_max": 0.2},
    ),
    "open_instruct": Framework("open-instruct", "allenai/open-instruct", "e6c3044a", "grpo_utils.py"),
    "openrlhf": Framework("OpenRLHF", "OpenRLHF/OpenRLHF", "0.11.2", "models/loss.py, cli/train_ppo_ray.py"),
    "tinker": Framework(
        "tinker", "thinking-machines-lab/tinker-cookbook", "0.6.1", "rl/train.py; Tinker's page on loss functions"
    ),
    "roll": Framework("ROLL", "alibaba/ROLL", "8eb27cc2 (0.3.0)", "configs/base_config.py"),
}  # fmt: skip
