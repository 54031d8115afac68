"""Presets against the packages as they are installed: a default that moved fails here, and their code decides."""

import math
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest
import torch

from ratioscope.analysis.frameworks import DIALECTS
from ratioscope.analysis.frameworks.definition import StepTokens
from ratioscope.analysis.frameworks.presets import PRESETS
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.what_if import Rule, Tokens, apply, tokens_of
from tests.making.installed import Source
from tests.oracles.what_if import random_columns

TOKENS = tokens_of(random_columns(3, groups=12, steps=1, spread=0.3))
# As above, with ratios so near to 1 that bounds of a thousandth keep some responses.
QUIET = tokens_of(random_columns(4, groups=30, steps=1, spread=0.003))
# As logged by one pass: pi_theta is pi_k.
FIRST = [
    tokens_of({**random_columns(5, groups=12, steps=1, spread=spread), "logp_gate": None})
    for spread in (0.003, 0.1, 0.3)
]


# The last releases for Python 3.11, which are installed there; what is held to are newer ones.
_OLDER = {"skyrl": "0.3.0"}


def rule(framework: str, start: str) -> Rule:
    """The rule of the one preset whose setting begins so."""
    of = [
        preset for preset in PRESETS if preset.framework is FRAMEWORKS[framework] and preset.setting.startswith(start)
    ]
    assert len(of) == 1 or len({str(preset.rule) for preset in of}) == 1, (framework, start, of)
    return of[0].rule


def band(low: float, high: float, level: str = "token", weight: str = "ratio", **others: Any) -> Rule:
    bounds = {"epsilon_low": round(1 - low, 12), "epsilon_high": round(high - 1, 12)}
    return Rule("two_side", bounds, weight, others.pop("parameters", {}), level, **others)


def truncated(cap: float, level: str = "token") -> Rule:
    return Rule("none", {}, "truncated", {"cap": cap}, weight_level=level)


def decoupled(epsilon: float, cap: float = 0.0) -> Rule:
    weight = "truncated_staleness" if cap else "incremental"
    return Rule("incremental", {"epsilon": epsilon}, weight, {"cap": cap} if cap else {})


def kept(low: float, high: float, level: str = "token", weight: str = "ratio") -> Rule:
    of = {"token": "", "sequence": "sequence_", "geometric": "geometric_"}[level]
    return Rule(f"{of}staleness_band", {"floor": low, "cap": high}, weight)


def clip(low: float, high: float, level: str = "token") -> Rule:
    return Rule("one_side", {"epsilon_low": low, "epsilon_high": high}, "ratio", {}, level, level)


def sapo(positive: float, negative: float) -> Rule:
    return Rule("soft", {"tau_positive": positive, "tau_negative": negative})


@pytest.mark.parametrize(
    ("framework", "package"),
    [("verl", "verl"), ("trl", "trl"), ("trinity_rft", "trinity_rft"), ("areal", "areal"), ("skyrl", "skyrl"),
     ("openrlhf", "openrlhf"), ("tinker", "tinker_cookbook")],
)  # fmt: skip
def test_the_release_is_the_one_that_is_named(framework: str, package: str) -> None:
    skip_another_release(framework, package)
    assert FRAMEWORKS[framework].version == version(package)


def skip_another_release(framework: str, package: str) -> None:
    """Skip where the package is not installed, or in the last release for an older Python."""
    try:
        installed = version(package)
    except ModuleNotFoundError:
        pytest.skip(f"{package} is not installed")
    if _OLDER.get(package) == installed:
        pytest.skip(f"{package} {installed} is installed, and presets are those of {FRAMEWORKS[framework].version}")


# verl ---------------------------------------------------------------------------------------------------------------


def corrections() -> Any:
    source = Source("verl", "trainer/config/algorithm.py")
    known = {"dataclass": dataclass, "BaseConfig": object, "Optional": Optional}
    return dataclass(source.run("RolloutCorrectionConfig", **known))


def helper_of_verl() -> dict[str, Any]:
    functions = Source("verl", "utils/torch_functional.py")
    total = functions.run("masked_sum", torch=torch)
    mean = functions.run("masked_mean", torch=torch, masked_sum=total)
    return Source("verl", "trainer/ppo/rollout_corr_helper.py").run_all(
        verl_F=SimpleNamespace(masked_sum=total, masked_mean=mean),
        **dict.fromkeys(("DataProto", "RolloutCorrectionConfig", "PolicyLossConfig"), object),
    )


def padded(tokens: Tokens, ratios: str = "behavior") -> tuple[torch.Tensor, torch.Tensor]:
    """Log-ratios and mask as (responses, longest): of pi_theta to behavior, or what else `LogRatios` has."""
    lengths = torch.bincount(tokens.sequence)
    mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    values = torch.zeros(mask.shape, dtype=torch.float64)
    values[mask] = getattr(tokens.level("token").ratios, ratios)
    return values, mask.double()


def test_every_method_of_verl_is_a_preset_that_does_what_their_code_does() -> None:
    config = corrections()
    methods = [name for name, member in vars(config).items() if isinstance(member, classmethod)]
    of_verl = {preset.setting: preset.rule for preset in PRESETS if preset.framework is FRAMEWORKS["verl"]}
    mine = {setting: rule for setting, rule in of_verl.items() if not setting.startswith("loss_mode=")}
    assert mine.keys() == set(methods) and len(methods) == 19
    helper = helper_of_verl()
    dropped = 0
    for name in methods:
        told = getattr(config, name)()
        # Its k3 and its weights of responses are of pi_k, those here of pi_theta: the same in the first pass.
        first = name.startswith("decoupled") and ("k3" in name or "seq" in name)
        for tokens in FIRST if first else (TOKENS, QUIET, *FIRST):
            theta, mask = padded(tokens)
            log_ratio = theta if told.bypass_mode else padded(tokens, "current")[0]
            keep, weights = mask, torch.ones_like(mask)
            if told.rollout_rs:
                keep, _ = helper["compute_rollout_rejection_mask"](
                    log_ratio, mask, told.rollout_rs, told.rollout_rs_threshold
                )
            if told.rollout_is:
                weights, _ = helper["compute_rollout_correction_weights"](
                    log_ratio, mask, told.rollout_is, told.rollout_is_threshold
                )
            if told.bypass_mode and told.loss_type == "ppo_clip":  # the clipped ratio is the weight
                weights = log_ratio.exp()
                keep = keep if told.rollout_rs else keep * dual_clipped(log_ratio, tokens, mask)
            if not told.bypass_mode:  # PPO on pi_theta / pi_k comes on top; a mask stands alone
                step = theta - log_ratio
                weights = weights * step.exp()
                if mine[name].gate == "incremental":
                    keep = keep * dual_clipped(step, tokens, mask, dual=1e9)
            expected = torch.where(tokens.signal, (weights * keep)[mask.bool()], 0.0)
            found = apply(mine[name], tokens)
            assert torch.allclose(found.applied, expected, rtol=1e-6), name
            dropped += int(((found.applied == 0) & tokens.signal).any())
    assert dropped > len(methods) / 2


def test_the_numbers_of_the_dialect_are_those_that_verl_computes() -> None:
    """All of `rollout_corr/`, with none left out, on the same log-probabilities."""
    helper, (log_ratio, mask) = helper_of_verl(), padded(TOKENS)
    behavior = torch.zeros_like(mask)
    behavior[mask.bool()] = TOKENS.logp_behavior.double()
    _, theirs = helper["compute_rollout_correction_weights"](log_ratio, mask, "token", 2.0)
    theirs |= helper["compute_offpolicy_metrics"](behavior + log_ratio, behavior, mask)
    plain = TOKENS.logp_behavior.double().numpy()
    current = plain + TOKENS.level("token").ratios.behavior.numpy()
    nothing = np.zeros(0)
    step = StepTokens(
        behavior=plain, current=current, recomputed=plain, gate=current, reference=plain, entropy=plain,
        advantage=plain, lag=plain,
        sequence=TOKENS.sequence.numpy(), reward=nothing, length=nothing, group=nothing.astype(np.int64),
    )  # fmt: skip
    dialect = DIALECTS["verl"]
    ours = {row.name.removeprefix("rollout_corr/"): row.compute(step, dialect.parameters) for row in dialect.rows
            if row.name.startswith("rollout_corr/")}  # fmt: skip
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, rel=1e-6)


def dual_clipped(
    log_ratio: torch.Tensor, tokens: Tokens, mask: torch.Tensor, dual: float | None = None
) -> torch.Tensor:
    """Where verl's vanilla loss has a gradient: by autograd of its formula, with the numbers of its actor."""
    actor = Source("verl", "workers/config/actor.py").fields("ActorConfig")
    logp, advantage = log_ratio.clone().requires_grad_(True), torch.zeros_like(mask)
    advantage[mask.bool()] = tokens.advantage.double()
    ratio = logp.exp()
    bounded = ratio.clamp(1 - actor["clip_ratio_low"], 1 + actor["clip_ratio_high"])
    once = torch.maximum(-advantage * ratio, -advantage * bounded)
    loss = torch.where(advantage < 0, torch.minimum(-advantage * (dual or actor["clip_ratio_c"]), once), once)
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    return ((gradient != 0) | (advantage == 0)).double()


# TRL ----------------------------------------------------------------------------------------------------------------


def test_the_defaults_of_trl_are_the_presets() -> None:
    config = Source("trl", "trainer/grpo_config.py").fields("GRPOConfig")
    assert config["vllm_importance_sampling_correction"] is True
    assert config["vllm_importance_sampling_mode"] == "sequence_mask"
    assert config["vllm_importance_sampling_clip_min"] is None and config["delta"] is None
    assert config["epsilon_high"] is None and config["loss_type"] == "dapo"
    assert config["off_policy_mask_threshold"] is None and config["importance_sampling_level"] == "token"
    cap, epsilon = config["vllm_importance_sampling_clip_max"], config["epsilon"]
    assert rule("trl", "sequence_mask") == Rule("masked", {"cap": cap}, "ratio", {}, "sequence", "sequence")
    assert rule("trl", "token_mask") == kept(0, cap)
    assert rule("trl", "sequence_truncate") == truncated(cap, "sequence")
    assert rule("trl", "token_truncate") == decoupled(epsilon, cap)
    assert rule("trl", "loss_type=dapo") == clip(epsilon, epsilon)
    assert rule("trl", "loss_type=luspo") == clip(epsilon, epsilon, "geometric")
    assert rule("trl", "loss_type=sapo") == sapo(config["sapo_temperature_pos"], config["sapo_temperature_neg"])
    numbers = {f"{ours}_{long}": config[f"vespo_{theirs}_{sign}"]
               for ours, theirs in (("power", "k"), ("decay", "lambda"))
               for long, sign in (("positive", "pos"), ("negative", "neg"))}  # fmt: skip
    assert rule("trl", "loss_type=vespo") == Rule("none", {}, "gamma_kernel", numbers, weight_level="sequence")


def test_vespo_and_off_policy_masks_are_those_of_trl() -> None:
    trainer = Source("trl", "trainer/grpo_trainer.py")
    log_ratio, mask = padded(TOKENS)
    advantage = torch.zeros_like(mask)
    advantage[mask.bool()] = TOKENS.advantage.double()
    of_response, places = advantage[:, :1], mask.bool()
    phi = trainer.run("GRPOTrainer", "get_gamma_weights", torch=torch, math=math)(of_response, log_ratio, mask, None)
    found = apply(rule("trl", "loss_type=vespo"), TOKENS)
    expected = torch.where(TOKENS.signal, phi.expand_as(mask)[places], 0.0)
    assert torch.allclose(found.applied, expected, rtol=1e-6) and float(expected.max() - expected.min()) > 0.05
    keep = trainer.run("GRPOTrainer", "get_off_policy_mask", torch=torch)(
        of_response, log_ratio, torch.zeros_like(log_ratio), mask, 0.02
    )
    masked = apply(rule("trl", "off_policy_mask").with_parameter("delta", 0.02), TOKENS).decision.value
    assert torch.equal(masked == 0, (keep.expand_as(mask)[places] == 0) & TOKENS.signal) and 0 < masked.mean() < 1


@pytest.mark.parametrize(
    ("framework", "package", "files"),
    [("trl", "trl", ["trainer/grpo_trainer.py"]),
     ("verl", "verl", ["trainer/ppo/rollout_corr_helper.py", "trainer/ppo/core_algos.py", "utils/debug/metrics.py",
                       "trainer/ppo/metric_utils.py", "workers/utils/losses.py", "trainer/ppo/ray_trainer.py"]),
     ("areal", "areal", ["trainer/ppo/actor.py"])],
)  # fmt: skip
def test_the_names_of_a_dialect_are_in_the_package(framework: str, package: str, files: list[str]) -> None:
    text = "".join(Source(package, file).text for file in files)
    for row in DIALECTS[framework].rows:
        name = row.name.removesuffix("/avg").removesuffix("/min").removesuffix("/max").split("/")[-1]
        assert name in text, row.name


# The others ---------------------------------------------------------------------------------------------------------


def test_the_defaults_of_trinity_are_the_presets() -> None:
    folder = "algorithm/policy_loss_fn/"
    ppo = Source("trinity", folder + "ppo_policy_loss.py").returned("PPOPolicyLossFn", "default_args")
    epsilons = {"epsilon_low": ppo["clip_range"], "epsilon_high": ppo["clip_range"]}
    assert rule("trinity_rft", "PPO, clip") == Rule("dual_clip", epsilons | {"dual": ppo["clip_ratio_c"]})
    assert not ppo["enable_sequence_masking"]
    masking = {"delta": ppo["delta_sequence_masking"]}
    assert rule("trinity_rft", "PPO sequence masking") == Rule("opposite_sign", masking)
    assert '"rollout_correction": cfg.algorithm.rollout_correction or {"bypass_mode": True}' in (
        Source("trinity", "trainer/verl/config.py").text
    )
    rec = Source("trinity", folder + "rec_policy_loss.py").returned("RECPolicyLossFn", "default_args")
    ring = {"epsilon_low": rec["epsilon_low"], "epsilon_high": rec["epsilon_high"],
            "outer_low": rec["epsilon_low_prime"], "outer_high": rec["epsilon_high_prime"]}  # fmt: skip
    assert rule("trinity_rft", "REC clip_mode=ring, weight=none") == Rule("ring", ring, "none")
    assert rule("trinity_rft", "REC clip_mode=one-side, weight=imp") == clip(rec["epsilon_low"], rec["epsilon_high"])
    gspo = Source("trinity", folder + "gspo_policy_loss.py").returned("GSPOLossFn", "default_args")
    assert rule("trinity_rft", "GSPO") == clip(gspo["clip_range_low"], gspo["clip_range_high"], "geometric")
    cispo = Source("trinity", folder + "cispo_policy_loss.py").returned("CISPOPolicyLossFn", "default_args")
    assert cispo["clip_range_low"] == 1 and not cispo["enable_mask_clip"]
    bound = {"epsilon_high": cispo["clip_range_high"]}
    assert rule("trinity_rft", "CISPO") == Rule("none", {}, "upper_clipped", bound)
    soft = Source("trinity", folder + "sapo_policy_loss.py").returned("SAPOPolicyLossFn", "default_args")
    assert rule("trinity_rft", "SAPO") == sapo(soft["tau_pos"], soft["tau_neg"])
    sppo = Source("trinity", folder + "sppo_loss_fn.py").returned("sPPOPolicyLossFn", "default_args")
    assert rule("trinity_rft", "sPPO") == band(1 / (1 + sppo["epsilon"]), 1 + sppo["epsilon"], weight="none")


def test_the_defaults_of_skyrl_are_the_presets() -> None:
    skip_another_release("skyrl", "skyrl")
    source = Source("skyrl", "train/config/config.py")
    correction, algorithm = source.fields("OffPolicyCorrectionConfig"), source.fields("AlgorithmConfig")
    assert correction["tis_ratio_type"] is None and correction["sequence_mask_metric"] is None
    assert algorithm["policy_loss_type"] == "regular"
    assert algorithm["eps_clip_low"] == algorithm["eps_clip_high"]
    epsilon = algorithm["eps_clip_low"]
    assert rule("skyrl", "tis_ratio_type=token") == decoupled(epsilon, correction["token_tis_ratio_clip_high"])
    assert rule("skyrl", "tis_ratio_type=sequence") == truncated(correction["sequence_tis_ratio_clip_high"], "sequence")
    for metric, start, level in (("geo", "geometric", "geometric"), ("product", "product", "sequence")):
        low, high = correction[f"{metric}_mask_low"], correction[f"{metric}_mask_high"]
        assert rule("skyrl", f"sequence mask {start}") == kept(low, high, level, "incremental")
    assert rule("skyrl", "policy_loss_type=regular") == decoupled(epsilon)
    assert rule("skyrl", "policy_loss_type=rollout_is") == band(1 - epsilon, 1 + epsilon)
    dppo, cispo, soft = (source.fields(name) for name in ("DPPOConfig", "CISPOConfig", "SAPOConfig"))
    deltas = {"difference_low": dppo["delta_low"], "difference_high": dppo["delta_high"]}
    assert dppo["dppo_type"] == "binary_tv"
    assert rule("skyrl", "policy_loss_type=dppo") == Rule("probability_difference", deltas)
    assert cispo["cispo_eps_clip_low"] == 1 and cispo["cispo_anchor"] == "old"
    upper = {"epsilon_high": cispo["cispo_eps_clip_high"]}
    assert rule("skyrl", "policy_loss_type=cispo") == Rule("none", {}, "upper_clipped", upper)
    assert rule("skyrl", "policy_loss_type=sapo") == sapo(soft["tau_pos"], soft["tau_neg"])


def test_the_defaults_of_areal_are_the_presets() -> None:
    source = Source("areal", "api/cli_args.py")
    actor, rejection = source.fields("PPOActorConfig"), source.fields("RejectionSamplingConfig")
    off = ("use_decoupled_loss", "recompute_logprob", "use_sapo_loss", "rejection_sampling", "c_clip", "m2_threshold")
    assert not any(actor[name] for name in off) and actor["importance_sampling_level"] == "token"
    assert rule("areal", "eps_clip") == clip(actor["eps_clip"], actor["eps_clip"])
    assert rule("areal", "use_decoupled_loss") == Rule("incremental", {"epsilon": actor["eps_clip"]})
    assert rule("areal", "use_sapo_loss") == sapo(actor["sapo_tau_pos"], actor["sapo_tau_neg"])
    assert (rejection["level"], rejection["action"], rejection["metric"]) == ("token", "mask", "ratio")
    cap = {"cap": rejection["upper"]}
    assert rejection["lower"] is None and rejection["agg"] == "mean"
    assert rule("areal", "rejection_sampling token, mask") == kept(0, rejection["upper"])
    assert rule("areal", "rejection_sampling token, clamp") == decoupled(actor["eps_clip"], rejection["upper"])
    of_response = Rule("masked", cap, "ratio", {}, "geometric", "geometric")
    assert rule("areal", "rejection_sampling sequence, mask") == of_response
    assert rule("areal", "rejection_sampling sequence, clamp") == truncated(rejection["upper"], "geometric")


def test_the_defaults_of_openrlhf_are_the_presets() -> None:
    options = Source("openrlhf", "cli/train_ppo_ray.py")
    assert options.option("--algo.advantage.is_correction_level") == "off"
    assert options.option("--algo.advantage.is_correction_gating") == "ratio"
    low, high = options.option("--algo.advantage.is_correction_threshold")
    assert Source("openrlhf", "models/loss.py").arguments("PolicyLoss", "__init__")["is_correction_threshold"] == (
        low, high,
    )  # fmt: skip
    assert rule("openrlhf", "TIS") == Rule("none", {}, "clamped", {"floor": low, "cap": high})
    assert rule("openrlhf", "ICEPOP") == kept(low, high)
    assert rule("openrlhf", "seq-mask-tis") == kept(low, high, "geometric")


def test_the_default_of_tinker_is_the_preset() -> None:
    config = Source("tinker_cookbook", "rl/train.py").fields("Config")
    default = [preset for preset in PRESETS if preset.framework is FRAMEWORKS["tinker"] and preset.default]
    assert [preset.setting for preset in default] == [config["loss_fn"]] and config["loss_fn_config"] is None
