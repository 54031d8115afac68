"""JSON lines: the same objects whichever parser reads them, and every bad line by its number."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratioscope.analysis.importers import ImportProblem, Reading, lines
from tests.making.loops import in_one_loop

OBJECTS: dict[str, str] = {
    "numbers": '{"x": [1, 2.5, -3e-2], "n": [1, 2], "m": [true, false]}',
    "NaN as Python writes it": '{"x": [NaN, Infinity, -Infinity, 0.5]}',
    "null among numbers": '{"x": [0.5, null]}',
    "lists in a list": '{"x": [[1, 2], [3]], "n": [1, [2, 3]]}',
    "nothing": '{"x": [], "n": {}}',
    "an integer first": '{"x": [0, 0.25]}',
    "integers beyond 64 bits": '{"n": 123456789012345678901234567890, "x": [18446744073709551615]}',
    "half a character": '{"t": "\\ud800", "x": [1]}',
    "text and more": '{"t": "a\\u0000b ü", "n": {"x": [1, 2]}, "x": "none"}',
    "too large for a double": '{"x": [1e400]}',
}


@pytest.fixture(params=["simdjson", "json"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "json":
        monkeypatch.setattr(lines, "simdjson", None)
    elif lines.simdjson is None:
        pytest.skip("pysimdjson is not installed")
    return request.param


def write(path: Path, *texts: str | bytes) -> Path:
    path.write_bytes(b"".join(text.encode() if isinstance(text, str) else text for text in texts))
    return path


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)  # NaN is itself


@in_one_loop("text", OBJECTS)
def test_a_line_is_what_python_reads(text: str, parser: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", text + "\n")
    wanted = json.loads(text)
    assert same(dict(lines.read(path, Reading())), {1: wanted})
    ((number, found),) = lines.read(path, Reading(), arrays=["x", "n", "m"])
    assert (number, list(found)) == (1, list(wanted))
    for key, value in wanted.items():
        assert same(plain(found[key]), value) or np.array_equal(found[key], value)
    only = dict(lines.read(path, Reading(), only=["x"]))
    assert same(only, {1: {key: value for key, value in wanted.items() if key == "x"}})


def test_lists_of_numbers_are_arrays_and_others_are_lists(parser: str, tmp_path: Path) -> None:
    text = (
        '{"f": [0, 0.5], "i": [1, 2], "b": [true], "nan": [NaN], "null": [1, null], "deep": [[1], [2]], "t": [1, true]}'
    )
    path = write(tmp_path / "a.jsonl", text + "\n")
    ((_, found),) = lines.read(path, Reading(), arrays=["f", "i", "b", "nan", "null", "deep", "t"])
    kinds = {key: value.dtype.kind if isinstance(value, np.ndarray) else "list" for key, value in found.items()}
    assert kinds == {"f": "f", "i": "i", "b": "b", "nan": "f", "null": "list", "deep": "list", "t": "list"}
    assert [type(one) for one in found["deep"]] == [np.ndarray] * 2


def test_an_array_outlives_the_lines_after_it(parser: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *(json.dumps({"x": [float(n)] * 50}) + "\n" for n in range(200)))
    rows = [row["x"] for _, row in lines.read(path, Reading(), arrays=["x"])]
    assert [set(row.tolist()) for row in rows] == [{float(n)} for n in range(200)]


BAD: dict[str, tuple[bytes, str]] = {
    "truncated": (b'{"a": [1, 2\n', "not JSON"),
    "two": (b'{"a": 1} {"a": 2}\n', "not JSON"),
    "no text": (b"\xff\xfe{}\n", "not JSON"),
    "a list": (b"[1, 2]\n", "this is a list"),
    "a number": (b"17\n", "this is a number"),
    "null": (b"null\n", "this is null"),
    "a word": (b"nothing\n", "not JSON"),
    "too deep": (b"[" * 100_000 + b"\n", "not JSON"),
}


@in_one_loop("case", BAD)
def test_a_bad_line_is_named_wherever_it_is(case: tuple[bytes, str], parser: str, tmp_path: Path) -> None:
    bad, said = case
    for place in range(3):
        good = [b'{"a": 0}\n', b"\n", b'{"a": 1}\n']
        path = write(tmp_path / "a.jsonl", *good[:place], bad, *good[place:])
        with pytest.raises(ImportProblem) as problem:
            list(lines.read(path, Reading()))
        assert str(problem.value).startswith(f"{path}, line {place + 1}: ")
        assert said in str(problem.value) and str(problem.value).endswith(".")
        reading = Reading(skip_bad=True)
        assert [row["a"] for _, row in lines.read(path, reading)] == [0, 1]
        assert reading.problems == [str(problem.value)]


def test_a_last_line_without_its_end_is_left_for_later_while_the_file_grows(parser: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 0}\n', '{"a": 1')
    assert [row["a"] for _, row in lines.read(path, Reading(growing=True))] == [0]
    with pytest.raises(ImportProblem, match="line 2: the file ends within this line"):
        list(lines.read(path, Reading()))
    write(path, '{"a": 0}\n', '{"a": 1}')  # whole, without a line's end
    assert [row["a"] for _, row in lines.read(path, Reading())] == [0, 1]


def test_bytes_are_counted_and_a_file_that_is_gone_is_a_sentence(parser: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 0}\n\n', '{"a": 1}\n')
    reading = Reading()
    list(lines.read(path, reading))
    assert reading.bytes_read == path.stat().st_size
    with pytest.raises(ImportProblem, match=r"b\.jsonl: cannot be read"):
        list(lines.read(tmp_path / "b.jsonl", Reading()))


def test_a_line_that_is_not_wanted_is_not_parsed_and_counted_all_the_same(tmp_path: Path, parser: str) -> None:
    file = write(tmp_path / "a.jsonl", '{"a": 1}\n', "no JSON, and not wanted\n", '{"a": 3}\n')
    found = list(lines.read(file, Reading(), wanted=lambda line: b"{" in line))
    assert found == [(1, {"a": 1}), (3, {"a": 3})]


def test_lists_at_a_path_are_arrays_wherever_they_stand(parser: str, tmp_path: Path) -> None:
    record = {
        "a": [{"x": [1, 2], "m": [True, False], "t": "y"}, {"x": [None, 0.5]}, {}, 3],
        "x": [1],
        "b": {"x": [2.5]},
    }
    record |= {"g": [[1, 2], [3], []], "m": [True, "t"], "f": [False, [True]]}
    path = write(tmp_path / "a.jsonl", json.dumps(record) + "\n")
    ((_, found),) = lines.read(path, Reading(), arrays=["a[*].x", "a[0].m", "none|b.x", "g", "m", "f"])
    assert plain_all(found) == record
    assert isinstance(found["a"][0]["x"], np.ndarray) and found["a"][0]["m"].dtype == bool
    assert isinstance(found["b"]["x"], np.ndarray) and [type(each) for each in found["g"]] == [np.ndarray] * 3
    assert isinstance(found["x"], list) and isinstance(found["m"], list) and isinstance(found["a"][1]["x"], list)


NUMBERS = [
    ([[{"p": 1, "t": "a"}, {"p": -0.5}], []], [[1.0, -0.5], []]),
    ([[{"p": 1e300}, {"p": 2}], [{"t": ']"p": 3', "p": 0.1}]], [[1e300, 2.0], [0.1]]),
    ([[{"p": 1}, {"q": 2}]], None),
    ([[{"p": 1}, {"p": None}]], None),
    ([[{"p": 1}], [{"p": "x"}]], None),
    ([[{"p": 1, "more": [{"p": 3}]}]], None),
]


def test_numbers_in_lists_of_objects_are_arrays_where_the_text_tells_them() -> None:
    parse = lines.Parser(["calls[*].ids"], numbers=["calls[*].logs.content[*].p"])
    for contents, expected in NUMBERS:
        record = {"p": "", "calls": [{"ids": [1, 2], "logs": {"content": content}} for content in contents]}
        if expected is not None:
            del record["p"]
        for separators in ((",", ":"), (", ", ": ")):
            found = parse(json.dumps(record, separators=separators).encode())
            told = [call["logs"]["content"] for call in found["calls"]]
            if expected is None:
                assert told == contents, contents
            else:
                assert [one and list(one["p"]) for one in told] == expected, contents
            assert [type(call["ids"]) for call in found["calls"]] == [np.ndarray] * len(contents)


def test_as_many_numbers_as_there_should_be_are_not_taken_if_one_stands_elsewhere() -> None:
    parse = lines.Parser(numbers=["calls[*].content[*].p"])
    calls = [{"content": [{"p": 1.0}, {"q": 2.0}, {"p": 3.0}]}, {"content": [{"p": 4.0}]}]
    for record in ({"p": 0.5, "calls": calls}, {"calls": calls, "p": 0.5}):
        assert parse(json.dumps(record).encode()) == record


def plain_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain_all(each) for key, each in value.items()}
    return [plain_all(each) for each in value] if isinstance(value, list) else plain(value)
