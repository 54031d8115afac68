"""What page and report both say stands in the sections only: a view repeats no text of them, and no title comes twice.

Texts are those of the sources, an f-string as its fixed words.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ratioscope import dashboard
from ratioscope.dashboard.sections import PAGES

DASHBOARD = Path(dashboard.__file__).parent
# Where a call has its titles and questions: places of arguments; `title=` wherever there is one.
TITLES = {
    "Chart": (1,), "Page": (2,), "Part": (1,), "Section": (1, 2), "Table": (0,), "chart": (2,),
    "subheader": (0,), "fold": (1,),
}  # fmt: skip
HEADING = re.compile(r"#{2,6} ")
FEWEST_WORDS = 4
"""Of fewer words a text is a unit, the name of a column or a value."""


def sources(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    for room in rooms:
        for file in sorted((DASHBOARD / room).rglob("*.py")):
            yield str(file.relative_to(DASHBOARD)), ast.parse(file.read_text("utf-8"))


def words_of(node: ast.AST) -> str | None:
    """What a string says, with {} where something is put in; None: this is no string."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def strings(module: ast.Module) -> Iterator[str]:
    """All but docstrings."""
    nodes = list(ast.walk(module))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part != node}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    yield from (words for node in nodes if id(node) not in parts and (words := words_of(node)))


def texts(module: ast.Module) -> set[str]:
    """What the module says: all strings of several words, headings without their marks."""
    found = {HEADING.sub("", words).strip() for words in strings(module) if not words.startswith(":material/")}
    return {text for text in found if len(re.findall(r"[^\W\d_]{2,}", text)) >= FEWEST_WORDS}


def titles(module: ast.Module) -> Iterator[str]:
    """The headings, and what calls are given as a title or as a question."""
    yield from (HEADING.sub("", words) for words in strings(module) if HEADING.match(words))
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [node.args[place] for place in TITLES.get(called, ()) if place < len(node.args)]
            given += [keyword.value for keyword in node.keywords if keyword.arg == "title"]
            yield from (words for each in given if (words := words_of(each)))


def test_a_view_repeats_nothing_of_a_section() -> None:
    of_sections = {text: file for file, module in sources("sections") for text in texts(module)}
    assert len(of_sections) > 150
    repeated = {
        (text, file, of_sections[text])
        for file, module in sources("views")
        for text in texts(module)
        if text in of_sections
    }
    assert not repeated


def test_no_title_comes_twice() -> None:
    found = [(title, file) for file, module in sources("views", "sections") for title in titles(module)]
    assert {"How the runs went", "Noise floor", PAGES["tokens"].question} <= set(dict(found))
    places: dict[str, set[str]] = {}
    for title, file in found:
        places.setdefault(title, set()).add(file)
    # The words of some come from the catalogue or the analysis.
    assert not {title: files for title, files in places.items() if len(files) > 1 and re.search(r"[a-z]{2}", title)}


def test_what_is_said_twice_is_found() -> None:
    """The tests above bite: whether a heading or an argument, a string or an f-string."""
    view = ast.parse("""st.markdown(f"##### How old are the {what}?", help="In steps of the sampler")""")
    section = ast.parse("""Table(f"How old are the {which}?", head, rows, note="In steps of the sampler")""")
    assert list(titles(view)) == list(titles(section)) == ["How old are the {}?"]
    assert texts(view) == texts(section) == {"How old are the {}?", "In steps of the sampler"}
