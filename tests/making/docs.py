"""The generated parts of docs/*.md, from the declarations in the code: `make docs` writes them, a test finds old ones.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; to add one, name it in `PARTS` and put both marks
on a page. Everything outside of them is written by hand.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ratioscope import analysis
from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.drift.pairs import PAIRS
from ratioscope.analysis.frameworks.presets import PRESETS as FRAMEWORK_PRESETS
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.analysis.laboratory import EXPERIMENTS
from ratioscope.analysis.linter import CHECKS
from ratioscope.catalogue import CATALOGUE, ENTRIES, THRESHOLDS, divergences, learning, theory, total_variation, weights
from ratioscope.dashboard.assistant.tools import TOOLS
from ratioscope.dashboard.sections import MENU, SECTIONS
from ratioscope.metric import CURRENT, MOST_RELIANCE, SAMPLED, Metric, Moment, Population
from ratioscope.notes import Kind
from ratioscope.rules.filters import FILTERS
from ratioscope.rules.gates import GATES
from ratioscope.rules.ratios import LEVELS
from ratioscope.rules.weights import WEIGHTS
from ratioscope.run_format import schema
from ratioscope.trainer.algorithms import advantages, losses, regularisers, selection
from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES
from ratioscope.trainer.settings.table import presets, sections
from tests.cases import score
from tests.cases.case import linked
from tests.making import questions, upstream

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs"
_PART = re.compile(r"(<!-- generated: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """Pages of docs/ that have generated parts."""
    return [page for page in sorted(FOLDER.glob("*.md")) if _PART.search(page.read_text(encoding="utf-8"))]


def made(text: str) -> str:
    """A page's text with its generated parts as they are to be.

    Raises:
        KeyError: a part that is not in PARTS.
    """
    return _PART.sub(lambda found: f"{found[1]}\n{PARTS[found['name']]().strip()}\n\n{found[3]}", text)


def names(text: str) -> list[str]:
    """The generated parts of a page."""
    return [found["name"] for found in _PART.finditer(text)]


# Small helpers --------------------------------------------------------------------------------------------------------


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _first(part: Any) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((inspect.getdoc(part) or "").split("\n\n")[0].split())


def _math(formula: str) -> str:
    """LaTeX as GitHub draws it, also in tables: a bar would end the cell."""
    return f"$`{formula.replace('|', chr(92) + 'vert ')}`$"


def _link(key: str) -> str:
    return f"[`{key}`](metrics.md#{key})"


# metrics.md -----------------------------------------------------------------------------------------------------------


def needs(metric: Metric) -> str:
    """Columns of the run format without which a metric is missing; empty where it needs none."""
    columns = [*reversed(metric.needs)]
    ratio = CURRENT.columns in columns and SAMPLED in columns
    if ratio:
        columns = [each for each in columns if each not in (CURRENT.columns, SAMPLED)]
    return " and ".join(["a ratio"] * ratio + [" or ".join(f"`{name}`" for name in each) for each in columns])


def _metric(metric: Metric) -> str:
    words = [f'<a id="{metric.key}"></a>**`{metric.key}`** {metric.title}: {_math(metric.formula)}', metric.definition]
    facts = [metric.source]
    if metric.unit:
        facts.append(f"in {metric.unit}")
    elif metric.share:
        facts.append("a share")
    if needs(metric):
        facts.append(f"needs {needs(metric)}")
    if metric.key in CATALOGUE and metric.population is not Population.SAMPLED:
        facts.append(metric.population.value)
    if metric.moment is Moment.SECOND:
        facts.append(f"unreliable above {MOST_RELIANCE:g} in `{metric.reliance}`")
    if metric.spread:
        facts.append(f"judged over the run by `{metric.spread}`")
    return f"- {'<br>'.join(words)}<br>*{'; '.join(facts)}*"


def _metrics(module: Any) -> Callable[[], str]:
    return lambda: "\n".join(_metric(entry) for entry in module.ENTRIES)


def _thresholds() -> str:
    rows = (
        (f'<a id="{row.name}"></a>`{row.name}`', row.symbol, f"{row.value:g}", f"{row.lowest:g} to {row.highest:g}",
         row.meaning, row.source)
        for row in THRESHOLDS.values()
    )  # fmt: skip
    return _table(("threshold", "", "value", "may be", "meaning", "source"), rows)


def _code(function: Callable[..., Any]) -> list[ast.AST]:
    """What a function consists of, with the functions of its module that it calls."""
    module = vars(inspect.getmodule(function))
    found, todo = {function}, [function]
    nodes: list[ast.AST] = []
    while todo:
        of_one = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(todo.pop())))))
        nodes += of_one
        called = {node.func.id for node in of_one if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        for other in (module.get(name) for name in called):
            if inspect.isfunction(other) and other.__module__ == function.__module__ and other not in found:
                found.add(other)
                todo.append(other)
    return nodes


def _limits(function: Callable[..., Any]) -> list[str]:
    """Thresholds that a rule asks for, by the attributes of `Limits` and `Facts` in its code."""
    derived = {
        "update": "epsilon",
        "staleness": "epsilon_stale",
        "engine": "mult_prob_error",
        "log_chi2": "chi2",
        "reward_lost": "reward_fall",
    }
    used = (
        derived.get(node.attr, node.attr)
        for node in _code(function)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(("limits", "facts"))
    )
    return sorted(set(used) & THRESHOLDS.keys())


def _source(function: Callable[..., Any]) -> str:
    """What a rule's finding names as its source, where its code says it."""
    given = [keyword.value for node in _code(function) if isinstance(node, ast.Call) for keyword in node.keywords
             if keyword.arg == "source"]  # fmt: skip
    return "; ".join(dict.fromkeys(str(value.value) for value in given if isinstance(value, ast.Constant)))


def _rules() -> str:
    rows = (
        (
            f"`{name}`",
            rule.question,
            ", ".join(f"[`{limit}`](#{limit})" for limit in _limits(rule.function)),
            _source(rule.function),
        )
        for name, rule in RULES.items()
    )
    return _table(("finding", "when", "thresholds", "source"), rows)


def _checks() -> str:
    return _table(("check", "what it looks for"), ((f"`{name}`", check.question) for name, check in CHECKS.items()))


# glossary.md ----------------------------------------------------------------------------------------------------------


def _terms(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"- **{term}**: {text}" for term, text in rows)


def _glossary_metrics() -> str:
    entries = sorted(ENTRIES.values(), key=lambda entry: entry.title.lower())
    return "\n".join(
        f"- **{entry.title}** {_math(entry.symbol)}: {entry.definition} {_link(entry.key)}" for entry in entries
    )


def _glossary_thresholds() -> str:
    rows = sorted(THRESHOLDS.values(), key=lambda row: row.name)
    return _terms((f"`{row.name}`{f' ({row.symbol})' if row.symbol else ''}",
                   f"{row.meaning}. [{row.value:g}](metrics.md#{row.name})") for row in rows)  # fmt: skip


def _glossary_pairs() -> str:
    return _terms((f"`{name}`", f"{pair.title}. {pair.tells}") for name, pair in PAIRS.items())


def _parts(**kinds: Mapping[str, Callable[..., Any]]) -> Callable[[], str]:
    return lambda: "\n\n".join(
        f"### {kind[0].upper()}{kind[1:].replace('_', ' ')}\n\n"
        + _terms((f"`{name}`", _first(part)) for name, part in of.items())
        for kind, of in kinds.items()
    )


def _algorithms() -> str:
    others = {name: [alias for alias, of in ALIASES.items() if of == name] for name in ALGORITHMS}
    rows = (
        (f"`{name}`" + "".join(f", `{alias}`" for alias in others[name]),
         f"{row.title}: {row.gradient} ({row.source}). `ratioscope explain {name}`")
        for name, row in ALGORITHMS.items()
    )  # fmt: skip
    return _terms(rows)


def _presets() -> str:
    return _terms((f"`{name}`", words) for name, words in presets().items())


# training.md ----------------------------------------------------------------------------------------------------------


def _trainer_presets() -> str:
    return _table(("preset", "what it shows"), ((f"`{name}`", words) for name, words in presets().items()))


def _trainer_settings() -> str:
    """Every setting by section, a table each."""
    return "\n\n".join(
        f"**{section}**: {about}\n\n"
        + _table(
            ("setting", "default", "allowed", "what it is for"),
            ((f"`{row.name}`", f"`{row.default}`", row.allowed, row.words) for row in rows),
        )
        for section, (about, rows) in sections().items()
    )


def _experiments() -> str:
    rows = ((each.claim, each.source, f"`ratioscope lab {key}`") for key, each in EXPERIMENTS.items())
    return _table(("claim", "where", "play with it here"), rows)


def _frameworks() -> str:
    rows = ((each.title, f"{each.repository} {each.version}", f"`{each.files}`") for each in FRAMEWORKS.values())
    return _table(("framework", "release or snapshot", "files"), rows)


def _held() -> str:
    """What importers and recorders were read against, by program."""
    read: dict[tuple[str, str], list[str]] = {}
    for held in upstream.held_parts():
        if not held.part.startswith("analysis/frameworks"):
            release = " and ".join(held.releases) + (", the last to write it" if held.past else "")
            read.setdefault((held.program, release), []).append(f"`{held.part}`")
    rows = ((program, release, ", ".join(parts)) for (program, release), parts in sorted(read.items()))
    return _table(("program", "release or commit", "read for"), rows)


def _framework_presets() -> str:
    rows = (
        (preset.framework.title, f"{preset.setting}{' *is the default*' * preset.default}", f"`{preset.rule}`",
         preset.note)
        for preset in FRAMEWORK_PRESETS
    )  # fmt: skip
    return _table(("framework", "setting", "rule", "note"), rows)


def _members(kind: type) -> dict[str, str]:
    """The sentence below each member of an enumeration."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
    return {
        one.targets[0].id: " ".join(ast.literal_eval(following.value).split())  # type: ignore[attr-defined]
        for one, following in pairwise(body)
        if isinstance(one, ast.Assign) and isinstance(following, ast.Expr)
    }


def _kinds() -> str:
    return _terms((f"{Kind[name].value}", text) for name, text in _members(Kind).items())


# cases.md -------------------------------------------------------------------------------------------------------------


def _cases() -> str:
    """The recorded verdicts; of healthy runs those alone that are not quiet."""
    logs, recorded = score.logs(), score.recorded()
    counts = score.counted(recorded)
    headings = {
        "faults": ("Faults", "report"),
        "sick but true": ("Sick runs with a true log", ""),
        "healthy": ("Healthy runs", ""),
    }
    for word in score.HELD_OUT:
        headings |= {
            f"{word} faults": (f"{word.capitalize()}: faults that nothing was tuned with", "report"),
            f"{word} sick but true": (f"{word.capitalize()}: sick runs with a true log", ""),
            f"{word} healthy": (f"{word.capitalize()}: healthy runs", ""),
        }
    found = []
    for kind, (title, report) in headings.items():
        if kind not in counts:
            continue
        rows = []
        for name, each in recorded.items():
            case = logs[name][0]
            if score.kind_of(case) != kind or (case.family == "healthy" and each.verdict == "quiet"):
                continue
            said = f"{each.sentence} (`{each.rule}`, {each.severity})" if each.sentence else "nothing"
            rows.append(
                (
                    f"`{name}`",
                    *filter(None, [report and (linked(case.report) if case.report else "–")]),
                    case.truth,
                    each.verdict,
                    said,
                )
            )
        header = ("log", *filter(None, [report]), "a perfect tool says", "verdict", "ratioscope says")
        text = f"### {title}\n\n{score.in_words(counts[kind])} of {sum(counts[kind].values())} logs."
        if kind in score.FIRST_SCORE:
            text += f" When they were first scored: {score.FIRST_SCORE[kind]}."
        found.append(f"{text}\n\n{_table(header, rows)}" if rows else text)
    return "\n\n".join(found)


# run_format.md --------------------------------------------------------------------------------------------------------


def _tables() -> str:
    found = []
    for table in (*schema.ALL_TABLES.values(), schema.VOCABULARY):
        rows = (
            (f"`{column.name}`", str(column.type), "●" if column.required else "", column.unit, column.meaning)
            for column in table.columns
        )
        key = ", ".join(f"`{name}`" for name in table.key)
        columns = _table(("column", "type", "required", "unit", "meaning"), rows)
        found.append(f"### {table.name}\n\nA row is {table.grain}. Key: {key}.\n\n{columns}")
    return "\n\n".join(found)


# architecture.md ------------------------------------------------------------------------------------------------------


def rooms() -> list[str]:
    """The rooms of analysis."""
    folder = Path(analysis.__path__[0])
    return sorted(found.parent.name for found in folder.glob("*/__init__.py"))


_IMPORT = re.compile(r"^\s*(?:from|import) ratioscope\.analysis\.(\w+)", re.MULTILINE)


def floors() -> dict[str, int]:
    """On which floor a room stands: one above the highest room that it imports.

    Raises:
        RecursionError: rooms import each other in a circle.
    """
    below: dict[str, set[str]] = {room: set() for room in rooms()}
    for room in below:
        for file in (ROOT / "analysis" / room).rglob("*.py"):
            below[room] |= set(_IMPORT.findall(file.read_text(encoding="utf-8"))) - {room}

    def floor(room: str) -> int:
        return 1 + max(map(floor, below[room]), default=0)

    return {room: floor(room) for room in below}


def _rooms() -> str:
    def modules(room: str) -> str:
        folder = ROOT / "analysis" / room
        inside = {path.stem for path in folder.glob("*.py")}
        inside |= {f"{path.parent.name}/" for path in folder.glob("*/*.py")}
        return ", ".join(sorted(inside - {"__init__"}))

    def question(room: str) -> str:
        tree = ast.parse((ROOT / "analysis" / room / "__init__.py").read_text(encoding="utf-8"))
        return " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())

    def seen(room: str) -> str:
        def is_in(folder: str) -> bool:
            return any((ROOT / "dashboard" / folder / name).exists() for name in (f"{room}.py", room))

        found = {
            "page": room in MENU or is_in("views"),
            "figures": is_in("figures"),
            "report": room in SECTIONS or room == "compare",
        }
        return ", ".join(word for word, there in found.items() if there)

    rows = (
        (str(floor), f"[`{room}`](../analysis/{room})", question(room), modules(room), seen(room))
        for room, floor in sorted(floors().items(), key=lambda item: (item[1], item[0]))
    )
    return _table(("floor", "room", "question", "modules", "in the dashboard"), rows)


# assistants.md --------------------------------------------------------------------------------------------------------


def _tools() -> str:
    rows = (
        (f"`{tool.name}`", ", ".join(f"`{name}`" for name in [*inspect.signature(tool.function).parameters][1:]),
         _first(tool.function))
        for tool in TOOLS.values()
    )  # fmt: skip
    return _table(("tool", "arguments", "answer"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "total variation": _metrics(total_variation),
    "divergences": _metrics(divergences),
    "weights": _metrics(weights),
    "learning": _metrics(learning),
    "theory": _metrics(theory),
    "thresholds": _thresholds,
    "findings": _rules,
    "checks": _checks,
    "glossary of metrics": _glossary_metrics,
    "glossary of thresholds": _glossary_thresholds,
    "glossary of pairs": _glossary_pairs,
    "glossary of gates": _parts(
        gates={name: row.function for name, row in GATES.items()},
        filters={name: row.function for name, row in FILTERS.items()},
        weights={name: row.function for name, row in WEIGHTS.items()},
        levels={name: level.of for name, level in LEVELS.items()},
    ),
    "glossary of algorithms": _algorithms,
    "glossary of parts": _parts(
        advantages=advantages.GROUP_ADVANTAGES | advantages.TOKEN_ADVANTAGES,
        selections=selection.SELECTIONS,
        sample_weights=selection.SAMPLE_WEIGHTS,
        aggregations=losses.AGGREGATIONS,
        regularisers=regularisers.REGULARISERS,
        KL_estimators=regularisers.KL_ESTIMATORS,
    ),
    "glossary of schedules": _presets,
    "glossary of notes": _kinds,
    "presets": _trainer_presets,
    "settings": _trainer_settings,
    "cases": _cases,
    "assistant tools": _tools,
    "tables": _tables,
    "rooms": _rooms,
    "experiments": _experiments,
    "frameworks": _frameworks,
    "held": _held,
    "framework presets": _framework_presets,
}


if __name__ == "__main__":
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if made(text) != text:
            page.write_text(made(text), encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}", file=sys.stderr)
    for page in questions.pages():
        text = page.read_text(encoding="utf-8")
        if questions.made(text) != text:
            page.write_text(questions.made(text), encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}", file=sys.stderr)
