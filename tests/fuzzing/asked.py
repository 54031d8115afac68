"""Strange questions to a run: the parameters of a page's link, and words on the command line."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard import cli
from ratioscope.dashboard.parameters import parameters
from ratioscope.dashboard.roots import serve_from
from ratioscope.errors import RatioscopeError
from tests.fuzzing.holding import Broken, Target
from tests.fuzzing.tables import copied, whole
from tests.fuzzing.values import NUMBERS, TEXTS, texts
from tests.making.pages import PAGES, visit

# Links ----------------------------------------------------------------------------------------------------------------


def ask_page(inside: Path, example: tuple[str, dict[str, str]]) -> None:
    """A page of the app with such parameters in its link; `visit` looks for exceptions on it."""
    page, query = example
    before = os.environ.get("RATIOSCOPE_ROOTS", "")
    serve_from([whole().parent])
    try:
        at = visit(page, **{"run": "run"} | query)
    finally:
        os.environ["RATIOSCOPE_ROOTS"] = before
    if any("root:x:" in str(element.value) for element in (*at.markdown, *at.text, *at.code)):
        raise Broken("a file of the machine is shown")


_plain = texts.filter(lambda text: text.isprintable() or "\n" in text)
_values = (
    st.sampled_from([*CATALOGUE])
    | st.sampled_from([str(number) for number in NUMBERS if number != 10**400])
    | st.sampled_from(["grpo", "sequence", "true", "tokens", "0,1", "1:2"])
    | _plain
)

# Commands -------------------------------------------------------------------------------------------------------------

_COMMANDS = {
    "ls": ("--json",),
    "summarize": ("--json", "--steps", "--thresholds"),
    "diagnose": ("--json", "--thresholds", "--refuse-run-limits"),
    "check": ("--json", "--steps", "--thresholds", "--fail-on"),
    "compare": ("--metric", "--json"),
    "report": ("--pages", "--steps", "--metric", "--framework", "--post-mortem", "--thresholds", "--output"),
    "translate": ("--to", "--json", "--framework"),
    "partials": ("--shard", "--json"),
    "compact": ("--ended",),
    "explain": (),
    "import": ("--name", "--format", "--mapping", "--to"),
    "cache": ("--only",),
}
_WRITING = ("report", "import", "compact", "partials")
_FLAGS = ("--json", "--refuse-run-limits", "--post-mortem", "--ended")
_MAY_END = (0, cli.PROBLEMS_FOUND, cli.USAGE_ERROR)


def ask_command(inside: Path, example: tuple[str, list[tuple[str, str]], list[str]]) -> None:
    """A command with options and arguments; "RUN" is a good run. A gate's exit code is never that of a crash."""
    command, options, arguments = example
    run = copied(inside)
    if command in _WRITING:  # these get no path of the machine
        options = [(option, value.lstrip("/~")) for option, value in options]
        arguments = [argument.lstrip("/~") for argument in arguments]
    words = [command]
    words += ["--output", str(inside / "report.json")] * (command == "report")
    for option, value in options:
        words += [option] if option in _FLAGS else [f"{option}={value}"]
    words += [str(run) if argument == "RUN" else argument for argument in arguments]
    code, out, err = _run([word.replace("\x00", "?") for word in words], inside)
    if code not in _MAY_END:
        raise Broken(f"exit code {code}: {err[-300:]}")
    if "Traceback" in out + err:
        raise Broken(f"a traceback: {err[-300:]}")
    if code == cli.USAGE_ERROR and not err.strip():
        raise Broken("a mistake without a word")
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in out + err):
        raise Broken(f"control characters reach the terminal: {(out + err)[:300]!r}")
    if code == cli.USAGE_ERROR:
        raise RatioscopeError("It was refused.")
    kept = summarise(open_run(run)).values["n_tokens"].sum()
    if kept != summarise(open_run(whole())).values["n_tokens"].sum():
        raise Broken("the run has other tokens than before")


def _run(words: list[str], inside: Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    argv, here = sys.argv, Path.cwd()
    sys.argv = ["ratioscope", *words]
    os.chdir(inside)
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as ending:
        code = ending.code or 0
    finally:
        sys.argv = argv
        os.chdir(here)
    return int(code), out.getvalue(), err.getvalue()


@st.composite
def _command(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], list[str]]:
    name = draw(st.sampled_from([*_COMMANDS]))
    known = _COMMANDS[name]
    option = st.tuples(st.sampled_from(known) if known else st.just("--x"), _values)
    options = draw(st.lists(option, max_size=2)) if known or draw(st.booleans()) else []
    return name, options, draw(st.just(["RUN"]) | st.lists(st.just("RUN") | _values, max_size=2))


def _command_kind(example: tuple[str, list[tuple[str, str]], list[str]]) -> str:
    name, options, arguments = example
    said = [f"{option} {TEXTS.index(value) if value in TEXTS else value[:8]}" for option, value in options[:1]]
    return " ".join([name, *said, "of a run" if arguments == ["RUN"] else "of something else"])


TARGETS = {
    "links": Target(
        st.tuples(
            st.sampled_from(PAGES),
            st.dictionaries(st.sampled_from(sorted(parameters())), _values, min_size=1, max_size=4),
        ),
        ask_page,
        lambda e: f"{e[0]} {next(iter(e[1]))}",
        few=2,
    ),
    "commands": Target(_command(), ask_command, _command_kind, few=4),
}
