"""`ratioscope check` and `ratioscope diagnose`: is the log what it claims to be, and what is wrong with the run."""

from typing import Annotated

import typer

from ratioscope.dashboard.cli.common import (
    Quiet,
    RefuseRunLimits,
    RunFolder,
    SeverityName,
    Thresholds,
    app,
    complain_of,
    examples,
    opened,
)
from ratioscope.dashboard.terminal import print_wrapped, say_json, working
from ratioscope.ending import PROBLEMS_FOUND


@app.command(
    epilog=examples(
        "check sample_runs/mismatch-grpo-seed0",
        "check sample_runs/mismatch-grpo-seed0 --fail-on critical --json",
    )
)
def check(
    run: RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Every remark with numbers, steps and example rows.")] = False,
    fail_on: Annotated[
        SeverityName, typer.Option(help="Exit code 1 when there is a remark of this severity or worse.")
    ] = "warning",
    thresholds: Thresholds = None,
    refuse_run_limits: RefuseRunLimits = False,
    quiet: Quiet = False,
) -> None:
    """Whether a log is what it claims to be.

    Exit code 1 when it is not: when a remark is as severe as --fail-on, or when a log
    with tokens lets no check of them run.

    --json prints an object: schema_version, run, thresholds_moved (a sentence, or null), remarks. Each remark has
    check, outcome, severity (null: nothing found), sentence, why, do, numbers, steps, columns, examples, cause, place.
    """
    from ratioscope.analysis.findings.finding import Severity
    from ratioscope.analysis.findings.limits import limits_of, moved_limits, refuse_own
    from ratioscope.analysis.findings.logged import logged
    from ratioscope.analysis.linter import lint, remarks_json, remarks_text
    from ratioscope.analysis.linter.verdict import log_headline, nothing_checked

    found = opened(run)
    if refuse_run_limits and not thresholds:
        refuse_own(run)
    limits = limits_of(run, thresholds)
    note = "" if thresholds else moved_limits(run, limits)
    with working("Checking", quiet) as progress:
        remarks = lint(found, progress=progress, limits=limits)
    if as_json:
        contents = {
            "schema_version": found.manifest.schema_version,
            "run": found.manifest.name,
            "thresholds_moved": note or None,
        }
        say_json(contents | {"remarks": remarks_json(remarks)})
    else:
        print_wrapped("\n".join((*filter(None, (log_headline(remarks), note)), "", remarks_text(remarks))))
    found_something = any(remark.severity >= Severity[fail_on.upper()] for remark in remarks)
    # A gate that could not look does not pass; a log of responses alone has no tokens to look at.
    of_responses = (log := logged(found)).has_rewards and not log.has_tokens
    if found_something or (nothing_checked(remarks) and not of_responses):
        raise typer.Exit(PROBLEMS_FOUND)


@app.command(
    epilog=examples(
        "diagnose sample_runs/sync_interval20-reinforce-lr0.0003-seed0",
        "diagnose sample_runs/sync_interval20-grpo-seed0 --fail-on critical",
        "diagnose sample_runs/sync_interval20-grpo-seed0 --json",
        "diagnose sample_runs/mismatch-grpo-seed0 --why",
    )
)
def diagnose(
    run: RunFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Every finding with its numbers and steps.")] = False,
    with_causes: Annotated[
        bool, typer.Option("--why", help="Also which causes were looked for, and which signs of each the log shows.")
    ] = False,
    fail_on: Annotated[
        SeverityName | None,
        typer.Option(
            help="Exit code 1 when a light or a finding has this severity or worse; default: only where there is "
            "nothing to judge."
        ),
    ] = None,
    thresholds: Thresholds = None,
    refuse_run_limits: RefuseRunLimits = False,
    quiet: Quiet = False,
) -> None:
    """Does a run learn, how off-policy is it, can its log be trusted; what is wrong, why, and what to change.

    Three lights, then the findings, the worst first.

    --json prints an object: schema_version, run, lights, thresholds, thresholds_moved (a sentence, or null), log,
    not_seen, findings. Each light has name (Learning, Off-policy, Log), state, severity, sentence. Each finding has
    rule, severity, sentence, metric, limit, steps, numbers, why, do, source, page, cause (of `explain causes`, or null)
    and place (the part that holds most of it, or null). --why adds why, a list of families: family, causes; each cause
    has cause, words, stands, score, marks; each mark has mark, role (requires, supports, refutes), presence, value,
    limit, clause.
    """
    from ratioscope.analysis.diagnosis.absence import nothing_to_judge
    from ratioscope.analysis.diagnosis.opened import open_folder
    from ratioscope.analysis.diagnosis.report import diagnosis_text, head_to_json
    from ratioscope.analysis.diagnosis.why import why, why_text
    from ratioscope.analysis.findings.finding import Severity
    from ratioscope.analysis.findings.limits import refuse_own
    from ratioscope.analysis.findings.plain import json_value
    from ratioscope.analysis.overview.lights import lights_of, lights_text
    from ratioscope.dashboard.evidence import with_page

    if refuse_run_limits and not thresholds:
        refuse_own(run)
    with working("Reading", quiet) as progress:
        found = open_folder(run, thresholds=thresholds, progress=progress)
    complain_of(found.run)
    shown = lights_of(found)
    tables = why(found.run, *found.judged.checked, found.limits) if with_causes else []
    if as_json:
        head = head_to_json(found)
        contents = {"lights": [light.to_json() for light in shown]}
        contents |= {"why": json_value(tables)} if with_causes else {}
        say_json(head | contents | {"findings": [with_page(finding) for finding in found.findings]})
    else:
        texts = [lights_text(shown), diagnosis_text(found), *([why_text(tables)] if with_causes else [])]
        print_wrapped("\n\n".join(texts))
    severities = [*(finding.severity for finding in found.findings), *(light.severity for light in shown)]
    failed = any(finding.rule == nothing_to_judge.name for finding in found.findings)
    if failed or (fail_on and max(severities, default=0) >= Severity[fail_on.upper()]):
        raise typer.Exit(PROBLEMS_FOUND)
