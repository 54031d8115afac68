"""The tinker recorder on tinker's own data classes and futures; the service behind them is a model in this process."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("tinker", exc_type=ImportError)
import tinker
from tinker import AdamParams, Datum, EncodedTextChunk, ForwardBackwardOutput, ModelInput, OptimStepResponse, TensorData
from tinker.lib.public_interfaces.api_future import AwaitableConcurrentFuture

from ratioscope.adapters.tinker import TrainingRecorder, record
from ratioscope.analysis.runs.store import open_run

VOCABULARY = 12


class Client:
    """The methods of `tinker.TrainingClient` that a training loop calls, in their order, on one thread."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))
        self.optimizer = torch.optim.SGD([self.table], lr=1.0)
        self.service = ThreadPoolExecutor(1)
        self.passes = 0

    def _ask(self, work: Callable[[], Any]) -> AwaitableConcurrentFuture[Any]:
        return AwaitableConcurrentFuture(self.service.submit(work))

    def _pass(self, data: Sequence[Datum], gradient: bool) -> ForwardBackwardOutput:
        self.passes += 1
        outputs, loss = [], torch.zeros(())
        for datum in data:
            inputs = torch.tensor(datum.model_input.to_ints())
            logp = self.table.log_softmax(-1)[inputs, datum.loss_fn_inputs["target_tokens"].to_torch()]
            ratio = (logp - datum.loss_fn_inputs["logprobs"].to_torch()).exp()
            loss = loss - (ratio * datum.loss_fn_inputs["advantages"].to_torch()).sum()
            outputs.append({"logprobs": TensorData.from_torch(logp.detach())})
        if gradient:
            loss.backward()
        return ForwardBackwardOutput("ArrayRecord", outputs, {"loss:sum": loss.item()})

    def forward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Any = None) -> Any:
        return self._ask(lambda: self._pass(data, gradient=False))

    def forward_backward(self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Any = None) -> Any:
        return self._ask(lambda: self._pass(data, gradient=True))

    def optim_step(self, adam_params: AdamParams) -> Any:
        def update() -> OptimStepResponse:
            self.optimizer.step()
            self.optimizer.zero_grad()
            return OptimStepResponse()

        return self._ask(update)


def sampled(client: Client, random: np.random.Generator) -> list[Datum]:
    """Two prompts of four responses, as tinker-cookbook's `trajectory_to_data` makes them; one asks a tool in between.

    See tinker_cookbook/rl/data_processing.py (0.6.1), `make_datum_from_state`.
    """
    data = []
    for place in range(8):
        tokens = [1 + place // 4] * (2 + place // 4)
        logprobs, advantages, mask = [0.0] * len(tokens), [0.0] * len(tokens), [0.0] * len(tokens)
        table = client.table.detach().log_softmax(-1)
        for index in range(int(random.integers(3, 8))):
            tool = place == 1 and index == 1
            token = (
                11 if tool else int(random.choice(VOCABULARY, p=torch.softmax(table[tokens[-1]].double(), -1).numpy()))
            )
            logprobs.append(0.0 if tool else table[tokens[-1], token].item() + float(random.normal(0, 0.02)))
            advantages.append(0.0 if tool else (-1.0) ** place)
            mask.append(0.0 if tool else 1.0)
            tokens.append(token)
        columns = {"target_tokens": torch.tensor(tokens[1:]), "mask": torch.tensor(mask[1:])}
        columns |= {"logprobs": torch.tensor(logprobs[1:]), "advantages": torch.tensor(advantages[1:])}
        inputs = {name: TensorData.from_torch(values) for name, values in columns.items()}
        data.append(Datum(model_input=ModelInput(chunks=[EncodedTextChunk(tokens=tokens[:-1])]), loss_fn_inputs=inputs))
    return data


def without_mask(datum: Datum) -> Datum:
    """As tinker_cookbook/rl/train.py (0.6.1), `_remove_mask`."""
    return dataclasses.replace(
        datum, loss_fn_inputs={name: value for name, value in datum.loss_fn_inputs.items() if name != "mask"}
    )


def train(client: Client, steps: int, run: TrainingRecorder | None, parts: int = 1) -> list[list[Datum]]:
    """Enqueues the next call before it waits for the last one, as tinker-cookbook does."""
    random, seen = np.random.default_rng(0), []
    for step in range(steps):
        data = sampled(client, random)
        if run is not None:
            versions = [step - 1 if step and place == 2 else step for place in range(8)]
            rewards = [float(place % 2) for place in range(8)]
            run.about(data, groups=["b"] * 4 + ["a"] * 4, rewards=rewards, versions=versions)
        futures = [
            client.forward_backward([without_mask(one) for one in data[part::parts]], loss_fn="importance_sampling")
            for part in range(parts)
        ]
        futures.append(client.optim_step(AdamParams(learning_rate=1e-4)))
        for future in futures:
            future.result()
        seen.append(data)
    return seen


def words(ids: Sequence[int]) -> str:
    return " ".join(f"w{token}" for token in ids)


def test_a_recorded_training(tmp_path: Path) -> None:
    client = Client()
    run = record(client, tmp_path / "run", new=2, decode=words, name="mine")
    data = train(client, 3, run)
    run.close()
    assert run.recording.failure == ""
    tokens, sequences, steps = (pd.read_parquet(tmp_path / "run" / name) for name in ("tokens", "sequences", "steps"))
    last = tokens[tokens["step"] == 2].reset_index(drop=True)
    masks = [datum.loss_fn_inputs["mask"].to_torch() > 0 for datum in data[2]]

    def stacked(name: str) -> np.ndarray:
        columns = (datum.loss_fn_inputs[name].to_torch() for datum in data[2])
        return torch.cat([values[mask] for values, mask in zip(columns, masks, strict=True)]).numpy()

    np.testing.assert_array_equal(last["logp_behavior"], stacked("logprobs"))
    np.testing.assert_array_equal(last["token_id"], stacked("target_tokens"))
    np.testing.assert_array_equal(last["advantage"], stacked("advantages"))
    after = torch.cat(
        [
            client.table.log_softmax(-1)[one.model_input.to_ints(), one.loss_fn_inputs["target_tokens"].to_torch()][
                mask
            ]
            for one, mask in zip(data[2], masks, strict=True)
        ]
    ).detach()
    np.testing.assert_allclose(last["logp_new"], after.numpy(), rtol=1e-6)
    assert (last["logp_new"] - last["logp_current"]).abs().max() > 1e-3
    assert (last["logp_behavior"] - last["logp_current"]).abs().max() < 0.1
    assert tokens.groupby("step")["logp_new"].count().gt(0).tolist() == [True, False, True]
    assert sequences["reward"].tolist() == [0.0, 1.0] * 12
    assert sequences.groupby("step")["group_id"].agg(list).tolist() == [[0] * 4 + [1] * 4] * 3
    assert sequences["behavior_version_max"].tolist()[8:16] == [1, 1, 0, 1, 1, 1, 1, 1]
    assert steps["policy_version"].tolist() == [0, 1, 2] and steps["learning_rate"].iloc[0] == pytest.approx(1e-4)
    assert sequences["prompt"].iloc[0] == "w1 w1" and sequences["response"].iloc[1].split()[1] == "w11"
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.name == "mine" and manifest.assumed == [] and manifest.source["framework"] == "tinker"


def test_targets_are_shifted_like_everything_else(tmp_path: Path) -> None:
    """The trap: read against the inputs, every log-probability belongs to the token before."""
    client = Client()
    run = record(client, tmp_path / "run", quiet=True)
    (datum, *_), *_ = train(client, 1, run)
    run.close()
    tokens = pd.read_parquet(tmp_path / "run" / "tokens")
    mine = tokens[tokens["seq_id"] == 0]
    assert mine["token_id"].tolist() == datum.loss_fn_inputs["target_tokens"].tolist()[1:]
    assert mine["token_id"].tolist() != datum.model_input.to_ints()[1:]


def test_several_calls_before_a_step_are_one(tmp_path: Path) -> None:
    client = Client()
    run = record(client, tmp_path / "run", new=1, quiet=True)
    train(client, 2, run, parts=2)
    run.close()
    sequences = pd.read_parquet(tmp_path / "run" / "sequences")
    assert sequences.groupby("step").size().tolist() == [8, 8] and client.passes == 8
    assert pd.read_parquet(tmp_path / "run" / "tokens")["logp_new"].notna().all()


def test_awaited_forms_that_call_the_others_are_recorded_once(tmp_path: Path) -> None:
    class Awaited(Client):
        async def forward_backward_async(self, *args: Any, **kwargs: Any) -> Any:
            return self.forward_backward(*args, **kwargs)

        async def forward_async(self, *args: Any, **kwargs: Any) -> Any:
            return self.forward(*args, **kwargs)

        async def optim_step_async(self, *args: Any, **kwargs: Any) -> Any:
            return self.optim_step(*args, **kwargs)

    async def awaited(client: Awaited) -> None:
        for _ in range(2):
            data = sampled(client, np.random.default_rng(0))
            passed = await client.forward_backward_async(data, "importance_sampling")
            (await client.optim_step_async(AdamParams(learning_rate=1e-4))).result()
            passed.result()

    client = Awaited()
    run = record(client, tmp_path / "run", new=1, quiet=True)
    # Tests in a browser leave a running loop in the first thread.
    ThreadPoolExecutor(1).submit(asyncio.run, awaited(client)).result()
    run.close()
    assert pd.read_parquet(tmp_path / "run" / "sequences").groupby("step").size().tolist() == [8, 8]
    assert client.passes == 4 and pd.read_parquet(tmp_path / "run" / "tokens")["logp_new"].notna().all()


def test_a_step_waits_for_its_scores_while_the_next_one_goes_on(tmp_path: Path) -> None:
    class Slow(Client):
        async def forward_backward_async(self, *args: Any, **kwargs: Any) -> Any:
            return self.forward_backward(*args, **kwargs)

        async def forward_async(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0.1)
            return self.forward(*args, **kwargs)

        async def optim_step_async(self, *args: Any, **kwargs: Any) -> Any:
            return self.optim_step(*args, **kwargs)

    async def overlapping(client: Slow) -> None:
        ending = []
        for _ in range(2):
            passed = await client.forward_backward_async(sampled(client, np.random.default_rng(0)), "ppo")
            passed.result()
            ending.append(asyncio.create_task(client.optim_step_async(AdamParams(learning_rate=1e-4))))
            await asyncio.sleep(0.02)
        for each in ending:
            (await each).result()

    client = Slow()
    run = record(client, tmp_path / "run", new=1, quiet=True)
    ThreadPoolExecutor(1).submit(asyncio.run, overlapping(client)).result()
    run.close()
    assert run.recording.failure == ""
    tokens = pd.read_parquet(tmp_path / "run" / "tokens")
    assert tokens["step"].unique().tolist() == [0, 1] and tokens["logp_new"].notna().all()


def test_without_mask_and_word_of_it_context_is_guessed_and_said(tmp_path: Path) -> None:
    client = Client()
    run = record(client, tmp_path / "run", quiet=True)
    data = train(client, 1, None)
    run.close()
    tokens = pd.read_parquet(tmp_path / "run" / "tokens")
    assert len(tokens) == sum(int(sum(one.loss_fn_inputs["mask"].tolist())) for one in data[0])
    manifest = open_run(tmp_path / "run").manifest
    assert "exactly 0" in manifest.assumed[0] and "run.about" in manifest.missing["group_id"]
    assert "behavior_version" not in tokens and "reward" not in pd.read_parquet(tmp_path / "run" / "sequences")


def test_provenance_says_what_was_sampled(tmp_path: Path) -> None:
    client = Client()
    run = record(client, tmp_path / "run", quiet=True)
    datum = without_mask(sampled(client, np.random.default_rng(0))[0])
    length = len(datum.model_input.to_ints())
    prompt = [tinker.PromptProvenanceSpan(sequence_id="s", offset=0, length=2)]
    spans = [
        tinker.PromptProvenanceSpan(sequence_id="s", offset=1, length=1),
        tinker.SampledProvenanceSpan(sequence_id="s", length=length - 1),
    ]
    data = [datum.with_provenance([*prompt, tinker.SampledProvenanceSpan(sequence_id="s", length=length - 2)], spans)]
    client.forward_backward(data, "importance_sampling")
    client.optim_step(AdamParams(learning_rate=1e-4))
    run.close()
    assert len(pd.read_parquet(tmp_path / "run" / "tokens")) == length - 1
    assert open_run(tmp_path / "run").manifest.assumed == []


def test_the_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    watched, plain = Client(), Client()
    run = record(watched, tmp_path / "run", new=1, quiet=True)
    train(watched, 3, run)
    run.close()
    train(plain, 3, None)
    assert torch.equal(watched.table, plain.table)


def test_a_failure_ends_the_recording_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("in the way")
    client = Client()
    with caplog.at_level(logging.WARNING, logger="ratioscope"):
        run = record(client, tmp_path / "run")
        train(client, 3, run)
        run.close()
    assert [one.name for one in caplog.records].count("ratioscope") == 1
    failed: Future[Any] = Future()
    failed.set_exception(RuntimeError("the service is gone"))
    client = Client()
    client.forward_backward = lambda *args, **kwargs: AwaitableConcurrentFuture(failed)  # type: ignore[method-assign]
    run = record(client, tmp_path / "other")
    client.forward_backward(sampled(client, np.random.default_rng(0)), "importance_sampling")
    client.optim_step(AdamParams(learning_rate=1e-4))
    assert "the service is gone" in run.recording.failure
