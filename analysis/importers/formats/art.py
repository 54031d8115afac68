"""ART's trajectories: trajectories/train/{step}.parquet in a model's folder, written by default, and history.jsonl.

Read against openpipe-art 0.5.23: art/utils/trajectory_logging.py (version 2 of the files, whose JSON is the whole
trajectory, and version 1, which has texts alone), art/trajectories/_tokenize.py (where the answers of four APIs have
their tokens), art/preprocessing/dynamo_tokens.py (compact log-probabilities) and art/model.py (log, history.jsonl).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.importers import lines, other_apis
from ratioscope.analysis.importers.calls import Call, put_calls
from ratioscope.analysis.importers.paths import Record, at_path
from ratioscope.analysis.importers.plain import Plain
from ratioscope.analysis.importers.responses import Response, conversation, other_shape, plain_text, version
from ratioscope.analysis.importers.source import SURPRISES, BadLine, Reading, Sign
from ratioscope.analysis.importers.values import as_number, as_part, table_rows

_KEYS = ("group_index", "messages", "reward")
_HISTORY = "history.jsonl"
_COMPACT = ("compact_logprobs", "art_completion_logprobs")
_TOKEN_ID = "token_id:"
_CHOICES = (
    *(f"exchanges.{name}[*].response.choices[*]" for name in ("chat_completions", "completions")),
    *("messages_and_choices[*]", "additional_histories[*].messages_and_choices[*]"),
)
_MESSAGES = "exchanges.messages[*].response"
_PLACES = (*_CHOICES, "exchanges.responses[*].response.token_generations[*]", _MESSAGES)
_LISTS = (
    *(f"{place}.{name}" for place in _PLACES for name in ("token_ids", "prompt_token_ids", *_COMPACT)),
    f"{_MESSAGES}.logprobs",
)
_LOGPS = tuple(f"{place}.logprobs.content[*].logprob" for place in _CHOICES[:3])
_ENDS = "response.choices[0].finish_reason|response.incomplete_details.reason|response.stop_reason|response.status"
_BEGIN = datetime(1, 1, 1, tzinfo=UTC)
_NESTED = (b'"top_logprobs":[{', b'"top_logprobs": [{')
"""Log-probabilities of tokens that were not sampled."""
_CUT = ("length", "max_output_tokens", "max_tokens")
"""How the APIs call it that an answer was cut off."""
_SCALARS = {"loss/train": "loss", "loss/grad_norm": "grad_norm", "loss/learning_rate": "learning_rate"} | {
    f"loss/{name}": f"extra_{name}"
    for name in ("entropy", "kl_div", "kl_policy_ref", "importance_ratio_mean", "clipped_token_fraction")
}
"""Columns of the steps table in rows of history.jsonl."""

_OF_TRAINER = "ART writes a trajectory as it was sampled, before the trainer scores it"
_MISSING = {
    **dict.fromkeys(("logp_current", "logp_new", "advantage", "entropy", "clipped"), _OF_TRAINER),
    "policy_version": "the files do not say which checkpoint a step began with",
    "wall_time": "the files have local times without their zone",
}
_NO_LOGPS = "the server returned no log-probabilities"
_NO_TOKENS = {
    "texts": "files of version 1 have texts and rewards alone",
    "none": "the server returned neither token ids nor log-probabilities",
    "exceptions": "the first file has failed episodes alone",
}
_NO_IDS = "the log-probabilities name tokens by their text, not by their id"
_NO_VERSION = "the trajectories do not say which checkpoint sampled them"
_STEPS = (
    "A step is the number under which the run logged the trajectories; ART does not say which update trained on them."
)
_GROUPS = "A group of trajectories is a prompt group."


# Records ------------------------------------------------------------------------------------------------------------


def _records(file: Path, reading: Reading) -> Iterator[tuple[int, Record]]:
    """A record for each trajectory, and behind them one for each exception of a group: an episode that failed."""
    exceptions = dict[Any, list[Any]]()
    parse, number = _Parsers(), 0
    groups = dict[Any, dict[str, Any]]()  # every row has that of its group
    for number, row in enumerate(table_rows(file, reading), start=1):
        try:
            of_group = row.pop("group_json", None)
            if of_group not in groups:
                groups = {of_group: _object(of_group, parse)}
            group, trajectory = groups[of_group], _object(row.pop("trajectory_json", None), parse)
        except SURPRISES as error:
            reading.bad(file, f"row {number}: its JSON is not that of a trajectory ({other_shape(error)})")
            continue
        failed = group.get("exceptions")
        exceptions.setdefault(row.get("group_index"), failed if isinstance(failed, list) else [])
        if trajectory or row.get("reward") is not None or row.get("messages") is not None:
            yield number, row | {"trajectory": trajectory}
    for group_index, found in exceptions.items():
        for exception in found:
            yield number, dict.fromkeys(_KEYS) | {"group_index": group_index, "exception": exception}


class _Parsers:
    """Parses a trajectory; of choices with token ids, whose log-probabilities are an object a token, these alone."""

    def __init__(self) -> None:
        self._quick, self._whole = lines.Parser(_LISTS, numbers=_LOGPS), lines.Parser(_LISTS)

    def __call__(self, text: bytes) -> Any:
        if not any(nested in text for nested in _NESTED):
            with suppress(*SURPRISES):  # what is wrong with it is said where it is read
                found = self._quick(text)
                if all(choice.get("token_ids") is not None for choice in _choices(found)):
                    return found
        return self._whole(text)


def _object(text: Any, parse: _Parsers) -> dict[str, Any]:
    found = parse(text.encode()) if text is not None else {}
    if not isinstance(found, dict):
        raise BadLine("it is no object")
    return found


def _told(first: Record, _: Path) -> Mapping[str, Any]:
    missing = dict(_MISSING)
    trajectory = first.get("trajectory") or {}
    if trajectory.get("initial_policy_version") is None:
        missing["behavior_version"] = _NO_VERSION
    calls = list[Call]()
    with suppress(*SURPRISES):  # what is wrong with it is said where it is read
        calls = _calls(trajectory, _exchanges(trajectory))[1]
    if all(call.sampled is None for call in calls):
        missing["token_id"] = _NO_IDS
    if all(call.logps is None for call in calls):
        missing["logp_behavior"] = _NO_LOGPS
    if not calls or not any(call.size for call in calls):
        kind = "exceptions" if "exception" in first else "texts" if not trajectory else "none"
        missing |= dict.fromkeys(("token_id", "logp_behavior"), _NO_TOKENS[kind])
    return {"missing": missing, "assumed": (_STEPS, _GROUPS)}


# Trajectories -------------------------------------------------------------------------------------------------------


def _trajectory(record: Record, response: Response) -> None:
    if "exception" in record:
        kind = str(at_path(record, "exception.type")).removeprefix("<class '").removesuffix("'>")
        response.row["failure"] = "timeout" if "timeout" in kind.lower() else "environment"
        response.drop(f"exception ({kind})")
        return
    trajectory = record.get("trajectory") or {}
    exchanges = _exchanges(trajectory)
    rows, calls, asked = _calls(trajectory, exchanges) if trajectory else ([], [], None)
    if not trajectory:
        rows = conversation(record["messages"])
        sampled = [
            row["turn"] for row, message in zip(rows, record["messages"] or (), strict=True) if message["trainable"]
        ]
        asked = sampled[0] if sampled else None
        response.row["n_turns"] = len(sampled) or None
    response.messages = rows
    if calls:
        put_calls(response, calls)
    if asked is not None:
        response.row["prompt"] = plain_text(_texts(rows[:asked]) or None)
        rest = rows[asked:]
        response.row["response"] = rest[0]["content"] if len(rest) == 1 else plain_text(_texts(rest))
    response.row["n_tool_calls"] = sum(row["role"] == "tool" for row in rows) or None
    _put_versions(trajectory, response)
    _put_exchanges([one for _, one in exchanges], response)
    finish = plain_text(_finish(trajectory, exchanges))
    response.row |= {"finish_reason": finish, "truncated": None if finish is None else finish in _CUT}


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": row["role"], "content": row["content"]} for row in rows]


def _put_versions(trajectory: Mapping[str, Any], response: Response) -> None:
    first, last = (version(trajectory.get(f"{name}_policy_version")) for name in ("initial", "final"))
    known = [number for number in (first, last) if number is not None]
    if known:
        response.row |= {"behavior_version_min": min(known), "behavior_version_max": max(known)}
    if first is not None and first == last and response.values:
        response.values["behavior_version"] = np.full(response.length, first, dtype=np.int32)


def _put_exchanges(exchanges: Sequence[Mapping[str, Any]], response: Response) -> None:
    """How it was sampled, and how long that took."""
    times = [(_time(one.get("start_time")), _time(one.get("end_time"))) for one in exchanges]
    if times and all(start is not None and end is not None for start, end in times):
        response.row["seconds_generating"] = sum((end - start).total_seconds() for start, end in times)  # type: ignore
    for name in ("temperature", "top_p"):
        values = {as_number(at_path(one, f"request.{name}")) for one in exchanges}
        response.row[name] = values.pop() if len(values) == 1 else None


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_Exchanges = list[tuple[str, Mapping[str, Any]]]


def _exchanges(trajectory: Mapping[str, Any]) -> _Exchanges:
    """Calls and their APIs, in the order in which they were made."""
    made = trajectory.get("exchanges") or {}
    found = [(api, one) for api in _ANSWERED for one in made.get(api) or []]
    times = [_time(one.get("start_time")) for _, one in found]
    return [found[place] for place in sorted(range(len(found)), key=lambda place: (times[place] or _BEGIN, place))]


def _calls(trajectory: Mapping[str, Any], exchanges: _Exchanges) -> tuple[list[dict[str, Any]], list[Call], int | None]:
    """Messages, calls, and which message is the first that was sampled."""
    talk, calls = list[Any](), list[Call]()
    current, items = list[Any](), dict[Any, list[Any]]()
    for api, one in exchanges:
        request, response = one.get("request") or {}, one["response"]
        if api == "responses":
            known = items.get(request.get("previous_response_id"), []) + other_apis.items_of(request.get("input"))
            items[response.get("id")] = [*known, *(response.get("output") or ())]
            request = {**request, "input": known}
        given = _given(api, request)
        goes_on = _same(given[: len(current)], current)
        talk += given[len(current) :] if goes_on else given
        current = list(given)
        for message, made in _ANSWERED[api](response):
            if made is not None:
                calls.append(Call(*made, turn=len(talk)))
            talk.append(message)
            current.append(message)
    histories = [trajectory.get("messages_and_choices") or []]
    histories += [history.get("messages_and_choices") or [] for history in trajectory.get("additional_histories") or []]
    for number, history in enumerate(histories):
        begins = number > 0
        for one in history:
            if _is_choice(one):
                calls.append(Call(*_tokens(one), None, len(talk), begins))
                begins = False
            talk.append(one["message"] if _is_choice(one) else one)
    return conversation(talk), calls, calls[0].turn if calls else None


# What each API calls what: all messages that a call was given, and what came back, each message with the token ids, the
# log-probabilities and the prompt of the call that wrote it, None where no call did.
_Made = tuple[Any, Any, Any]


def _given(api: str, request: Mapping[str, Any]) -> list[Any]:
    if api == "chat_completions":
        return list(request.get("messages") or ())
    if api == "messages":
        first = [{"role": "system", "content": request["system"]}] if request.get("system") else []
        return other_apis.of_blocks([*first, *(request.get("messages") or ())])
    if api == "responses":
        first = [{"role": "system", "content": request["instructions"]}] if request.get("instructions") else []
        return first + other_apis.of_items(request.get("input") or ())
    prompt = request.get("prompt")
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []


def _of_choice(response: Mapping[str, Any]) -> Iterator[tuple[Any, _Made | None]]:
    choice = response["choices"][0]
    message = choice["message"] if "message" in choice else {"role": "assistant", "content": choice.get("text")}
    yield message, (*_tokens(choice), _prompt(choice, response))


def _of_items(response: Mapping[str, Any]) -> Iterator[tuple[Any, _Made | None]]:
    """A response whose server called tools by itself has several generations, with the tools' answers in between."""
    items = response.get("output") or []
    generations = response.get("token_generations")
    if generations is None:
        logps = at_path(response, "output[*].content[*].logprobs")
        alone = all(item.get("type") == "message" for item in items)  # else some of the tokens have none
        generations = [{"output_indices": range(len(items)), "output_tokens": logps if alone else None}]
    done = 0
    for generation in generations:
        places = generation.get("output_indices") or ()
        for answer in other_apis.of_items(items[done : min(places, default=done)]):
            yield answer, None
        done = max(places, default=done - 1) + 1
        made = _tokens({**generation, "logprobs": {"content": generation.get("output_tokens")}})
        message, *more = other_apis.of_items([items[place] for place in places]) or [{"role": "assistant"}]
        yield message, (*made, _prompt(generation, {}))
        for answer in more:
            yield answer, None
    for answer in other_apis.of_items(items[done:]):
        yield answer, None


def _of_blocks(response: Mapping[str, Any]) -> Iterator[tuple[Any, _Made | None]]:
    logps = next((response[name] for name in ("compact_logprobs", "logprobs") if response.get(name) is not None), None)
    made = _tokens({"token_ids": response.get("token_ids"), _COMPACT[0]: logps})
    message = other_apis.of_blocks([{"role": "assistant", "content": response.get("content")}]) or [
        {"role": "assistant"}
    ]
    yield message[0], (*made, _prompt(response, {}))


_ANSWERED: dict[str, Callable[[Mapping[str, Any]], Iterator[tuple[Any, _Made | None]]]] = {
    "chat_completions": _of_choice,
    "completions": _of_choice,
    "responses": _of_items,
    "messages": _of_blocks,
}


def _finish(trajectory: Mapping[str, Any], exchanges: _Exchanges) -> Any:
    """How the last answer ended, in the words of its API."""
    ends = [at_path(one, _ENDS) for _, one in exchanges]
    ends += [one.get("finish_reason") for one in trajectory.get("messages_and_choices") or [] if _is_choice(one)]
    return ends[-1] if ends else None


def _prompt(choice: Mapping[str, Any], response: Mapping[str, Any]) -> Any:
    """All tokens that a call was given; None: not logged."""
    found = (one.get("prompt_token_ids") for one in (choice, response))
    return next((ids for ids in found if ids is not None and len(ids)), None)


def _is_choice(entry: Mapping[str, Any]) -> bool:
    return entry.keys() >= {"finish_reason", "message"}


def _choices(trajectory: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("chat_completions", "completions"):
        for one in at_path(trajectory, f"exchanges.{name}") or []:
            yield one["response"]["choices"][0]
    for entry in trajectory.get("messages_and_choices") or []:
        if _is_choice(entry):
            yield entry


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of messages say the same, however they are written."""
    return [*map(_essence, one)] == [*map(_essence, other)]


def _essence(message: Mapping[str, Any]) -> tuple[Any, ...]:
    return message.get("role"), message.get("content") or None, bool(message.get("tool_calls"))


def _tokens(choice: Mapping[str, Any]) -> tuple[Any, Any]:
    """Token ids and log-probabilities of a choice; None: it has none."""
    ids, logps = (
        choice.get("token_ids"),
        next((choice[name] for name in _COMPACT if choice.get(name) is not None), None),
    )
    listed = choice.get("logprobs") or {}
    if "token_logprobs" in listed:  # of the older API
        names, values = listed.get("tokens") or [], listed.get("token_logprobs")
    elif isinstance(content := listed.get("content"), Mapping):
        names, values = [], content["logprob"]
    else:
        entries = [*(content or ()), *(listed.get("refusal") or ())]
        names = [entry.get("token_id", entry.get("token")) for entry in entries]
        values = [entry.get("logprob") for entry in entries] or None
    if ids is None and names:
        found = [_token_id(name) for name in names]
        ids = None if None in found else found
    return ids if ids is not None and len(ids) else None, values if logps is None else logps


def _token_id(name: Any) -> int | None:
    """The id in `token_id:5`, as servers write tokens on request; None for a token's text."""
    if isinstance(name, str):
        begin, _, rest = name.partition(_TOKEN_ID)
        return int(rest) if not begin and rest.isdecimal() else None
    return name if isinstance(name, int) else None


# history.jsonl ------------------------------------------------------------------------------------------------------


def _scalars(path: Path, reading: Reading) -> dict[int, dict[str, Any]]:
    """By step, losses and the like, of rows that were logged together with the trajectories of a step.

    Where training is logged alone, its step is that of the checkpoint that it made, which is another one.
    """
    file = path / _HISTORY
    quiet = Reading(after=reading.after, skip_bad=reading.skip_bad, growing=True, places=reading.places)
    found = dict[int, dict[str, Any]]()
    for step, row in lines.of_steps(file, quiet) if file.is_file() else ():
        if "train/reward" in row:
            values = {ours: as_part(row.get(theirs)) for theirs, ours in _SCALARS.items()}
            found[step] = {name: value for name, value in values.items() if value is not None}
    reading.problems += quiet.problems
    return found


IMPORTER = Plain(
    "art",
    "ART trajectories",
    framework="ART",
    files=r"trajectories/train/(\d+)\.parquet",
    keys=_KEYS,
    sequences=(("reward", "reward", as_number),),
    read=_records,
    group=lambda record: record["group_index"],
    also=_trajectory,
    told=_told,
    scalars=_scalars,
    signs=(Sign("trajectories/train/*.parquet", _KEYS),),
).importer
