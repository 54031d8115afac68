"""Overview: is this run healthy?"""

import streamlit as st

from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.overview.sentences import headline
from ratioscope.dashboard import theme
from ratioscope.dashboard.components.as_reported import as_reported
from ratioscope.dashboard.components.blocks import PageSubject, beside, draw, page_subject, say
from ratioscope.dashboard.components.explained import explained
from ratioscope.dashboard.components.finding_card import finding_cards, notice
from ratioscope.dashboard.components.frame import how_to_read, run_page
from ratioscope.dashboard.components.opening import opening
from ratioscope.dashboard.components.siblings import sibling_runs
from ratioscope.dashboard.components.tile import metric_row
from ratioscope.dashboard.formats import escape
from ratioscope.dashboard.sections import learning, setting
from ratioscope.dashboard.sections.model import has_content

TILES = ("reward", "eval_accuracy", "s_k_bounded", "u_k", "clip_fraction", "ess_token", "khat_token", "entropy")


def _origin(subject: PageSubject) -> None:
    """Where an imported run comes from, folded away; its label is text of the log."""
    blocks = list(filter(has_content, setting.origin(subject)))
    if not blocks:
        return
    manifest = subject.opened.run.manifest
    of = " ".join(str(manifest.source[name]) for name in ("framework", "version") if manifest.source.get(name))
    told = [f"{len(manifest.assumed)} assumption{'s' * (len(manifest.assumed) != 1)}"] if manifest.assumed else []
    told += [f"{len(manifest.missing)} missing column{'s' * (len(manifest.missing) != 1)}"] if manifest.missing else []
    label = ": ".join(filter(None, (f"From {of}" if of else "Where this run comes from", ", ".join(told))))
    with st.expander(escape(label), icon=":material/input:", key="origin", on_change="rerun") as door:
        if door.open:
            draw(*blocks)


def render() -> None:
    """The page."""
    opened = run_page("Overview", "Is this run healthy?")
    if opened is None:
        return
    subject, summary, facts = page_subject(opened), opened.summary, opened.facts()
    opening(subject, "overview", headline(summary, facts, opened.findings, opened.remarks))
    draw(*setting.cautions(subject))
    _origin(subject)
    grave = [finding for finding in opened.findings if finding.severity > Severity.NOTICE]
    notices = opened.findings[len(grave) :]
    finding_cards(grave, summary, subject.mode, opened.run_id)
    if notices:
        with st.expander(f"{len(notices)} notice{'s' * (len(notices) > 1)}", icon=theme.SEVERITY_ICON[Severity.NOTICE]):
            for finding in notices:
                notice(finding, opened.run_id)

    metric_row(summary, subject.applicable(TILES))
    say(subject.cannot_clip)

    beside(*learning.overview(subject), across=2)
    explained(opened)
    as_reported(subject, "overview")
    sibling_runs(opened.run_id)
    how_to_read(
        r"""
Findings come first, worst first: each gives the measurement, the likely cause and what to change; *Show me* opens the
page and the steps with its evidence. A `ratioscope.toml` beside the run overrides the default limits.

A run is off-policy for two reasons: the data are old or come from another engine (staleness $S_k^+$), and the update
moves the policy (update drift $U_k$). Both small: on-policy in effect. Bands are 95% intervals over prompt groups,
open circles are unreliable values, ticks mark the steps where new weights reached the sampler.
Drag over a chart to select steps in all charts, double click to reset, click a step to see its worst responses.
"""
    )
