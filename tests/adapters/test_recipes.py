"""The code of docs/recording.md, as it stands there."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from ratioscope import RunRecorder
from ratioscope.dashboard.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"


def code(section: str) -> str:
    """The Python of a section."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(block)


def function(section: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code(section), names)
    return names


def test_any_loop_makes_a_run_that_can_be_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(code("Any loop"), {})
    tokens = pd.read_parquet("runs/plain/tokens")
    assert tokens["step"].nunique() == 20 and tokens[["logp_behavior", "logp_current", "logp_new"]].notna().all().all()
    even = tokens["step"] % 2 == 0
    assert np.allclose(tokens["logp_behavior"][even], tokens["logp_current"][even], atol=1e-6)
    assert (tokens["logp_behavior"] - tokens["logp_current"])[~even].abs().max() > 1e-3
    sequences = pd.read_parquet("runs/plain/sequences")
    assert sequences["reward"][sequences["step"] == 19].mean() > sequences["reward"][sequences["step"] == 0].mean()
    result = CliRunner().invoke(app, ["diagnose", "runs/plain"])
    assert result.exit_code == 0, result.output


def areal_batch() -> list[dict[str, torch.Tensor]]:
    """Two prompts of two responses, of AReaL's shapes: areal/trainer/ppo/actor.py and rl_trainer.py (1.0.4).

    Columns are aligned with tokens but for prox_logp, which is a forward pass's: place t belongs to token t + 1.
    """
    batch = []
    for prompt in range(2):
        ids = torch.arange(12).reshape(2, 6) + 20 * prompt
        mask = torch.tensor([[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0]])
        logp = -(ids + 1) / 100 * mask
        batch.append(
            {
                "input_ids": ids,
                "attention_mask": torch.tensor([[1] * 5 + [0], [1] * 4 + [0] * 2]),
                "loss_mask": mask,
                "logprobs": logp,
                "versions": torch.where(mask == 1, 3, -1),
                "rewards": torch.tensor([1.0, 0.0]),
                "prox_logp": torch.roll(logp - 0.001, -1, dims=-1),
            }
        )
    return batch


def areal_compute_advantages(batch: list[dict[str, torch.Tensor]]) -> None:
    """What `PPOActor._compute_advantages` does to the columns: it rolls logprobs and the mask by -1, in place.

    Without a decoupled loss and a recomputation, prox_logp becomes the sampler's.
    """
    for one in batch:
        mask = torch.roll(one["loss_mask"].float(), -1, dims=-1)
        one["logprobs"] = torch.roll(one["logprobs"], -1, dims=-1) * mask
        one.setdefault("prox_logp", one["logprobs"])
        one["loss_mask"], one["advantages"] = mask, (one["rewards"] - 0.5)[:, None] * mask


def test_areal_recipe_undoes_the_roll(tmp_path: Path) -> None:
    recipe, batch = function("AReaL"), areal_batch()
    before = recipe["before_advantages"](batch)
    areal_compute_advantages(batch)
    with RunRecorder(tmp_path / "run") as recorder:
        recipe["record"](recorder, 4, batch, before)
    tokens = pd.read_parquet(tmp_path / "run" / "tokens")
    assert tokens["token_id"].tolist() == [2, 3, 4, 8, 9, 22, 23, 24, 28, 29]
    np.testing.assert_allclose(tokens["logp_behavior"], -(tokens["token_id"] + 1) / 100, rtol=1e-6)
    np.testing.assert_allclose(tokens["logp_current"], tokens["logp_behavior"] - 0.001, rtol=1e-5)
    assert tokens["advantage"].tolist() == [0.5] * 3 + [-0.5] * 2 + [0.5] * 3 + [-0.5] * 2
    assert (tokens["behavior_version"] == 3).all() and tokens["group_id"].tolist() == [0] * 5 + [1] * 5
    # The trap: read after compute_advantages against the same tokens, everything belongs to the token before.
    rolled = batch[0]["input_ids"][batch[0]["loss_mask"].bool()].tolist()
    assert rolled == [1, 2, 3, 7, 8] != tokens["token_id"].tolist()[:5]


def test_areal_recipe_takes_no_copy_of_the_sampler_for_the_policy(tmp_path: Path) -> None:
    recipe, batch = function("AReaL"), areal_batch()
    for one in batch:
        del one["prox_logp"]
    before = recipe["before_advantages"](batch)
    areal_compute_advantages(batch)
    assert all(torch.equal(one["prox_logp"], one["logprobs"]) for one in batch)
    with RunRecorder(tmp_path / "run") as recorder:
        recipe["record"](recorder, 4, batch, before)
    assert "logp_current" not in pd.read_parquet(tmp_path / "run" / "tokens")


class Experience:
    """The fields of OpenRLHF's Experience that the recipe reads, where the package is not installed.

    openrlhf/trainer/ppo_utils/experience.py and samples_generator.py (0.11.2).
    """

    def __init__(self, **fields: Any) -> None:
        self.base_action_log_probs = None
        self.__dict__ |= fields


def test_openrlhf_recipe(tmp_path: Path) -> None:
    try:
        from openrlhf.trainer.ppo_utils.experience import Experience as Real
    except ImportError:
        Real = Experience
    experiences = []
    for batch in range(2):  # micro-batches padded to their own lengths
        width = 6 + batch
        ids = torch.arange(2 * width).reshape(2, width) + 40 * batch
        mask = torch.zeros(2, width - 1, dtype=torch.long)
        mask[0, 2:4], mask[1, 1:5] = 1, 1
        logp = -(ids[:, 1:] + 1) / 100
        experiences.append(
            Real(
                sequences=ids,
                attention_mask=torch.ones_like(ids),
                action_mask=mask,
                action_log_probs=logp - 0.001,
                rollout_log_probs=logp,
                advantages=torch.tensor([[1.0], [-1.0]]).expand(2, width - 1),
                rewards=torch.tensor([1.0, 0.0]),
                index=[2 * batch, 2 * batch + 1],
            )
        )
    with RunRecorder(tmp_path / "run") as recorder:
        function("OpenRLHF")["record"](recorder, 0, experiences, 2)
    tokens = pd.read_parquet(tmp_path / "run" / "tokens")
    assert tokens["token_id"].tolist() == [3, 4, 8, 9, 10, 11, 43, 44, 49, 50, 51, 52]
    np.testing.assert_allclose(tokens["logp_behavior"], -(tokens["token_id"] + 1) / 100, rtol=1e-6)
    assert tokens["group_id"].tolist() == [0] * 6 + [1] * 6 and "logp_reference" not in tokens
    assert pd.read_parquet(tmp_path / "run" / "sequences")["n_tokens"].tolist() == [2, 4, 2, 4]
