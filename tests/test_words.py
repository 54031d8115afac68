"""What users read is plain: phrases that a reader has to read twice stay out of strings, docstrings and the docs."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("ratioscope", "analysis", "trainer", "dashboard")

BANNED = (
    "as the crow flies", "lest", "trifle", "a slip", "whoever", r"of one's own", "the own",
    r"spoil\w*", r"owns", r"nobody owns", r"had of", r"to be had", r"can(not)? be had", r"bear them out",
    r"cannot be told", r"is told", r"tells? (?:no|the) \w+ from", r"speaks? against", r"asks? for the impossible",
    r"what the policy may (?:do|say)", r"could not look", r"worth a (?:word|thought)", "goes to waste",
    r"behaviours?", r"\d(?:\.\d+)?e-\d+ ?%",
)  # fmt: skip
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})(?!\w)", re.IGNORECASE)


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings and docstrings of a module with the line that they begin on; parts of one text are joined."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def texts() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            inside = path.relative_to(ROOT)
            if not (inside.parts[0] == "ratioscope" and inside.parts[1] in PACKAGES):  # the links of a checkout
                yield from ((f"{inside}:{line}", text) for line, text in strings(path))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        lines = path.read_text(encoding="utf-8").splitlines()
        yield from ((f"{path.relative_to(ROOT)}:{number}", line) for number, line in enumerate(lines, start=1))


LONGEST = 25
"""Words of a sentence that is read once; lists are divided by semicolons, and each part counts for itself."""


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?!;])\s+|\n", text)


def test_no_sentence_on_a_page_or_in_a_terminal_is_long() -> None:
    """Strings that are put together while the program runs are held by tests/analysis/diagnosis/test_sample_runs.py."""
    queries = re.compile(r"\b(select|from|where)\b .* \b(from|where|as|by)\b")
    found = [
        f"{where}: {len(said.split())} words: {said}"
        for where, text in shown()
        if not queries.search(text)
        for said in sentences(text)
        if len(said.split()) > LONGEST
    ]
    assert found == [], "\n".join(found)


@cache
def shown() -> list[tuple[str, str]]:
    """What pages and terminals may show: all strings of the packages that have words, with their places."""
    folders = ("analysis", "dashboard", "ratioscope/catalogue")
    return [found for folder in folders for path in (ROOT / folder).rglob("*.py") for found in whole(path)]


def whole(path: Path) -> Iterator[tuple[str, str]]:
    """The strings of a module that are not docstrings, each with its inserted values as one word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    said |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            of = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, of))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_percent_stands_beside_its_number() -> None:
    """As `percent` writes it: 95%."""
    found = [where for where, text in shown() if re.search(r"[\d}] %(?![\w({])", text)]
    assert found == [], "\n".join(found)


def test_what_users_read_has_none_of_the_banned_words() -> None:
    found = [f"{where}: {hit[0]}" for where, text in texts() for hit in _BANNED.finditer(text)]
    assert found == [], "\n".join(found)


def test_the_words_are_found_where_they_stand() -> None:
    for text in ("no tail can spoil it", "AS THE CROW FLIES", "a behaviour", "1.0e-05 %", "The own rule"):
        assert _BANNED.search(text), text
    for text in ("behavior policy", "latest", "mean_ratio_trifle", "1.2e-05 nats"):
        assert not _BANNED.search(text), text
