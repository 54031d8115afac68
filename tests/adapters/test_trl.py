"""A real GRPOTrainer, tiny and on the CPU: what the recorder wrote is what the trainer did, and what TRL says of it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import Qwen2ForCausalLM

from ratioscope.adapters.trl.responses import prompt_id
from ratioscope.analysis.frameworks import theirs
from ratioscope.analysis.linter import lint
from ratioscope.analysis.runs.store import open_run
from tests.adapters.trl_training import (
    GROUP,
    LONGEST,
    LOSSES,
    REUSE,
    ROWS,
    WORDS,
    Recorded,
    policy,
    recorded,
    score,
    trainer,
)
from tests.making import language_model

# Not imported before a test needs it: that takes a second, and every process collects this file.
if TYPE_CHECKING:
    from trl import GRPOTrainer


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_recorded_as_trl_computed_it(name: str, tmp_path: Path) -> None:
    """Its clip fractions, its entropy, its loss; and the gradient is that of the rule that the manifest states."""
    found = recorded(tmp_path, trainer(tmp_path, **REUSE, **LOSSES[name]))
    tokens, steps = found.tokens, found.steps
    assert found.manifest.algorithm["name"] == name and found.manifest.status == "finished"
    np.testing.assert_allclose(steps["loss"], found.losses, atol=1e-6)
    by_step = tokens.groupby("step")
    np.testing.assert_allclose(by_step["entropy"].mean(), steps["extra_entropy"], rtol=1e-5)

    ratio = np.exp(tokens["logp_current"].astype(float) - tokens["logp_behavior_train"])
    if LOSSES[name].get("importance_sampling_level") == "sequence":
        # TRL counts responses there, each once.
        each = tokens.drop_duplicates(["step", "seq_id"])
        ratio = np.exp(np.log(ratio).groupby([tokens["step"], tokens["seq_id"]]).transform("mean"))
    else:
        each = tokens
    if "extra_clip_ratio_region_mean" in steps:
        bad = each["advantage"] < 0
        # Their second bound (delta) stops tokens that their clip fractions do not count.
        usual = each["clip_side"].where(~(bad & (each["clip_side"] > 0)), 0)
        for side, column in ((usual < 0, "low"), (usual > 0, "high"), (usual != 0, "region")):
            np.testing.assert_allclose(
                side.groupby(each["step"]).mean(), steps[f"extra_clip_ratio_{column}_mean"], atol=1e-5
            )
        assert steps["extra_clip_ratio_region_mean"].max() > 0.05
    if name == "dapo":
        assert (bad & (each["clip_side"] > 0)).any()
    if name == "cispo":
        over = (ratio > 1.5) & (tokens["advantage"] > 0)
        np.testing.assert_allclose(over.groupby(tokens["step"]).mean(), steps["extra_cispo_clip_ratio"], atol=1e-5)
    if name == "vespo":
        product = np.log(ratio).groupby([tokens["step"], tokens["seq_id"]]).sum().clip(-18.42, 20)
        up = tokens.groupby(["step", "seq_id"])["advantage"].first() >= 0
        k, decay = np.where(up, 2, 3), np.where(up, 3, 2)
        phi = np.exp(decay + k * product - decay * np.exp(product))
        np.testing.assert_allclose(phi.groupby("step").mean(), steps["extra_vespo_phi_seq_mean"], rtol=1e-4)

    kept = tokens["gradient_weight"] != 0
    # Soft weights underflow far from 1, which stops nothing in name.
    if name not in ("sapo", "vespo"):
        assert (kept == ~tokens["clipped"] & (tokens["advantage"] != 0)).all()
    if name in ("grpo", "bnpo", "dr_grpo", "dapo", "sapo", "cispo"):
        weight = np.minimum(ratio, 1.5) if name == "cispo" else ratio
        expected = (tokens["advantage"] * weight * tokens["gate"]).where(~tokens["clipped"])
        if name in ("grpo", "sapo"):
            expected /= tokens.groupby(["step", "seq_id"])["position"].transform("size")
        scale = {"dr_grpo": ROWS * LONGEST, "grpo": ROWS, "sapo": ROWS}.get(name)
        factor = (expected[kept] / tokens["gradient_weight"][kept]).groupby(tokens["step"][kept])
        assert (factor.std() < 1e-3 * factor.mean()).all()
        if scale is not None:
            np.testing.assert_allclose(factor.mean(), scale, rtol=1e-4)


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two generations, each trained on in two iterations of two steps; the batch is scored again after every update."""
    folder = tmp_path_factory.mktemp("reused")
    return recorded(folder, trainer(folder, max_steps=8, **REUSE), new=True, task={"name": "sums"})


def test_groups_and_texts_survive_the_shuffle(reused: Recorded) -> None:
    sequences, tokens = reused.sequences, reused.tokens
    assert (sequences.groupby("group_id")["prompt"].nunique() == 1).all()
    assert (sequences["prompt_id"] == sequences["prompt"].map(prompt_id)).all()
    once = sequences.drop_duplicates("seq_id")
    assert (once.groupby("group_id").size() == GROUP).all() and len(once) == 2 * 2 * ROWS
    np.testing.assert_allclose(sequences["reward_right"], sequences["response"].map(score))
    assert sequences["reward_short"].isna().any() and sequences["reward_short"].notna().any()
    np.testing.assert_allclose(
        sequences["reward"], sequences["reward_right"] + sequences["reward_short"].fillna(0), rtol=1e-6
    )
    words = language_model.tokenizer(WORDS)
    for (step, seq_id), rows in tokens.groupby(["step", "seq_id"]):
        (of,) = sequences[(sequences["step"] == step) & (sequences["seq_id"] == seq_id)].itertuples()
        assert words.decode(rows["token_id"].tolist(), skip_special_tokens=True) == of.response
        assert of.prompt_tokens == len(words(of.prompt)["input_ids"])
        assert of.n_tokens == len(rows) and rows["position"].tolist() == list(range(len(rows)))
        # As for TRL, padding ends a response, too.
        assert (of.finish_reason == "stop") == (rows["token_id"].iloc[-1] in (0, 1)) == (not of.truncated)
    advantage = once.set_index("seq_id")["reward"].groupby(once.set_index("seq_id")["group_id"])
    expected = (advantage.transform(lambda r: (r - r.mean()) / (r.std() + 1e-4))).rename("expected")
    logged = tokens.merge(expected, left_on="seq_id", right_index=True)
    np.testing.assert_allclose(logged["advantage"], logged["expected"], rtol=1e-4, atol=1e-5)


def test_versions_count_updates_and_reuse_makes_data_stale(reused: Recorded) -> None:
    tokens, steps = reused.tokens, reused.steps
    assert steps.index.tolist() == steps["policy_version"].tolist() == list(range(8))
    assert (tokens["behavior_version"] == tokens["step"] // 4 * 4).all()
    lag = tokens["step"] - tokens["behavior_version"]
    assert sorted(lag.unique()) == [0, 1, 2, 3]
    apart = (tokens["logp_current"] - tokens["logp_behavior_train"]).abs()
    # Batches of another size round otherwise.
    assert apart[lag == 0].max() < 1e-5 < apart[lag > 0].median()
    assert "logp_behavior" not in tokens and "logp_gate" not in tokens
    # What follows from an update is the next one's start, where the same response comes again.
    key = ["seq_id", "position"]
    first, again = (tokens[tokens["step"] == step].set_index(key) for step in (1, 3))
    assert (first.index == again.index).all()
    assert (first["logp_new"] - again["logp_current"]).abs().median() < (
        first["logp_current"] - again["logp_current"]
    ).abs().median()
    assert reused.manifest.schedule["sync_interval"] == 4 and reused.manifest.task["name"] == "sums"
    assert steps[["grad_norm", "learning_rate", "seconds_training"]].notna().all(axis=None)
    assert (steps["seconds_sampling"] > 0).tolist() == [True, False, False, False] * 2


def test_the_dialect_gives_from_the_files_what_trl_logged(reused: Recorded) -> None:
    """Its clip ratios are to the policy at generation, which is older than the update."""
    found = theirs(open_run(reused.folder), "trl").pivot(index="step", columns="name", values="value")
    for name in ("low_mean", "high_mean", "region_mean", "low_min", "high_max"):
        np.testing.assert_allclose(found[f"clip_ratio/{name}"], reused.steps[f"extra_clip_ratio_{name}"], atol=1e-5)
    np.testing.assert_allclose(found["entropy"], reused.steps["extra_entropy"], rtol=1e-5)
    assert found["clip_ratio/region_mean"].max() > 0.05
    # Nobody knows what the sampler drew with.
    assert found["sampling/sampling_logp_difference/mean"].isna().all()


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "sapo", "vespo", "rloo"])
def test_with_accumulation_the_dialect_gives_what_trl_logged(name: str, tmp_path: Path) -> None:
    """TRL logs the mean of the micro-batches' values, extremes among them, and other names with other losses."""
    settings = {"gradient_accumulation_steps": 4, "steps_per_generation": 4, "num_iterations": 2}
    settings |= LOSSES.get(name, {"kind": "RLOO", "epsilon": 0.05})
    if name == "rloo":  # which loads the model again by its name
        policy().save_pretrained(tmp_path / "model")
        settings["model"] = Qwen2ForCausalLM.from_pretrained(tmp_path / "model")
    made = trainer(tmp_path, per_device_train_batch_size=ROWS // 2, **settings)
    found = recorded(tmp_path, made)
    run = open_run(found.folder)
    assert run.manifest.schedule["processes"] == run.manifest.schedule["processes_recorded"] == 1
    assert found.sequences.groupby(["step", "micro_batch"]).size().tolist() == [ROWS // 2] * 4 * 6
    frame = theirs(run, "trl")
    seen = set()
    for row in frame.itertuples():
        column = f"extra_{re.sub('[^A-Za-z0-9_]+', '_', row.name)}"
        if row.note == f"the loss {'grpo' if name == 'gspo' else name} does not log it so":
            assert column not in found.steps or (name, row.name) == ("rloo", "kl")  # which is another one
        elif column in found.steps and np.isfinite([row.value, found.steps.loc[row.step, column]]).all():
            assert row.value == pytest.approx(found.steps.loc[row.step, column], abs=2e-5), (row.step, row.name)
            seen |= {row.name}
    clips = {f"clip_ratio/{each}" for each in ("low_mean", "high_mean", "region_mean", "low_min", "high_max")}
    others = {"cispo": {"cispo_clip_ratio"}, "sapo": set(), "vespo": {"vespo/phi_seq_mean"}}
    expected = others.get(name, clips)
    assert seen == expected | {"entropy", "frac_reward_zero_std", "completions/mean_length"}


def test_the_run_is_what_it_claims_to_be(reused: Recorded) -> None:
    """But for `short`, which has no word on the long ones of a group: TRL counts that as 0, and so as the best."""
    (problem,) = [remark for remark in lint(open_run(reused.folder)) if remark.is_problem]
    assert problem.rule == "rewards" and problem.columns == ("reward_short",) and "counts as 0" in problem.sentence


def test_one_step_is_one_optimizer_step(tmp_path: Path) -> None:
    """Over gradient accumulation; and where no weight changes after sampling, the pass is the recomputation."""
    made = trainer(tmp_path, gradient_accumulation_steps=2, steps_per_generation=2, max_steps=2)
    found = recorded(tmp_path, made)
    assert found.sequences.groupby("step").size().tolist() == [2 * ROWS, 2 * ROWS]
    assert (found.tokens["behavior_version"] == found.tokens["step"]).all()
    assert (found.tokens["logp_behavior_train"] == found.tokens["logp_current"]).all()
    assert any("the loss's own pass" in sentence for sentence in found.manifest.assumed)
    np.testing.assert_allclose(found.steps["loss"], found.losses, atol=1e-6)


def test_a_response_that_a_step_has_twice_is_one_of_double_weight(tmp_path: Path) -> None:
    made = trainer(tmp_path, gradient_accumulation_steps=2, steps_per_generation=1, num_iterations=2, max_steps=2)
    found = recorded(tmp_path, made)
    assert found.sequences.groupby("step").size().tolist() == [ROWS, ROWS]
    assert (found.sequences["sample_weight"] == 2).all()


def test_masks_are_said_and_their_tokens_stay(tmp_path: Path) -> None:
    made = trainer(
        tmp_path, **REUSE, mask_truncated_completions=True, top_entropy_quantile=0.5, off_policy_mask_threshold=0.05
    )
    found = recorded(tmp_path, made, new=3)
    tokens, sequences = found.tokens, found.sequences
    assert {*tokens["rejected"].dropna()} == {"truncated", "low entropy", "off-policy sequence mask"}
    assert (tokens["gradient_weight"][tokens["rejected"].notna()].fillna(0) == 0).all()
    cut = tokens["rejected"] == "truncated"
    # TRL's pass does not see them: their log-probabilities are placeholders.
    assert tokens.loc[cut, ["logp_current", "logp_behavior_train", "entropy", "gate"]].isna().all(axis=None)
    assert tokens.loc[cut, ["token_id", "advantage"]].notna().all(axis=None)
    assert (sequences["dropped"].eq("truncated") == sequences["truncated"]).all() and sequences["truncated"].any()
    assert tokens[~cut].groupby("step")["logp_new"].count().gt(0).tolist() == [True, False, False] * 2


def test_the_reference_and_their_kl(tmp_path: Path) -> None:
    policy().save_pretrained(tmp_path / "model")
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "model")
    found = recorded(tmp_path, trainer(tmp_path, model=model, beta=0.1, **REUSE))
    difference = (found.tokens["logp_reference"] - found.tokens["logp_current"]).astype(float)
    ratio = np.exp((found.tokens["logp_current"] - found.tokens["logp_behavior_train"]).astype(float))
    kl = (ratio * (np.exp(difference) - difference - 1)).groupby(found.tokens["step"]).mean()
    np.testing.assert_allclose(kl, found.steps["extra_kl"], rtol=1e-4, atol=1e-6)
    # Corrected for who sampled, which is their default: the gradient is that of k2.
    assert found.manifest.algorithm["parameters"]["reference_kl"] == 0.1
    assert found.manifest.algorithm["parameters"]["reference_kl_estimator"] == "k2"


class Engine:
    """A sampler in bfloat16 with its own copy of the weights, in the place of vLLM; tools speak after three tokens."""

    TOOL = (10, 11)

    def __init__(self, *, tools: bool) -> None:
        self.tools, self.model = tools, None
        self.generator = torch.Generator().manual_seed(0)

    def sync_weights(self) -> None:
        self.model = None

    def __call__(self, prompts: list[str], made: "GRPOTrainer") -> dict[str, Any]:
        if self.model is None:
            self.model = policy().to(torch.bfloat16)
            self.model.load_state_dict(made.model.state_dict())
        asked = [made.processing_class(prompt)["input_ids"] for prompt in prompts]
        answers = [self.answer(ids) for ids in asked]
        said = {
            "prompt_ids": asked,
            "completion_ids": [[token for token, _, _ in answer] for answer in answers],
            "logprobs": [[logp for _, logp, _ in answer] for answer in answers],
        }
        return said | ({"env_mask": [[own for _, _, own in answer] for answer in answers]} if self.tools else {})

    @torch.no_grad()
    def answer(self, prompt: list[int]) -> list[tuple[int, float | None, int]]:
        said: list[tuple[int, float | None, int]] = []
        while len(said) < LONGEST and not (said and said[-1][0] == 1):
            if self.tools and len(said) == 3:
                said += [(token, 0.0, 0) for token in self.TOOL]
            ids = torch.tensor([prompt + [token for token, _, _ in said]])
            logits = self.model(ids).logits[0, -1].float().log_softmax(-1)
            token = int(torch.multinomial(logits.exp(), 1, generator=self.generator))
            # The server is silent on one token: TRL makes a NaN of it.
            said.append((token, None if token == 7 else float(logits[token]), 1))
        return said


@pytest.mark.parametrize("mode", ["token_truncate", "sequence_mask"])
def test_a_sampler_with_log_probabilities(mode: str, tmp_path: Path) -> None:
    """TRL's whole path of vLLM, with another engine behind it: its statistics of the sampler come out of the files."""
    engine = Engine(tools=False)
    made = trainer(
        tmp_path,
        rollout_func=engine,
        **REUSE,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_max=1.001,
    )
    made.use_vllm, made.vllm_generation, made._last_loaded_step = True, engine, -1
    found = recorded(tmp_path, made)
    tokens = found.tokens
    assert (tokens["logp_behavior"].isna() == (tokens["token_id"] == 7)).all()
    fresh = tokens[tokens["step"].isin([0, 1])]  # the first generation, once
    apart = (fresh["logp_behavior_train"] - fresh["logp_behavior"]).dropna().abs()
    first = found.steps.loc[0]
    assert apart.mean() == pytest.approx(first["extra_sampling_sampling_logp_difference_mean"], rel=1e-4)
    assert apart.max() == pytest.approx(first["extra_sampling_sampling_logp_difference_max"], rel=1e-4)
    log_ratio = (fresh["logp_behavior_train"] - fresh["logp_behavior"]).astype(float).fillna(0)
    if mode == "sequence_mask":
        ratio = np.exp(log_ratio.groupby(fresh["seq_id"]).sum())
        ratio = ratio.where(ratio <= 1.001, 0)
        assert {*tokens["rejected"].dropna()} == {"importance sampling mask"}
        assert (tokens["gradient_weight"][tokens["rejected"].notna()] == 0).all()
    else:
        ratio = np.minimum(np.exp(log_ratio), 1.001)
        assert "rejected" not in tokens
    assert ratio.mean() == pytest.approx(first["extra_sampling_importance_sampling_ratio_mean"], rel=1e-4)
    assert "logp_behavior" not in found.manifest.missing
    assert found.manifest.algorithm["parts"]["gate"] == "one_side_on_recomputed"


def test_tokens_of_tools_are_no_rows(tmp_path: Path) -> None:
    found = recorded(tmp_path, trainer(tmp_path, rollout_func=Engine(tools=True), **REUSE))
    tokens, sequences = found.tokens, found.sequences
    assert tokens.groupby(["step", "seq_id"])["position"].apply(lambda p: p.tolist() == list(range(len(p)))).all()
    assert (tokens.groupby(["step", "seq_id"]).size() == sequences.set_index(["step", "seq_id"])["n_tokens"]).all()
    long = sequences["n_tokens"] > 3
    assert long.any() and sequences["n_tokens"].max() <= LONGEST - len(Engine.TOOL) + 1
    assert sequences["response"][long].str.split().str[3:5].map(lambda w: w == ["8", "9"]).mean() > 0.3
    # Their placeholder would be a log-probability of 0.
    assert tokens["logp_behavior"].dropna().max() < 0
    apart = (tokens["logp_behavior"] - tokens["logp_behavior_train"])[tokens["step"] == tokens["behavior_version"]]
    assert apart.abs().median() < 0.05
    # What the policy and the environment said in turn, by the mask that the rollout_func returned.
    messages = pq.read_table(tmp_path / "run" / "messages").to_pandas()
    of = ["step", "seq_id"]
    told = messages.merge(sequences[[*of, "prompt", "n_tokens"]], on=of, suffixes=("", "_"))
    roles = told.sort_values("turn").groupby(of)["role"].agg(list)
    assert {tuple(said) for said in roles} == {("user", "assistant", "tool", "assistant")}
    assert len(roles) == (sequences["n_tool_calls"] == 1).sum() == long.sum()
    assert (told["content"] == told["prompt"])[told["role"] == "user"].all()
    assert (told["content"] == "8 9")[told["role"] == "tool"].all()
    own = told[told["role"] == "assistant"]
    assert (
        own.groupby(["step", "seq_id"])["n_tokens"].sum() == own.groupby(["step", "seq_id"])["n_tokens_"].first()
    ).all()
    assert {*tokens["turn"].dropna()} == {1, 3}
    last = own[own["turn"] == 3]
    assert (last["first_position"] == 3).all()


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_rloo_is_recorded_as_trl_computed_it(beta: float, tmp_path: Path) -> None:
    """Its ratio is of whole responses, and its loss is given their sums only."""
    policy().save_pretrained(tmp_path / "model")
    model = Qwen2ForCausalLM.from_pretrained(tmp_path / "model")
    made = trainer(tmp_path, model=model, kind="RLOO", beta=beta, epsilon=0.05, **REUSE)
    found = recorded(tmp_path, made)
    tokens, steps = found.tokens, found.steps
    of = [tokens["step"], tokens["seq_id"]]
    log_ratio = (tokens["logp_current"] - tokens["logp_behavior_train"]).astype(float)
    ratio = np.exp(log_ratio.groupby(of).transform("sum"))
    each = tokens.drop_duplicates(["step", "seq_id"])
    assert found.manifest.algorithm["name"] == "rloo" and found.manifest.algorithm["parts"]["level"] == "sequence"
    np.testing.assert_allclose(
        each["clipped"].groupby(each["step"]).mean(), steps["extra_clip_ratio_region_mean"], atol=1e-6
    )
    assert steps["extra_clip_ratio_region_mean"].max() > 0.05
    np.testing.assert_allclose(steps["loss"], found.losses, atol=1e-6)
    np.testing.assert_allclose(tokens.groupby("step")["entropy"].mean(), steps["extra_entropy"], rtol=1e-5)
    expected = (tokens["advantage"] * ratio / ROWS).where(~tokens["clipped"], 0)
    np.testing.assert_allclose(tokens["gradient_weight"], expected, rtol=1e-3, atol=1e-7)
    assert ("logp_reference" in tokens) == (beta > 0)
    if beta:  # in their reward, and so in the advantage
        first = tokens[tokens["step"] == 0]
        kl = (first["logp_behavior_train"] - first["logp_reference"]).mean()
        assert kl == pytest.approx(steps.loc[0, "extra_kl"], abs=1e-6)
        assert found.manifest.algorithm["parameters"]["kl_in_reward"] == beta
    else:
        assert not [remark for remark in lint(open_run(found.folder)) if remark.is_problem and remark.rule != "rewards"]
