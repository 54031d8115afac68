"""Overview: three lights, and where something is wrong: what happened, since when, why, what to change, how sure?"""

from collections.abc import Container
from functools import partial

import streamlit as st

from ratioscope.analysis.diagnosis.rule import RULES, rule_words
from ratioscope.analysis.findings.cause import CAUSES, Family, of_family
from ratioscope.analysis.overview.sentences import grave
from ratioscope.analysis.overview.verdict import Verdict
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.answers import answers, lights_row
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import PageSubject, beside, computed, draw, page_subject, say
from ratioscope.dashboard.components.finding_card import finding_details
from ratioscope.dashboard.components.fold import fold
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.siblings import sibling_results, sibling_runs
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.evidence import steps_query
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import findings, learning, overview, setting
from ratioscope.dashboard.sections.model import Chart, Paragraph, has_content
from ratioscope.dashboard.sections.subject import steps_in_words
from ratioscope.dashboard.session import session


def render() -> None:
    """The page."""
    opened = run_page(overview.PAGE, brief=True)
    if opened is None:
        return
    subject = page_subject(opened)
    verdict = subject.verdict
    first, last = subject.steps
    if first is not None and last is not None:
        say(f"Lights, findings and causes are of the whole run, charts and tiles of {steps_in_words(first, last)}.")
    lights_row(verdict.lights)
    if verdict.lead:
        above = {chart.key for chart in _bad_night(subject, verdict)}
    else:
        above = {chart.key for chart in _quiet(subject, verdict)}
    _findings(subject, above)
    with fold("charts", "Charts", "entropy, length") as door:
        if door.open:
            metric_row(subject.opened, subject.known(subject.applicable(overview.PAGE.tiles)))
            beside(*(chart for chart in learning.overview(subject) if chart.key not in above), across=2)
    of_falls = len(of_family(Family.FALL))
    with fold("causes", "Causes", f"{of_falls} of falls, {len(CAUSES) - of_falls} others") as door:
        if door.open:
            say(verdict.fine)
            for answer in verdict.answers[1:]:
                if answer.more:
                    draw(Paragraph(answer.more, lead=answer.question))
            for table in computed(lambda: overview.causes(subject), height=200) or ():
                draw(table)
                if not table.rows:
                    say(f"{table.title}: {table.note}")
    _origin(subject)
    as_reported(overview.PAGE, subject)
    sibling_runs(opened.run_id, all_shown=verdict.lead is not None)
    how_to_read(overview.PAGE.explained(opened.limits))


def _bad_night(subject: PageSubject, verdict: Verdict) -> list[Chart]:
    """The five answers, and beside them what shows what happened and why."""
    charts = overview.told(subject) or learning.first(subject)
    left, right = st.columns([5, 8], gap="medium")
    with left:
        answers(subject, verdict, partial(sibling_results, subject.opened.run_id))
        _asides(subject)
    with right:
        draw(*charts)
    return charts


def _quiet(subject: PageSubject, verdict: Verdict) -> list[Chart]:
    """One sentence, the main charts."""
    what, *others = verdict.answers
    opening(overview.PAGE, subject, what.text)
    for answer in others:
        if answer.text:
            say(f"{answer.question} {answer.text}")
    say(subject.cannot_clip)
    _asides(subject, unsaid=False)
    _first_notice(subject)
    charts = learning.first(subject)
    beside(*charts, across=2)
    return charts


def _first_notice(subject: PageSubject) -> None:
    """What would be read first of a run without a problem, with the page that shows it."""
    if not subject.opened.findings:
        return
    first = subject.opened.findings[0]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(escape(first.sentence), width="content")
        page = session().pages[RULES[first.rule].page]
        st.page_link(page, label=page.title, icon=page.icon, query_params=steps_query(first, subject.opened.run_id))


def _asides(subject: PageSubject, *, unsaid: bool = True) -> None:
    """What the log does not say, and what holds for every number of it."""
    if unsaid:
        say(overview.PAGE.not_said(subject))
    draw(*setting.cautions(subject))


def _findings(subject: PageSubject, above: Container[str]) -> None:
    """All but the one that the page begins with, behind one line; a chart only where it is not among those above."""
    lead, steps = subject.verdict.lead, subject.steps
    found = [finding for finding in subject.opened.findings if finding is not lead]
    if not found:
        return
    title = f"{len(found)} {'more finding' if lead else 'notice'}{'s' * (len(found) > 1)}"
    lights = " ".join(light.sentence.lower() for light in subject.verdict.lights)
    words = [rule_words(finding.rule) for finding in (found if lead else found[1:] or found)]  # the page has the first
    first = next((each for each in words if each.lower() not in lights), words[0])  # the lights have named some
    with fold("findings", title, first) as door:
        if not door.open:
            return
        for finding in found:
            with st.container(border=True, gap="xsmall"):
                icon = theme.SEVERITY_ICON[finding.severity]
                st.markdown(f"{icon} **{finding.severity.word.capitalize()}** · {escape(finding.sentence)}")
                finding_details(finding, subject.opened.run_id)
                chart = findings.evidence_chart(subject, finding, 240, steps) if finding in grave(found) else None
                if chart and chart.key not in above:
                    draw(chart)


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
    with fold("origin", title, ", ".join(told)) as door:
        if door.open:
            draw(*blocks)
