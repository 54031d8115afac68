"""Overview: three lights, and where something is wrong: what happened, since when, why, what to change, how sure?"""

from collections.abc import Container

import streamlit as st

from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.findings.finding import Finding, Severity
from ratioscope.analysis.overview.sentences import grave
from ratioscope.analysis.overview.verdict import Verdict
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.answers import answers, lights_row
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import PageSubject, beside, computed, draw, page_subject, say
from ratioscope.dashboard.components.finding_card import finding_details, show_me
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.siblings import sibling_results, sibling_runs
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import findings, learning, overview, setting
from ratioscope.dashboard.sections.model import Chart, has_content


def render() -> None:
    """The page."""
    opened = run_page(overview.PAGE)
    if opened is None:
        return
    subject = page_subject(opened)
    verdict = subject.verdict
    lights_row(verdict.lights)
    above = {chart.key for chart in (_bad_night if verdict.lead else _quiet)(subject, verdict)}
    if verdict.lead:
        sibling_results(opened.run_id)
    else:
        _tiles(subject)
    for finding in grave(opened.findings):
        if finding is not verdict.lead:
            _finding(subject, finding, above)
    _notices(subject)
    with fold("charts", "Charts", "reward, entropy, length and what they cost") as door:
        if door.open:
            if verdict.lead:
                _tiles(subject)
            beside(*(chart for chart in learning.overview(subject) if chart.key not in above), across=2)
    with fold("causes", "Causes", "which were looked for, and the signs of each") as door:
        if door.open:
            for table in computed(lambda: overview.causes(subject), height=200) or ():
                draw(table)
                if not table.rows:
                    say(f"{table.title}: {table.note}")
    _origin(subject)
    as_reported(overview.PAGE, subject)
    sibling_runs(opened.run_id, all_shown=verdict.lead is not None)
    how_to_read(overview.PAGE.prose)


def _tiles(subject: PageSubject) -> None:
    metric_row(subject.opened.summary, subject.known(subject.applicable(overview.PAGE.tiles)))


def _bad_night(subject: PageSubject, verdict: Verdict) -> list[Chart]:
    """The five answers, and beside them what shows what happened and why."""
    charts = overview.told(subject) or learning.first(subject)
    left, right = st.columns([6, 7], gap="medium")
    with left:
        answers(subject, verdict)
        _asides(subject)
    with right:
        draw(*charts)
    return charts


def _quiet(subject: PageSubject, verdict: Verdict) -> list[Chart]:
    """One sentence, the main charts."""
    what, *others = verdict.answers
    opening(overview.PAGE, subject, what.text)
    for answer in others:
        say(f"{answer.question} {answer.text}")
    say(verdict.fine)
    say(subject.cannot_clip)
    _asides(subject, unsaid=False)
    if subject.opened.findings:
        show_me(subject.opened.findings[0], subject.opened.run_id, "See the first notice")
    charts = learning.first(subject)
    beside(*charts, across=2)
    return charts


def _asides(subject: PageSubject, *, unsaid: bool = True) -> None:
    """What the log does not say, and what holds for every number of it."""
    if unsaid:
        say(overview.PAGE.not_said(subject))
    draw(*setting.cautions(subject))


def _finding(subject: PageSubject, finding: Finding, above: Container[str]) -> None:
    """Folded away; its chart only where it is not among those above: the likely cause is a finding, too."""
    word, icon = finding.severity.word.capitalize(), theme.SEVERITY_ICON[finding.severity]
    with fold(f"finding-{finding.rule}", word, finding.sentence, icon=icon) as door:
        if door.open:
            finding_details(finding, subject.opened.run_id)
            chart = findings.evidence_chart(subject, finding, 240, subject.steps)
            if chart and chart.key not in above:
                draw(chart)


def _notices(subject: PageSubject) -> None:
    """A line each, behind one."""
    found = [finding for finding in subject.opened.findings if finding.severity is Severity.NOTICE]
    if not found:
        return
    icon, names = theme.SEVERITY_ICON[Severity.NOTICE], [rule_words(finding.rule) for finding in found]
    title = f"{len(found)} notice{'s' * (len(found) > 1)}"
    with fold("notices", title, ", ".join(names), icon=icon) as door:
        if door.open:
            for finding in found:
                with st.container(border=True, gap="xsmall"):
                    st.markdown(f"**{escape(finding.sentence)}**")
                    finding_details(finding, subject.opened.run_id)


def _origin(subject: PageSubject) -> None:
    """Where an imported run comes from; its label is text of the log."""
    blocks = list(filter(has_content, setting.origin(subject)))
    if not blocks:
        return
    manifest = subject.opened.run.manifest
    of = " ".join(str(manifest.source[name]) for name in ("framework", "version") if manifest.source.get(name))
    told = [f"{len(manifest.assumed)} assumption{'s' * (len(manifest.assumed) != 1)}"] if manifest.assumed else []
    told += [f"{len(manifest.missing)} missing column{'s' * (len(manifest.missing) != 1)}"] if manifest.missing else []
    title = f"From {of}" if of else "Where this run comes from"
    with fold("origin", title, ", ".join(told), icon=":material/input:") as door:
        if door.open:
            draw(*blocks)
