"""Messages of OpenAI's Responses API and of Anthropic's Messages API, as chat messages.

What a model wrote without an answer in between (a thought, a text, calls of tools) is one message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ratioscope.analysis.importers.values import content_text


def items_of(given: Any) -> list[Any]:
    """What a call of the Responses API is given: items, or a text that stands for one."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else [*(given or ())]


def of_items(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items of the Responses API."""
    found, names = list[dict[str, Any]](), dict[Any, Any]()
    for item in items:
        kind = item.get("type")
        if kind == "function_call_output":
            found.append(_answer(names.get(item.get("call_id")), item.get("output")))
        elif kind == "function_call":
            names[item.get("call_id")] = item.get("name")
            _add(found, {"role": "assistant", "tool_calls": [_call(item.get("name"), item.get("arguments"))]})
        elif kind == "reasoning":
            said = content_text(item.get("content") or item.get("summary"))
            _add(found, {"role": "assistant", "reasoning_content": said})
        else:
            _add(found, {"role": item.get("role"), "content": content_text(item.get("content"))})
    return found


def of_blocks(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of the Messages API, whose content is a text or blocks; answers of tools are messages of their own."""
    found, names = list[dict[str, Any]](), dict[Any, Any]()
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]:
            kind, role = block.get("type"), message.get("role")
            if kind == "tool_result":
                found.append(_answer(names.get(block.get("tool_use_id")), block.get("content")))
            elif kind == "tool_use":
                names[block.get("id")] = block.get("name")
                _add(found, {"role": role, "tool_calls": [_call(block.get("name"), json.dumps(block.get("input")))]})
            elif kind == "thinking":
                _add(found, {"role": role, "reasoning_content": str(block.get("thinking"))})
            else:
                _add(found, {"role": role, "content": content_text(block)})
    return found


def _answer(name: Any, content: Any) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": content_text(content)}


def _call(name: Any, arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def _add(messages: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Another part of what the model writes, or a message of its own."""
    last = messages[-1] if messages else {}
    if part["role"] != "assistant" or last.get("role") != "assistant":
        messages.append(part)
        return
    for name, value in part.items():
        if name == "tool_calls":
            last[name] = last.get(name, []) + value
        elif name != "role":
            last[name] = "\n".join(filter(None, (last.get(name), value)))
