"""verifiers: traces of an evaluation, and the results that it wrote up to version 0.3.

Read from verifiers 0.4.0: `verifiers/v1/utils/trace_store.py` (traces.jsonl, an episode a line) and `v1/cli/output.py`
(configs/resolved/eval.json beside it; configs/eval.json at a60a606e). The older results.jsonl and metadata.json are
those of `verifiers/legacy/utils/save_utils.py` at a60a606e. An evaluation has no updates: all of it is one step.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratioscope.analysis.importers import lines, plain, responses
from ratioscope.analysis.importers.formats.traces import DECIMALS, LISTS, episode_group, told, without_trace
from ratioscope.analysis.importers.paths import Record
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response
from ratioscope.analysis.importers.source import Description, Importer, Reading, Sign, Step
from ratioscope.analysis.importers.values import (
    Ordinals,
    as_number,
    at,
    calls_of,
    config,
    first_object,
    known_values,
    part_of_reward,
    said,
    transcript,
    words_of,
)

_NO_TRAINER = "verifiers samples and scores; it does not train."
_KEYS_OF_RESULTS = ("prompt", "completion", "reward")
_TEXTS = "results.jsonl holds texts and scores; verifiers 0.4 writes tokens and log-probabilities into traces.jsonl."
_ONE_STEP = "An evaluation has no updates: all responses are one step."


# traces.jsonl, from version 0.4 -------------------------------------------------------------------------------------


def _traces_file(path: Path) -> Path | None:
    file = path / "traces.jsonl" if path.is_dir() else path
    return file if file.name.endswith(".jsonl") and file.is_file() else None


def describe(path: Path) -> Description | None:
    file = _traces_file(path)
    episode = first_object(file) if file else {}
    traces = episode.get("traces")
    if file is None or not isinstance(traces, list) or "task" not in episode:
        return None
    trace: Mapping[str, Any] = next(iter(traces), {})
    configs = file.parent / "configs"
    settings = config(configs / "resolved" / "eval.json") or config(configs / "eval.json")
    nodes = [node for node in trace.get("nodes") or [] if node.get("sampled")]
    training = at(episode, "run", "type") == "train"
    assumed = (
        "All responses in the file are of one step." if training else _ONE_STEP,
        "A conversation that forks is a response a branch, each with the reward of the whole. A message that several "
        "branches share counts in the first.",
    )
    return Description(
        framework="verifiers",
        format="traces",
        path=file,
        version=str(at(trace, "verifiers", "version") or ""),
        steps=1,
        missing=_missing(nodes, training, at(episode, "run", "work", "policy") is not None),
        assumed=assumed,
        manifest=known_values(
            task=known_values(name=at(episode, "env", "name") or at(episode, "env", "id")),
            model=known_values(
                path=settings.get("model") or next((c.get("model") for c in trace.get("calls") or []), None)
            ),
            sampler=known_values(
                temperature=as_number(at(settings, "sampling", "temperature")),
                top_p=as_number(at(settings, "sampling", "top_p")),
                samples_per_prompt=at(settings, "num_rollouts"),
            ),
            log_probability_decimals=DECIMALS if any(node.get("token_ids") for node in nodes) else None,
        ),
    )


def _missing(nodes: Sequence[Mapping[str, Any]], training: bool, versions: bool) -> dict[str, str]:
    missing = {}
    if not any(node.get("token_ids") for node in nodes):
        missing["token_id"] = (
            "the client that sampled gave texts without token ids; verifiers' renderer client gives both."
        )
    if not any(node.get("logprobs") for node in nodes):
        missing["logp_behavior"] = "the sampled messages hold no log-probabilities."
    why = "the file holds no values of the trainer." if training else _NO_TRAINER
    for stored, column in (("trainer_logprobs", "logp_current"), ("advantages", "advantage"), ("entropies", "entropy")):
        if not any(node.get(stored) for node in nodes):
            missing[column] = why
    missing |= {"logp_new": why, "clipped": why}
    if not versions:
        missing["behavior_version"] = "the file does not say which version of the weights sampled."
    return missing


def read(path: Path, reading: Reading) -> Iterator[Step]:
    file = _traces_file(path)
    if file is None or reading.after >= 0 or reading.growing:  # a step is whole when nothing more is written
        return
    found, groups = list[Response](), Ordinals()
    for line, episode in lines.read(file, reading, arrays=LISTS):
        with reading.whole_line(file, line):
            for one in told(episode):
                found.append(one.response({"group_id": groups.of(one.group), **one.row}))
            if not episode.get("traces") and episode.get("ok") is False:
                group = groups.of(episode_group(episode, {}))
                found.append(responses.without_empty({"group_id": group, **without_trace(episode)}))
    if found:
        yield responses.step(0, found)


# results.jsonl, up to version 0.3 -----------------------------------------------------------------------------------


def _results(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
    """The results, each with how the metadata beside them say that it was sampled."""
    arguments = at(config(file.parent / "metadata.json"), "sampling_args") or {}
    for line, row in plain.records(file, reading):
        yield line, {**row, "sampling_args": arguments}


def _told_of_results(_: Record, file: Path) -> Mapping[str, Any] | None:
    metadata = config(file.parent / "metadata.json")
    if not {"env_id", "model"} <= metadata.keys():
        return None
    return {
        "path": file,
        "version": str(at(metadata, "version_info", "vf_version") or ""),
        "manifest": known_values(
            task=known_values(name=metadata.get("env_id")),
            model=known_values(path=metadata.get("model")),
            sampler=known_values(
                samples_per_prompt=metadata.get("rollouts_per_example"),
                temperature=as_number(at(metadata, "sampling_args", "temperature")),
                top_p=as_number(at(metadata, "sampling_args", "top_p")),
            ),
        ),
    }


def _group_of_result(row: Record) -> str:
    example = row.get("example_id")
    return str(example) if example is not None else transcript(_messages(row["prompt"]))


def _result(row: Record, response: Response) -> None:
    prompt, completion = _messages(row["prompt"]), _messages(row["completion"])
    sampled = [message for message in completion if message.get("role", "assistant") == "assistant"]
    response.sampled, response.messages = None, [*_message_rows(prompt, completion)]
    response.row |= _parts(row) | {
        "prompt": transcript(prompt) if prompt else None,
        "response": transcript(completion) if completion else None,
        "reward": None if row.get("error") else as_number(row["reward"]),
        "n_turns": len(sampled) or None,
        "n_tool_calls": sum(len(calls_of(message)) for message in sampled),
        "seconds_generating": _generating(row),
    }


def _messages(written: Any) -> list[Mapping[str, Any]]:
    """A conversation, which may be one text."""
    if isinstance(written, str):
        return [{"content": written}]
    return [message for message in written or [] if isinstance(message, Mapping)]


def _parts(row: Mapping[str, Any]) -> dict[str, float]:
    """Scores by name: they are not weighted in the file, so they need not add up to the reward."""
    metrics = row.get("metrics")
    values = {name: as_number(value) for name, value in (metrics or {}).items()} if isinstance(metrics, Mapping) else {}
    return {part_of_reward(name): value for name, value in values.items() if value is not None}


def _generating(row: Mapping[str, Any]) -> float | None:
    start, end = (as_number(at(row, "timing", "generation", name)) for name in ("start", "end"))
    if start and end:
        return end - start
    old = as_number(at(row, "timing", "generation_ms") or row.get("generation_ms"))
    return old / 1000 if old is not None else None


def _message_rows(
    prompt: Sequence[Mapping[str, Any]], completion: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for turn, message in enumerate((*prompt, *completion)):
        default = "user" if turn < len(prompt) else "assistant"
        called = calls_of(message)
        tool = called[0][0] if called else message.get("name") if message.get("role") == "tool" else None
        yield {"turn": turn, "role": message.get("role", default), "content": said(message), "tool": tool}


IMPORTER = Importer(
    "verifiers",
    "verifiers: traces of an evaluation (0.4)",
    describe,
    read,
    signs=(Sign("traces.jsonl", ("traces", "task"), says_enough=False),),
)
RESULTS = Plain(
    "verifiers-results",
    "verifiers: results of an evaluation (0.3 and before)",
    framework="verifiers",
    format="results",
    files=r"results\.jsonl",
    keys=_KEYS_OF_RESULTS,
    sequences=(
        ("prompt_id", "example_id", lambda example: example if isinstance(example, int) else None),
        ("finish_reason", "stop_condition", words_of),
        ("truncated", "is_truncated", lambda cut: cut if isinstance(cut, bool) else None),
        ("environment", "task", lambda task: task if isinstance(task, str) else None),
        ("temperature", "sampling_args.temperature", as_number),
        ("top_p", "sampling_args.top_p", as_number),
    ),
    read=_results,
    group=_group_of_result,
    also=_result,
    missing={
        **dict.fromkeys(("token_id", "logp_behavior"), _TEXTS),
        **dict.fromkeys(("logp_current", "logp_new", "advantage", "entropy", "clipped"), _NO_TRAINER),
    },
    assumed=(_ONE_STEP, "Responses to one example are one group."),
    told=_told_of_results,
    signs=(
        Sign("metadata.json", ("env_id", "model"), says_enough=False),
        Sign("results.jsonl", _KEYS_OF_RESULTS, says_enough=False),
    ),
).importer
