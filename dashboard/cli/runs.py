"""`ratioscope ls`, `summarize` and `explain`: what runs there are, their numbers, and what the numbers mean."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ratioscope.dashboard.cli import completion
from ratioscope.dashboard.cli.common import DEFAULT_ROOT, Quiet, RunFolder, app, check_is_folder, examples, opened
from ratioscope.dashboard.terminal import print_line, say_json, working
from ratioscope.errors import RatioscopeError, unknown
from ratioscope.extras import needing
from ratioscope.inert import one_line
from ratioscope.storage.places import place

# The columns of the table for the eye.
_SHOWN = (
    "n_tokens", "reward", "eval_accuracy", "s_k_bounded", "u_k", "clip_fraction", "ess_token", "khat_token",
    "chi2_token",
)  # fmt: skip
_ROWS = 20
# Words of `explain` that stand for a list.
_LISTS = ("format", "metrics", "algorithms", "parts", "findings", "checks", "causes", "thresholds")
_TRAINER_LISTS = ("presets", "settings")
_MOST_MEANT = 12
_SHORTEST = 4
"""Letters of what is looked for in texts."""


@app.command(name="ls", epilog=examples("ls sample_runs", "ls sample_runs --json"))
def list_runs(
    root: Annotated[
        Path, typer.Argument(help="Folder or URL with runs.", parser=place, autocompletion=completion.folders)
    ] = DEFAULT_ROOT,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """List runs with status and number of steps.

    --json prints a list with one object per run, newest first: run (its folder below ROOT), name, status, algorithm,
    source (the framework that an imported run comes from), steps, created, problem. Unknown is null.
    """
    from ratioscope.analysis.runs.store import discover

    check_is_folder(root)
    rows = [run.to_json() for run in discover([root])]
    if as_json:
        say_json(rows, indent=2)
        return
    if not rows:
        print_line(f"No runs below {root}.")
    names = [one_line(row["run"]) for row in rows]
    width = max(map(len, names), default=0)
    for name, row in zip(names, rows, strict=True):
        named = " from ".join(str(row[key]) for key in ("algorithm", "source") if row[key])
        named = f"from {named}" if row["source"] and not row["algorithm"] else named
        last = one_line(str(row["problem"] or named or "-"))
        steps = f"{row['steps']:>6} step{'s' if row['steps'] != 1 else ' '}"
        print_line(f"{name:<{width}}  {row['status']:<11}  {steps}  {last}")


@app.command(
    epilog=examples(
        "summarize sample_runs/sync_interval20-grpo-seed0",
        "summarize sample_runs/sync_interval20-grpo-seed0 --json",
        "summarize sample_runs/sync_interval20-grpo-seed0 --csv",
        "summarize sample_runs/sync_interval20-grpo-seed0 --metric eval_accuracy --metric s_k_bounded",
    )
)
def summarize(
    run: RunFolder,
    as_json: Annotated[
        bool, typer.Option("--json", help="Every metric of every step, with intervals and notes.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Every metric of every step, with the ends of its interval.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="This metric only; may be repeated. Not of --json.", autocompletion=completion.metrics),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Every metric of a run, step by step.

    Without --json or --csv it is a short table of the last 20 steps; with --metric of all steps.

    --json prints an object: schema_version, run, steps. Each step has step, every metric by its key (null: undefined,
    the reason is in notes), intervals, and notes. --csv has one row per step and three columns per metric: KEY, KEY.low
    and KEY.high; undefined is empty.
    """
    from ratioscope.analysis.summary.summary import Summariser, summary_json
    from ratioscope.dashboard.bridge.numbers import chosen

    if as_json and (as_csv or metric):
        raise RatioscopeError(f"--json and {'--csv' if as_csv else '--metric'} exclude each other; choose one of them.")
    wanted = chosen(metric) if metric else []
    found = opened(run)
    with working("Reading", quiet) as progress:
        summary = Summariser().summarise(found, progress)
    if as_json:
        say_json(summary_json(found, summary))
    elif as_csv:
        print_line(_csv(summary_json(found, summary)["steps"], wanted or [str(key) for key in summary.values.columns]))
    else:
        shown = summary.values[wanted or list(_SHOWN)].dropna(axis="columns", how="all")
        shown = shown if wanted else shown.tail(_ROWS)
        if len(shown.columns):
            print_line(shown.to_string(float_format=lambda value: f"{value:.4g}", na_rep="-"))
        if absent := [name for name in wanted or _SHOWN if name not in shown]:
            print_line(f"Not logged, or undefined in every step: {', '.join(absent)}; --json says why.")


@app.command(
    epilog=examples(
        "explain s_k_bounded",
        "explain grpo",
        "explain grpo gate=two_side",
        "explain sync_interval",
        "explain actor/ppo_kl",
        "explain staleness_high",
        "explain thresholds",
    )
)
def explain(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A metric, an algorithm, a preset or setting of the trainer, a finding, a check, a cause, a metric of "
            "a framework; or a list: format, metrics, algorithms, parts, presets, settings, findings, checks, causes, "
            "thresholds.",
            autocompletion=completion.explained,
        ),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PART=CHOICE", help="Of an algorithm: parts to exchange, e.g. gate=two_side."),
    ] = None,
) -> None:
    """What a metric, an algorithm or a finding is, with its source; which metric another framework's number is."""
    if what and (parts or ".py:" in what):
        with needing("An algorithm with other parts", "ratioscope[trainer]"):
            from ratioscope.trainer.algorithms.explaining import describe
            from ratioscope.trainer.settings.load import load_settings

        print_line(describe(load_settings("on_policy", [f"algorithm={what}", *(parts or [])]).declared))
        return
    print_line(explanation(what))


def explanation(what: str | None) -> str:
    """What something is, as text: what `ratioscope explain` prints of it.

    Args:
        what: a metric, an algorithm, a preset or setting, a finding, a check, a cause, what a framework logs, or the
            word for a list.

    Raises:
        RatioscopeError: there is no such thing.
    """
    from ratioscope.catalogue import THRESHOLDS

    trained = _of_trainer(what or "")
    if trained and what not in _explained():
        return "\n\n".join([trained, _told_of(str(what))] if what in THRESHOLDS else [trained])
    return "\n\n".join(filter(None, [_explanation(what), trained]))


def _of_trainer(what: str) -> str:
    """Presets and settings of that name, or the list of all; "" where there are none, or no package of the trainer."""
    if find_spec("pydantic") is None:
        return ""
    from ratioscope.trainer.settings import table

    if what in _TRAINER_LISTS:
        return table.presets_text() if what == "presets" else table.settings_text()
    return table.explain_name(what)


def _explanation(what: str | None) -> str:
    """What something outside of the trainer's settings is; raises as `explanation`."""
    from ratioscope import catalogue
    from ratioscope.analysis.diagnosis import RULES
    from ratioscope.analysis.findings.cause import CAUSES, cause_text
    from ratioscope.analysis.frameworks import naming, writing
    from ratioscope.analysis.linter import CHECKS
    from ratioscope.run_format import schema
    from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES, algorithms_table

    reported = [writing.explain(named) for named in naming.numbers_named(what or "")]
    what = what if reported else _meant(what)
    if what in catalogue.ENTRIES:
        return "\n\n".join([catalogue.explain(what) + writing.elsewhere(what), *reported])
    if what in ALGORITHMS or what in ALIASES:
        from ratioscope.trainer.algorithms.explaining import describe

        return describe(ALGORITHMS[ALIASES.get(str(what), str(what))])
    if what == "format":
        return schema.describe()
    if what == "thresholds":
        return catalogue.thresholds.explain()
    if what == "parts":
        from ratioscope.trainer.algorithms import parts

        return parts.parts_table()
    if what == "algorithms":
        return algorithms_table()
    if what in RULES or what in CHECKS:
        declared = (("finding", RULES.get(str(what))), ("check", CHECKS.get(str(what))))
        said = [f"{what} ({kind}): {each.about}" for kind, each in declared if each]
        limits = ["Limits of findings: ratioscope explain thresholds."] if what in RULES else []
        return "\n\n".join([*said, *limits])
    if what in CAUSES:
        return cause_text(CAUSES[str(what)])
    if what == "causes":
        return "\n".join(f"{name:<28} {each.words}." for name, each in CAUSES.items())
    if what in ("findings", "checks"):
        known = RULES if what == "findings" else CHECKS
        return "\n".join(f"{name:<24} {each.question}" for name, each in known.items())
    if what in (None, "metrics"):
        listed = [f"{entry.key:<30} {entry.title}" for entry in catalogue.ENTRIES.values()]
        more = "algorithms, parts, presets, settings, findings, checks, causes, format, thresholds: more to explain."
        return "\n".join([*listed, "", more])
    if reported:
        return "\n\n".join(reported)
    if told := _told_of(str(what)):
        return told
    raise unknown("something to explain", str(what), [*_explained(), *completion.of_trainer()])


def _told_of(words: str) -> str:
    """Metrics, limits, causes and findings whose texts hold these words, a line each; "" for none."""
    from ratioscope import catalogue
    from ratioscope.analysis.diagnosis import RULES
    from ratioscope.analysis.findings.cause import CAUSES

    texts = {entry.key: f"{entry.title}. {entry.definition} {entry.reading}" for entry in catalogue.ENTRIES.values()}
    texts |= {row.name: f"{row.meaning} (limit {row.value:g})" for row in catalogue.THRESHOLDS.values()}
    texts |= {name: f"{each.words}. {each.do}" for name, each in CAUSES.items()}
    texts |= {name: each.about for name, each in RULES.items()}
    asked = re.compile(rf"\b{re.escape(words.strip())}\b".replace("\\-", "[- ]"), re.IGNORECASE)
    found = {name: text for name, text in texts.items() if asked.search(f"{name} {text}")}
    if not found or len(words) < _SHORTEST:
        return ""
    lines = [f"{name:<28} {re.split(r'(?<=[.;]) ', text)[0]}" for name, text in list(found.items())[:_MOST_MEANT]]
    more = [f"and {len(found) - _MOST_MEANT} more"] if len(found) > _MOST_MEANT else []
    return "\n".join([f"{words!r} stands in the explanation of:", *lines, *more])


def _explained() -> dict[str, str]:
    """Whatever has an explanation, by every name that it goes by."""
    from ratioscope import catalogue
    from ratioscope.analysis.diagnosis import RULES
    from ratioscope.analysis.diagnosis.rule import rule_words
    from ratioscope.analysis.findings.cause import CAUSES
    from ratioscope.analysis.linter import CHECKS
    from ratioscope.trainer.algorithms.rows import ALGORITHMS, ALIASES

    known = {rule_words(rule): rule for rule in RULES} | {check.replace("_", " "): check for check in CHECKS}
    for entry in catalogue.ENTRIES.values():
        known |= {entry.label: entry.key, entry.title: entry.key}
    named = [*catalogue.ENTRIES, *ALGORITHMS, *ALIASES, *RULES, *CHECKS, *CAUSES, *_LISTS]
    return known | {name: name for name in named}


def _meant(what: str | None) -> str | None:
    """The name of what a user asks for: written in another way, as pages call it, or its beginning."""
    known = _explained()
    if what is None or what in known:
        return known.get(str(what))
    plain = {name.casefold().replace("_", " "): key for name, key in known.items()}
    asked = what.casefold().replace("_", " ").strip()
    if asked in plain:
        return plain[asked]
    # "ess" is ess_token and ess_seq, "lag" is version_lag.
    parts = sorted({key for name, key in plain.items() if f" {asked} " in f" {name} "})
    if len(parts) > 1:
        raise RatioscopeError(f"{what!r} may be {', '.join(parts[:_MOST_MEANT])}: name one of them.")
    return parts[0] if parts else what


def _csv(steps: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """The steps of the JSON as a table: what is null there is empty here, so that both say the same."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *(name for key in keys for name in (key, f"{key}.low", f"{key}.high"))])
    for step in steps:
        rows = ((step[key], *step["intervals"].get(key, ("", ""))) for key in keys)
        writer.writerow([step["step"], *("" if value is None else value for row in rows for value in row)])
    return out.getvalue().rstrip("\n")
