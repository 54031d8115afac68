"""The tinker recorder on the client of Baseten Loops: its data classes, its calls, their order and its futures.

The package asks for a newer Python and needs OpenTelemetry and W&B to be imported; its classes need neither, and run
alone. In the place of the wire is a model in this process that takes and gives the bodies of the requests.
"""

import asyncio
import json
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Optional, Protocol, TypeVar

import numpy as np
import pandas as pd
import pytest
import torch

from ratioscope.adapters.tinker import NO_ADVANTAGE, TrainingRecorder, record
from ratioscope.analysis.runs.store import open_run
from tests.making.installed import Source

VOCABULARY = 12


@pytest.fixture(scope="module")
def models() -> Iterator[ModuleType]:
    """baseten.loops.models, by its name."""
    name = "baseten.loops.models"
    spec = spec_from_file_location(name, Source("baseten", "loops/models.py").path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    yield sys.modules[name]
    del sys.modules[name]


class Service:
    """What is behind the wire: a table of logits, in the order of the requests. It has a result when it is asked."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY))
        self.optimizer = torch.optim.SGD([self.table], lr=1.0)
        self.answers: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.asked: list[str] = []

    def submit(self, client: Any, url: str, path: str, key: str, body: dict[str, Any], **_: Any) -> str:
        self.requests.append(path)
        if path == "/optim_step":
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.answers[key] = {"metrics": {"grad_norm": 1.0}}
        else:
            self.answers[key] = self.passed(body["data"], gradient=path == "/forward_backward")
        return key

    async def submit_async(self, *args: Any, **kwargs: Any) -> str:
        await asyncio.sleep(0)
        return self.submit(*args, **kwargs)

    def passed(self, data: list[dict[str, Any]], gradient: bool) -> dict[str, Any]:
        outputs, loss = [], torch.zeros(())
        for datum in data:
            tokens = datum["model_input"]["chunks"][0]["tokens"]
            inputs = {name: one["data"] for name, one in datum["loss_fn_inputs"].items()}
            targets = torch.tensor(inputs.get("target_tokens", [*tokens[1:], 0]))
            advantages = torch.tensor(inputs["advantages"]).expand(len(tokens))
            logp = self.table.log_softmax(-1)[torch.tensor(tokens), targets]
            ratio = (logp - torch.tensor(inputs["logprobs"])).exp()
            loss = loss - (ratio * advantages).sum()
            # Where the loss needs none, none is computed.
            computed = torch.where(advantages != 0, logp.detach(), torch.zeros(()))
            outputs.append({"logprobs": {"data": computed.tolist(), "dtype": "float32", "shape": [len(tokens)]}})
        if gradient:
            loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.item(), "loss_fn_outputs": outputs, "metrics": {"loss": loss.item()}}

    def poll(self, client: Any, url: str, operation: Any, result_cls: Any, **_: Any) -> Any:
        self.asked.append(operation)
        return result_cls.model_validate(self.answers[operation])

    async def poll_async(self, *args: Any, **kwargs: Any) -> Any:
        return self.poll(*args, **kwargs)


def client_of(service: Service, models: ModuleType, most_bytes: int = 1 << 30) -> Any:
    """Their TrainingClient on the service; a request that is larger than `most_bytes` is several."""
    futures, training = Source("baseten", "loops/promise_client.py"), Source("baseten", "loops/training_client.py")
    bridge = Source("baseten", "loops/_sync_bridge.py").run("SyncBridge", asyncio=asyncio, threading=threading)
    polling = {"_poll_operation": service.poll, "_poll_operation_async": service.poll_async}
    a_future = futures.run(
        "APIFuture", Generic=Generic, T=TypeVar("T"), Optional=Optional, asyncio=asyncio, threading=threading, **polling
    )
    known: dict[str, Any] = {
        "__name__": "baseten.loops.training_client", "asyncio": asyncio, "threading": threading, "uuid": uuid,
        "json": json, "asynccontextmanager": asynccontextmanager, "Protocol": Protocol,
        "Optional": Optional, "APIFuture": a_future, "ForwardBackwardOutput": models.ForwardBackwardOutput,
        "OptimStepResponse": models.OptimStepResponse, "op_span": lambda name, fields: nullcontext(),
        "_submit": service.submit, "_submit_async": service.submit_async, "_MAX_REQUEST_BYTES": most_bytes,
        "_LOSS_FN_ROW_GROUP_SIZE": {},
    }  # fmt: skip
    for name in ("_split_data_into_chunks", "_aggregate_forward_backward", "ForwardBackwardFuture",
                 "_ChunkedForwardBackwardFuture"):  # fmt: skip
        known[name] = training.run(name, **known)
    theirs = training.part(
        "TrainingClient", "forward", "forward_async", "forward_backward", "forward_backward_async", "optim_step",
        "optim_step_async", "_dispatch_forward_async", "_submit_fb_chunk", "_start_op", "_start_op_async",
        "_optim_step_request", "_op_body", "_take_turn", "_get_request_id", "_reserve_request_id_range", **known,
    )  # fmt: skip

    class Client(theirs):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self._client = self._base_url = self._run_id = self._session_id = self._base_model = self._wandb_run = None
            self._async_client, self._ready_timeout = nullcontext(), 60.0
            self._request_id_lock, self._request_id_counter = threading.Lock(), 0
            self._turn_counter, self._turn_waiters = 0, dict[int, Any]()
            self._bridge = bridge()

        def _operation(self, operation_id: str, name: str) -> str:
            return operation_id

    return Client()


def sampled(service: Service, models: ModuleType, random: np.random.Generator, *, plain: bool = False) -> list[Any]:
    """Three prompts of two responses; both to the last one have the same reward.

    Args:
        plain: as the documentation of Loops has them: no targets, and one advantage for all places.
    """
    data = []
    for place in range(6):
        tokens, prompt = [1 + place // 2] * 3, 3
        logprobs = [0.0] * (prompt - 1)
        table = service.table.detach().log_softmax(-1)
        for _ in range(int(random.integers(3, 8))):
            token = int(random.choice(VOCABULARY, p=torch.softmax(table[tokens[-1]].double(), -1).numpy()))
            logprobs.append(table[tokens[-1], token].item() + float(random.normal(0, 0.02)))
            tokens.append(token)
        advantage = 0.0 if place > 3 else (-1.0) ** place
        mask = [0.0] * (prompt - 1) + [1.0] * (len(tokens) - prompt)
        end = [0.0] if plain else []
        columns = {"logprobs": logprobs + end, "mask": mask + end}
        columns["advantages"] = [advantage] if plain else [advantage * one for one in mask]
        inputs = {
            name: models.TensorData(data=values, dtype="float32", shape=[len(values)])
            for name, values in columns.items()
        }
        if not plain:
            inputs["target_tokens"] = models.TensorData(data=tokens[1:], dtype="int64", shape=[len(tokens) - 1])
        model_input = models.ModelInput.from_ints(tokens if plain else tokens[:-1])
        data.append(models.Datum(model_input=model_input, loss_fn_inputs=inputs))
    return data


def about(run: TrainingRecorder, data: list[Any], step: int) -> None:
    rewards = [1.0 if place > 3 else float(place % 2 == 0) for place in range(6)]
    run.about(data, groups=[place // 2 for place in range(6)], rewards=rewards, versions=[step] * 6)


def train(client: Any, service: Service, run: TrainingRecorder, models: ModuleType, **kind: bool) -> None:
    """Three steps, each of two calls; the results are waited for after the next request, as is usual."""
    random = np.random.default_rng(0)
    for step in range(3):
        data = sampled(service, models, random, **kind)
        about(run, data, step)
        futures = [client.forward_backward(data[part::2], "importance_sampling") for part in range(2)]
        futures.append(client.optim_step(models.AdamParams(learning_rate=1e-4)))
        for future in futures:
            future.result()


async def train_awaited(client: Any, service: Service, run: TrainingRecorder, models: ModuleType) -> None:
    """The same with what is awaited; the requests of a step are made at once, and sent in their order."""
    random = np.random.default_rng(0)
    for step in range(3):
        data = sampled(service, models, random)
        about(run, data, step)
        calls = [client.forward_backward_async(data[part::2], "importance_sampling") for part in range(2)]
        calls.append(client.optim_step_async(models.AdamParams(learning_rate=1e-4)))
        for future in await asyncio.gather(*calls):
            await future


def tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    tokens, sequences, steps = (pd.read_parquet(folder / name) for name in ("tokens", "sequences", "steps"))
    return tokens, sequences, steps


@pytest.mark.parametrize("most_bytes", [1 << 30, 1500], ids=["whole", "in parts"])
def test_a_recorded_training(tmp_path: Path, models: ModuleType, most_bytes: int) -> None:
    service = Service()
    client = client_of(service, models, most_bytes)
    run = record(client, tmp_path / "run", new=2, name="mine")
    train(client, service, run, models)
    run.close()
    assert run.recording.failure == ""
    tokens, sequences, steps = tables(tmp_path / "run")
    assert sequences["reward"].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0] * 3
    assert sequences["group_id"].tolist() == [0, 1, 2, 0, 1, 2] * 3
    # What the service did not compute is left out, rather than certain.
    assert (sequences["dropped"] == NO_ADVANTAGE).tolist() == [False, False, True] * 6
    assert tokens.groupby("step")["seq_id"].unique().map(sorted).tolist() == [[0, 1, 3, 4]] * 3
    assert (tokens["logp_behavior"] - tokens["logp_current"]).abs().max() < 0.1
    assert tokens["logp_new"].notna().tolist() == (tokens["step"] != 1).tolist()
    assert (tokens["logp_new"] - tokens["logp_current"]).abs().max() > 1e-3
    assert steps["policy_version"].tolist() == [0, 1, 2] and steps["extra_loss"].notna().all()
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.source == {"framework": "baseten-loops", "version": "0.32.0", "format": "Datum"}
    (assumed,) = manifest.assumed
    assert "advantages are all 0" in assumed
    assert service.requests.count("/forward") == 2 * service.requests.count("/forward_backward") // 3


def test_what_is_awaited_is_recorded_once_and_alike(tmp_path: Path, models: ModuleType) -> None:
    watched = {}
    for name in ("called", "awaited"):
        service = Service()
        client = client_of(service, models)
        run = record(client, tmp_path / name, new=2, quiet=True)
        if name == "called":
            train(client, service, run, models)
        else:  # tests in a browser leave a running loop in the first thread
            ThreadPoolExecutor(1).submit(asyncio.run, train_awaited(client, service, run, models)).result()
        run.close()
        assert run.recording.failure == "", name
        watched[name] = service.requests
    assert watched["called"] == watched["awaited"]
    for called, awaited in zip(tables(tmp_path / "called")[:2], tables(tmp_path / "awaited")[:2], strict=True):
        pd.testing.assert_frame_equal(called, awaited)


def test_data_without_targets_and_with_one_advantage(tmp_path: Path, models: ModuleType) -> None:
    for name in ("usual", "plain"):
        service = Service()
        client = client_of(service, models)
        run = record(client, tmp_path / name, quiet=True)
        train(client, service, run, models, plain=name == "plain")
        run.close()
    # The same but for places of the prompt, which have an advantage in the plain ones: the policy is another one later.
    usual, plain = (tables(tmp_path / name)[0].query("step == 0") for name in ("usual", "plain"))
    pd.testing.assert_frame_equal(usual, plain)


def test_nobody_is_asked_for_a_result_before_the_loop_asks(tmp_path: Path, models: ModuleType) -> None:
    """Asking blocks until the service has it, and takes it away from who asks later."""
    service = Service()
    client = client_of(service, models)
    run = record(client, tmp_path / "run", quiet=True)
    data = sampled(service, models, np.random.default_rng(0))
    waiting = [client.forward_backward(data, "importance_sampling"), client.optim_step(models.AdamParams())]
    assert service.asked == [] and not (tmp_path / "run" / "tokens").exists()
    waiting[0].result()
    client.forward_backward(data, "importance_sampling")
    assert len(service.asked) == 1
    run.close()
    assert len(tables(tmp_path / "run")[1]) == 6
