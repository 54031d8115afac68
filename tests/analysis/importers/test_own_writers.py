"""Files as the installed programs' own functions write them: AReaL's dump, and what ms-swift's other trainers log.

Their modules need GPUs, clusters or servers to be imported, and the functions that write need none: these run alone, on
the responses of the run that the imitated files are of. verl's rollouts and what ms-swift's GRPOTrainer writes are in
tests/adapters, where their trainers run.
"""

import asyncio
import json
import os
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from types import SimpleNamespace
from typing import IO, Any, Literal, Union

import pytest
import torch

from ratioscope.analysis.importers.formats import areal, ms_swift
from tests.making.foreign import imitated_lines, imitated_ms_swift, truth
from tests.making.foreign.reading import steps_of
from tests.making.installed import Source

KNOWN = truth.run()


# AReaL ----------------------------------------------------------------------------------------------------------------


class Written:
    """A file whose writing can be awaited."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    async def write(self, text: str) -> None:
        self.file.write(text)


@asynccontextmanager
async def opened(path: str, mode: str) -> AsyncIterator[Written]:
    with Path(path).open(mode, encoding="utf-8") as file:
        yield Written(file)


async def makedirs(path: str, exist_ok: bool) -> None:
    Path(path).mkdir(parents=True, exist_ok=exist_ok)


def words(ids: list[int], skip_special_tokens: bool) -> str:
    return " ".join(f"t{token}" for token in ids)


def trajectory(members: Sequence[truth.Known]) -> dict[str, torch.Tensor]:
    """A task's responses as AReaL's workflows give them: whole texts, padded; the prompt's tokens have version -1."""
    longest = max(len(one.prompt_ids) + len(one.ids) for one in members)
    rows: dict[str, list[list[int]]] = {name: [] for name in ("input_ids", "loss_mask", "attention_mask", "versions")}
    for one in members:
        before, size = len(one.prompt_ids), len(one.prompt_ids) + len(one.ids)
        pad = [0] * (longest - size)
        rows["input_ids"].append([*one.prompt_ids, *one.ids, *pad])
        rows["loss_mask"].append([*[0] * before, *one.mask.tolist(), *pad])
        rows["attention_mask"].append([1] * size + pad)
        rows["versions"].append([*[-1] * before, *[int(one.versions[-1])] * len(one.ids), *pad])
    return {name: torch.tensor(values) for name, values in rows.items()} | {
        "rewards": torch.tensor([one.reward for one in members])
    }


def test_what_areal_dumps(tmp_path: Path) -> None:
    source = Source("areal", "infra/workflow_executor.py")
    files = SimpleNamespace(open=opened, os=SimpleNamespace(makedirs=makedirs))
    localized = SimpleNamespace(localize=lambda values: values)
    dump = source.run(
        "WorkflowExecutor", "_dump_trajectory", Any=Any, RTensor=localized, aiofiles=files, os=os, json=json
    )
    own, imitated = tmp_path / "own", imitated_lines.areal(tmp_path / "imitated", KNOWN, wheel=True)
    executor = SimpleNamespace(
        _get_dump_dir=lambda is_eval: str(own), _get_tokenizer=lambda: SimpleNamespace(decode=words)
    )
    threads = ThreadPoolExecutor(1)  # tests in a browser leave a running loop in the first one
    for step in KNOWN:
        for task in sorted({one.group for one in step}):
            members = [one for one in step if one.group == task]
            written = threads.submit(asyncio.run, dump(executor, trajectory(members), task, False))
            assert written.result() == (True, "")
    steps, expected = steps_of(areal.IMPORTER, own), steps_of(areal.IMPORTER, imitated)
    assert [step.number for step in steps] == [1, 2, 3]
    for step, other, known in zip(steps, expected, KNOWN, strict=True):
        assert step.sequences.keys() == other.sequences.keys() and step.tokens is None
        for name in step.sequences.keys() - {"prompt", "response"}:
            assert repr(step.sequences[name]) == repr(other.sequences[name]), name
        assert step.sequences["n_tokens"] == [int(one.mask.sum()) for one in known]
        # AReaL 1.0.4 cuts a response as if all that was not sampled were the prompt.
        own_texts = [" ".join(one.response.split()[-int(one.mask.sum()) :]) for one in known]
        assert step.sequences["response"] == own_texts


# ms-swift -------------------------------------------------------------------------------------------------------------


def writer(path: Path) -> Any:
    """ms-swift's JsonlWriter, in the one process."""
    checked = Source("swift", "utils/utils.py").run(
        "check_json_format", Any=Any, Mapping=Mapping, Sequence=Sequence, torch=torch
    )
    own = Source("swift", "utils/io_utils.py").run(
        "JsonlWriter", Any=Any, Dict=dict, List=list, Literal=Literal, Union=Union, Queue=Queue, Thread=Thread, os=os,
        json=json, is_master=lambda: True, is_last_rank=lambda: True, check_json_format=checked,
    )  # fmt: skip
    return own(str(path / "completions.jsonl"), write_on_rank="last")


def megatron(folder: Path) -> Path:
    """The trainer's queues, emptied at each step as its log does."""
    base = Source("swift", "megatron/trainers/rollout_mixin.py").part(
        "MegatronRolloutMixin", "_flush_log_completions", "_build_log_table",
        Dict=dict, deque=deque, defaultdict=defaultdict,
    )  # fmt: skip
    trainer = Source("swift", "megatron/trainers/grpo_trainer.py").part(
        "MegatronGRPOTrainer", "_build_log_table", of="base", base=base, Dict=dict
    )()
    trainer.log_completions = trainer.is_main_process = True
    trainer.args, trainer._last_logged_step = SimpleNamespace(report_to=[]), -1
    trainer.jsonl_writer = writer(folder)
    for number, step in enumerate(KNOWN, start=1):
        table = imitated_ms_swift.table(step)
        trainer._step = number
        trainer._logs = {name: deque(table[name]) for name in ("prompt", "completion", "advantages")}
        trainer._logs["rewards"] = defaultdict(deque, {name: deque(table[name]) for name in ("accuracy", "format")})
        for _ in range(2):  # it logs a step once
            trainer._flush_log_completions()
    return folder


def ray(folder: Path) -> Path:
    """Conversations of the driver; the template is the plain text of a message."""
    own = writer(folder)
    trainer = Source("swift", "ray/megatron/base_trainer.py").part(
        "BaseRayTrainer", "_maybe_log_completions", "_decode_log_content",
        List=list, OnPolicySample=Any, os=os, JsonlWriter=lambda path: own,
    )()  # fmt: skip
    trainer.args = SimpleNamespace(log_completions=True, output_dir=str(folder))
    trainer._format_log_prompt = lambda messages: "".join(str(one["content"]) for one in messages)
    for number, step in enumerate(KNOWN):
        said = [
            SimpleNamespace(
                messages=[{"role": "user", "content": one.prompt}, {"role": "assistant", "content": one.response}]
            )
            for one in step
        ]
        trainer._maybe_log_completions(said, torch.tensor([one.reward for one in step]), gen_step=number)
    return folder


@pytest.mark.parametrize("write", [megatron, ray])
def test_what_the_other_trainers_of_ms_swift_log(write: Any, tmp_path: Path) -> None:
    steps = steps_of(ms_swift.IMPORTER, write(tmp_path / "own"))
    imitated = getattr(imitated_ms_swift, write.__name__)(tmp_path / "imitated", KNOWN)
    assert [step.number for step in steps] == [0, 1, 2]
    for step, other, known in zip(steps, steps_of(ms_swift.IMPORTER, imitated), KNOWN, strict=True):
        assert step.sequences.keys() == other.sequences.keys()
        for name in step.sequences.keys() - {"prompt"}:
            assert repr(step.sequences[name]) == repr(other.sequences[name]), name
        assert step.sequences["response"] == [one.response for one in known]
