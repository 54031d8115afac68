"""One story: whatever is said of a window of a run names the same cause and the same number, in every room.

The words are read, not the objects behind them: page headline, path section and its figure, report sections, verdict
of report and notebook, findings and what `watch` sends of them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope.analysis.diagnosis import RULES
from ratioscope.analysis.diagnosis.opened import open_folder
from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.drift import sentences as drift
from ratioscope.analysis.drift.pairs import measure_pairs
from ratioscope.analysis.findings import words
from ratioscope.analysis.findings.facts import Cause, Facts, facts_of, heavy_tails
from ratioscope.analysis.findings.fall import fall_of
from ratioscope.analysis.findings.finding import Finding
from ratioscope.analysis.findings.limits import Limits
from ratioscope.analysis.findings.news import alert_json
from ratioscope.analysis.findings.regime import regime
from ratioscope.analysis.findings.words import chi2_source
from ratioscope.analysis.linter import CHECKS
from ratioscope.analysis.linter.verdict import counted_outcomes
from ratioscope.analysis.overview import sentences as overview
from ratioscope.analysis.overview.verdict import run_verdict
from ratioscope.analysis.ratios.distributions import moments, survivals
from ratioscope.analysis.runs.store import Run, open_run
from ratioscope.analysis.summary.summary import StepSummary, summarise
from ratioscope.analysis.variance import failure_mode
from ratioscope.dashboard import notebook
from ratioscope.dashboard.figures.ratios import survival_curve
from ratioscope.dashboard.report.build import run_report
from ratioscope.dashboard.roots import serve_from
from ratioscope.dashboard.sections import drift as drift_section
from ratioscope.dashboard.sections import staleness as staleness_section
from ratioscope.dashboard.sections import variance as variance_section
from ratioscope.dashboard.sections.model import Chart, FindingBlock, Paragraph, Report, Table
from ratioscope.dashboard.sections.subject import Subject
from ratioscope.dashboard.theme import MODES
from tests.making.pages import sentences, visit
from tests.making.runs import Step, random_step, write_run
from tests.making.samples import NAMES, SAMPLE_RUNS, findings_of, part_of, summary_of

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"
_CAUSE = "|".join(cause.words for cause in Cause)
_LARGEST = re.compile(rf"({_CAUSE}) makes? up (\d+)% of the path[^(.;]*\(({_NUMBER}) of", re.IGNORECASE)
_ALONE = re.compile(rf"The only part of the path[^(.;]* is ({_CAUSE}) \(({_NUMBER})\)", re.IGNORECASE)
# What is quoted as a total variation or as the distance of two policies.
_DISTANCES = re.compile(
    r"(?:[Ss]taleness is|staleness at most|[Uu]pdate drift(?: is)? at most|total variation(?: is)?|"
    rf"above its limit of {_NUMBER} in \d+ of \d+ steps, up to|"
    rf"sampler to the new policy \(|the new policy is) ({_NUMBER})(?![\d.]* ×)"
)
_COUNT = re.compile(rf"[Ss]taleness is above its limit of {_NUMBER} in (\d+) of (\d+) steps")
_AT_MOST = re.compile(rf"staleness (?:is )?at most ({_NUMBER})")
_WORST = re.compile(rf"^Staleness is above its limit.*steps, up to ({_NUMBER}) in")
_AGE = ("the age of the data makes", "stale samples", "the data grow older", "together make up")


def told(text: str) -> set[tuple[str, str]]:
    """What a text says the path is mostly made of: cause and mean."""
    found = {(cause.lower(), value) for cause, _, value in _LARGEST.findall(text)}
    return found | {(cause.lower(), value) for cause, value in _ALONE.findall(text)}


def assert_one_story(facts: Facts, texts: Iterable[str], whole: Facts, about_the_run: Iterable[str]) -> None:
    """`texts` are of the window that `facts` are of, `about_the_run` of all steps."""
    for of, said in ((facts, list(texts)), (whole, list(about_the_run))):
        largest, level = of.path.largest, of.staleness
        stories = set().union(*map(told, said))
        if largest is not None and all(part.value <= 1 for part in of.path.parts):
            assert stories <= {(largest.cause.words, f"{largest.value:.2g}")}, (stories, said)
            assert stories or of is whole
        else:
            assert not stories
        for text in said:
            assert not [value for value in _DISTANCES.findall(text) if float(value) > 1], text
            assert not [words for words in _AGE if of.fresh and words in text], text
            assert {(int(n), int(steps)) for n, steps in _COUNT.findall(text)} <= {(len(level.over), of.n_steps)}, text
            quoted = {*_AT_MOST.findall(text), *_WORST.findall(text)}
            # A third digit where two would read as the limit.
            assert quoted <= {f"{level.largest:.2g}", f"{level.largest:.3g}"}, text
            assert "nan" not in text.lower().split() and "As the crow flies" not in text


def of_findings(findings: Iterable[Finding], run: Run | None = None) -> Iterator[str]:
    """Each finding, and what an alert says of it."""
    for finding in findings:
        yield f"{finding.sentence} {finding.why}"
        if run is not None:
            alert = alert_json(run, finding)
            yield f"{alert['sentence']} {alert['why']}"


def said_of(summary: StepSummary, facts: Facts) -> list[str]:
    """What the pages of a window say."""
    verdict = dict(run_verdict(summary.up_to(facts.first, facts.last), [], [], facts.limits).pairs)
    mode = failure_mode.answer(facts).sentence
    told_apart = ["cannot tell whether variance" in mode.lower(), "χ²" in verdict.get("How sure?", "")]
    assert told_apart[0] is told_apart[1], (mode, verdict)
    return [
        drift.drift_headline(facts), drift.path_section(facts), drift.triangle_sentence(facts), regime(facts).sentence,
        mode, verdict["What happened?"],
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_window_of_every_sample_run_has_one_story(name: str) -> None:
    summary = summary_of(name)
    whole, findings = facts_of(summary), findings_of(name)
    about_the_run = [overview.overview_headline(whole, findings), *of_findings(findings)]
    lag = summary.values["version_lag"]
    fresh = int(lag.index[lag == 0][0]) if (lag == 0).any() else 0
    for steps in ((None, None), (29, 38), (18, 22), (fresh, fresh)):
        facts = facts_of(summary, Limits(), *steps)
        assert_one_story(facts, said_of(summary, facts), whole, about_the_run)


@pytest.mark.parametrize("name", NAMES)
def test_a_fact_has_one_severity(name: str) -> None:
    """A run with "nothing to worry about" was "uncontrolled" on another page; a fall was led by what caused it."""
    summary, findings = summary_of(name), findings_of(name)
    facts, found = facts_of(summary), run_verdict(summary, findings, [], Limits())
    rules, grave = {finding.rule for finding in findings}, overview.grave(findings)
    assert (found.lead is None) is (not grave)
    assert len(found.answers) == 5 if grave else len(found.answers) <= 2
    assert ("Uncontrolled" in regime(facts).sentence) <= (rules >= {"bias_regime"} or "update_large" in rules)
    assert ("staleness_high" in rules) is bool(facts.staleness.over)
    assert not (found.fine and facts.staleness.over and "staleness at most" in found.fine)
    assert ("no heavy tail" in found.fine) <= ("heavy_tail" not in rules)
    if found.lead is None:
        assert found.answers[0].text.startswith("No problem found in ")
    elif fall_of(summary, Limits()) is not None:
        assert found.lead.rule == "reward_collapse" and found.cause is not found.lead
        assert found.cause is None or min(found.cause.steps) <= min(found.lead.steps)


# ------------------------------------------------------------------------------------------------- damaged copies


def every_column(folder: Path, truncated: float) -> Path:
    """A run whose engine and age are both there; the sampler's log-probs are too high by `truncated`."""

    def step(number: int) -> Step:
        made = random_step(np.random.default_rng(number), number, groups=12, responses=4, spread=0.1)
        b, version = made.tokens["logp_behavior"] + np.float32(truncated), np.full_like(made.tokens["seq_id"], 0)
        return made.with_tokens(logp_behavior=np.minimum(b, -1e-3), behavior_version=version.astype(np.int32))

    return write_run(folder, [step(number) for number in range(1, 7)])


SOURCES = {
    "mismatch": ("mismatch-grpo-seed0", range(29, 39)),
    "around a sync": ("sync_interval20-reinforce-seed0", range(15, 23)),
    "fresh": ("sync_interval20-grpo-seed0", range(1)),
    "offline": ("offline-reinforce-seed0", range(40, 46)),
    "heavy": ("sync_interval20-rec_twoside_nois-lr0.0003-seed0", range(30, 36)),
}
DAMAGES = {"whole": (), "no b'": ("logp_behavior_train",), "no new": ("logp_new",)}
DAMAGES["neither"] = (*DAMAGES["no b'"], *DAMAGES["no new"])


def bounded_by_hand(folder: Path) -> dict[str, float]:
    """Of the rows themselves: staleness of the steps and means over the window, all in the bounded form."""
    tokens = pq.ParquetDataset(folder / "tokens").read().to_pandas()
    logs = {name: tokens[name].astype(float) for name in tokens if name.startswith("logp_")}
    b, c = logs["logp_behavior"], logs["logp_current"]
    tokens["staleness"] = np.maximum(1 - np.exp(c - b), 0)
    by_step = tokens.groupby("step")["staleness"].mean()
    found = {"largest": by_step.max(), "last": by_step.iloc[-1], "mean": tokens["staleness"].mean()}
    if (n := logs.get("logp_new")) is not None:
        found["ppo"] = np.maximum(1 - np.exp(n - b), 0).mean()
        found["the update"] = np.maximum(np.exp(c - b) - np.exp(n - b), 0).mean()
    return found


def report_of(subject: Subject) -> Iterator[str]:
    """What the sections of the report say, findings apart."""
    yield from (drift_section.answer(subject), variance_section.answer(subject), staleness_section.answer(subject))
    blocks = (*drift_section.triangle(subject), *drift_section.path(subject), *variance_section.remedies(subject))
    for block in blocks:
        if isinstance(block, Chart):
            yield block.takeaway
        elif isinstance(block, Paragraph):
            yield block.text


# A column that a source has not is not taken away again.
COPIES = [
    *(("mismatch", damage) for damage in DAMAGES),
    *((source, damage) for source in ("around a sync", "offline") for damage in ("whole", "no new")),
    *((source, "whole") for source in ("fresh", "heavy")),
    *(("split", damage) for damage in DAMAGES),
    *(("split, truncated", damage) for damage in ("whole", "neither")),
]


@pytest.mark.parametrize(("source", "damage"), COPIES)
def test_damaged_copies_tell_one_story_in_every_room(tmp_path: Path, source: str, damage: str) -> None:
    if source in SOURCES:
        name, steps = SOURCES[source]
        folder, of = SAMPLE_RUNS / name, steps
    else:
        folder, of = every_column(tmp_path / "made", 0.1 if "truncated" in source else 0.0), range(1, 7)
    opened = open_folder(part_of(folder, tmp_path / "run", of, *DAMAGES[damage]))
    facts, subject = opened.facts(), Subject(opened)
    book = notebook.OpenRun(opened)
    texts = [*said_of(opened.summary, facts), *report_of(subject), *book.verdict.splitlines()]
    about = [
        overview.overview_headline(facts, opened.findings),
        *of_findings(opened.findings, opened.run),
    ]
    assert_one_story(facts, texts, facts, about)
    by_hand, level = bounded_by_hand(tmp_path / "run"), facts.staleness
    assert (level.largest, level.last, level.mean) == pytest.approx(
        [by_hand[key] for key in ("largest", "last", "mean")]
    )
    assert facts.path.staleness == pytest.approx(by_hand["mean"])
    if facts.updates_logged:
        update = facts.path.part(Cause.UPDATE)
        assert update and (facts.path.ppo, update.value) == pytest.approx((by_hand["ppo"], by_hand["the update"]))
        # Like with like: the parts add up to at least the direct way.
        assert facts.path.ppo <= facts.path.staleness + update.value <= facts.path.total + 1e-12
    assert f"teps {of[0]} to {of[-1]}" in drift.path_section(facts) or len(of) == 1
    with_split = source.startswith("split") and damage in ("whole", "no new")
    assert (facts.path.part(Cause.AGE) is not None) is with_split
    assert facts.fresh is (source in ("mismatch", "fresh"))
    assert facts.updates_logged is (damage in ("whole", "no b'"))
    # What the tokens of the window give is the same path, number by number.
    pairs = subject.compute(measure_pairs, *subject.window().steps, level="token", aggregation="token")
    of_tokens = drift.of_pairs(facts, pairs)
    for part, same in zip(facts.path.parts, of_tokens.path.parts, strict=True):
        assert (part.cause, part.value) == (same.cause, pytest.approx(same.value, rel=1e-6, abs=1e-9))
    assert facts.path.ppo == pytest.approx(of_tokens.path.ppo, rel=1e-6, nan_ok=True)


# ------------------------------------------------------------------------------------------------- as it was found


def test_findings_have_names_for_people_and_tails_one_statement() -> None:
    """Overview wrote "kl high", "clip zero"; a figure "a mean, no variance" beside "even means are unreliable"."""
    raw = {rule for rule in RULES if rule_words(rule) in (rule, rule.replace("_", " "))}
    assert not [rule for rule in raw if rule.endswith(("_high", "_large", "_regime", "_trap", "_zero", "_growing"))]
    assert len({rule_words(rule) for rule in RULES}) == len(RULES)
    found = survivals(open_run(SAMPLE_RUNS / "sync_interval20-reinforce-seed0"), 0, 149)
    for tails in found.values():
        figure = survival_curve(tails, MODES["light"])
        drawn = [str(note.text) for note in figure.layout.annotations if "k̂" in str(note.text)]
        assert drawn == [f"k̂ = {tail.khat:.2f}" for tail in (tails.upper, tails.lower)]
        assert all(moments(tail.khat or 0, tails.n) in tails.answer for tail in (tails.upper, tails.lower))


def test_bias_on_its_page_counts_the_steps_that_drift_and_overview_count() -> None:
    """It said "bias is small: 0.11" beside a staleness up to 0.34."""
    facts = facts_of(summary_of("sync_interval20-reinforce-lr0.0003-seed0"))
    said = failure_mode.answer(facts).sentence
    assert words.over_limit(facts.staleness, facts) in failure_mode.small_bias(facts)
    assert "as the tokens predict it" in said and chi2_source(facts) in said


def test_the_checks_of_a_log_add_up() -> None:
    """It said "24 of 29 passed, 2 could not run" and left three unexplained; and a likely cause was said as the one."""
    opened = open_folder(SAMPLE_RUNS / "mismatch-grpo-seed0")
    passed, of, *others = map(int, re.findall(r"\d+", counted_outcomes(opened.remarks)))
    assert passed + sum(others) == of == len(CHECKS)
    found = run_verdict(opened.summary, opened.findings, opened.remarks, opened.limits)
    assert counted_outcomes(opened.remarks) in dict(found.pairs)["How sure?"]
    unknown = re.search(r"(\d+) could not run", counted_outcomes(opened.remarks))
    assert unknown and found.lights[-1].sentence == f"{of - int(unknown[1])} of {of} checks ran, none failed."
    name = "sync_interval20-reinforce-lr0.0003-seed0"
    said = dict(run_verdict(summary_of(name), findings_of(name), [], Limits()).pairs)["Why?"]
    assert said.startswith("Likely")


@pytest.fixture
def drift_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATIOSCOPE_ROOTS", "")
    serve_from([tmp_path])
    return tmp_path


@pytest.mark.parametrize("missing", [(), ("logp_behavior_train",)])
def test_the_drift_page_of_fresh_data_blames_the_engine_with_one_number(
    drift_page: Path, missing: tuple[str, ...]
) -> None:
    """At version lag 0 the headline blamed the age and the path nobody; plain and bounded staleness stood side by side.

    Without the column headline and path said "the age of the data makes up 59 %" and "cannot be separated"; with it
    staleness was half as large in the one as in the other.
    """
    part_of(SAMPLE_RUNS / "mismatch-grpo-seed0", drift_page / "run", range(29, 39), *missing)
    said = sentences(visit("drift", run="run", **{"from": "29", "to": "38"}))
    assert told(said) == {("the engine", "0.011")}
    plain = [line for line in said.splitlines() if "0.0056" in line]
    assert all(line.startswith("Plain form: ") for line in plain), plain
    assert "the age of the data makes" not in said and "cannot be separated" not in said
    assert "staleness is engine mismatch, or the log is wrong" in said


def test_findings_of_the_run_and_headlines_of_its_pages_count_the_same_steps() -> None:
    """A report said "25 of 150" and "29 of 150" of one limit."""
    for name in NAMES:
        summary = summary_of(name)
        n = {int(found) for finding in findings_of(name) for found, _ in _COUNT.findall(finding.sentence)}
        n |= {int(found) for found, _ in _COUNT.findall(drift.drift_headline(facts_of(summary)))}
        assert len(n) <= 1, name


# How each count of steps is said, by what is counted; another wording of the same count belongs in the same row.
_COUNTS = {
    "staleness above its limit": [_COUNT, re.compile(r"It is clearly above that in (\d+) of (\d+) steps")],
    "heavy tails": [re.compile(r"heavy(?: tail)? in (\d+) of (\d+) steps")],
    "unreliable squares": [
        re.compile(r"squares of the ratio[^.;]*? in (\d+) of (\d+) steps", re.IGNORECASE),
        re.compile(r"^(?:χ², tokens|ESS, tokens|Effective sample size, tokens) \|.*unreliable in (\d+) of (\d+) steps"),
    ],
    "unreliable χ² of responses": [
        re.compile(r"n (\d+) of (\d+) steps(?=[^.;]* rests on the largest ratio and may be)"),
        re.compile(r"rests on the largest ratio in (\d+) of (\d+) steps and may be above"),
    ],
    "infinite χ²": [re.compile(r"χ² is infinite in (\d+) of (\d+) steps")],
}


def text_of(report: Report) -> Iterator[str]:
    """All that a report says."""
    yield from (answer for _, answer in report.verdict)
    for section in report.sections:
        yield section.answer
        for block in section.blocks:
            if isinstance(block, Chart):
                yield f"{block.title}: {block.takeaway}"
            elif isinstance(block, Paragraph):
                yield block.text
            elif isinstance(block, Table):
                yield from (" | ".join(getattr(cell, "text", cell) for cell in row) for row in block.rows)
            elif isinstance(block, FindingBlock):
                yield f"{block.finding.sentence} {block.finding.why} {block.finding.do}"


@pytest.mark.parametrize(("name", "steps"), [SOURCES["heavy"], ("sync_interval20-reinforce-seed0", range(5, 19))])
def test_a_report_counts_the_steps_above_a_limit_once(tmp_path: Path, name: str, steps: range) -> None:
    """A report said "heavy tails" of 54, 66 and 73 steps."""
    opened = open_folder(part_of(SAMPLE_RUNS / name, tmp_path / "run", steps))
    said = list(text_of(run_report(opened, pages=["findings", "drift", "ratios", "variance"])))
    found = {
        subject: {tuple(map(int, count)) for text in said for form in forms for count in form.findall(text)}
        for subject, forms in _COUNTS.items()
    }
    assert all(len(counts) <= 1 for counts in found.values()), found
    assert found["heavy tails"] == {(len(heavy_tails(opened.summary, opened.limits)), len(steps))}
    assert {of for counts in found.values() for _, of in counts} == {len(steps)}


def test_a_run_without_a_token_has_no_story(tmp_path: Path) -> None:
    run = open_run(part_of(SAMPLE_RUNS / NAMES[0], tmp_path / "run", range(1)))
    facts = facts_of(summarise(run), Limits(), 7, 9)
    assert facts.path.largest is None and facts.n_steps == 0
    assert drift.path_section(facts) == "No step of the path can be measured here: no step lies in this range."
    assert drift.drift_headline(facts) == "No step is on disk yet."
