"""What a contributor would write for each row of CONTRIBUTING.md that `test_seams` follows to the letter."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Edit:
    """Text for a file of the repository: in front of the only place with `before`, or at its end."""

    path: str
    text: str
    before: str = ""

    def make(self, package: Path) -> None:
        """Write it into a copy of the package, in which analysis, dashboard and trainer are folders."""
        file = package.joinpath(*Path(self.path.removeprefix("ratioscope/")).parts)
        there = file.read_text(encoding="utf-8") if file.exists() else ""
        if self.before:
            assert there.count(self.before) == 1, f"{self.path}: {self.before!r}"
            written = there.replace(self.before, self.text + self.before)
        else:
            written = there + self.text
        file.write_text(written, encoding="utf-8")


METRIC = Edit(
    "ratioscope/catalogue/total_variation.py",
    """    Metric(
        key="seam_metric",
        title="Mean size of the new log-ratio",
        symbol=r"\\overline{|\\ell_{k+1}|}",
        formula=r"\\mathrm{mean}\\,|\\log\\rho_{k+1}|",
        definition="Mean size of the new policy's log-ratio.",
        source="usual",
        reading="Near 0 the new policy is still the sampler's.",
        unit="nats",
        over=NEW,
        mean=Mean(abs(LOG_RHO_NEW)),
    ),
""",
    before='    Metric(\n        key="s_k",\n',
)

GATE = Edit(
    "ratioscope/rules/gates.py",
    '''

@declared("seam: a floor", GateKind.MASK, reach=lambda current, up, *, floor: _either(up, 9.0, floor))
def seam_gate(ratios: LogRatios, advantage: Tensor, *, floor: float) -> Gate:
    """Nothing of what has a ratio below `floor` counts (a test)."""
    below = (advantage != 0) & (xp.exp(ratios.behavior) < floor)
    return hard(below=below, above=xp.zeros_like(below))
''',
)
FILTER = Edit(
    "ratioscope/rules/filters.py",
    '''

@declared("filter: seam, the oldest tokens", judged=Judged.AGE)
def seam_filter(rows: Rows, *, max_lag: float) -> Gate:
    """Drop tokens that were sampled more than `max_lag` updates ago (a test)."""
    below = (rows.advantage != 0) & (rows.version_lag > max_lag)
    return hard(below=below, above=xp.zeros_like(below))
''',
)
WEIGHT = Edit(
    "ratioscope/rules/weights.py",
    '''

@declared("seam: the root of the ratio", unbounded=True)
def seam_weight(ratios: LogRatios, advantage: Tensor, sequence: Tensor) -> Tensor:
    """The root of rho (a test)."""
    return xp.exp(ratios.behavior / 2)
''',
)
PARAMETER = Edit(
    "ratioscope/rules/parameters.py",
    """    "floor": RuleParameter(
        "smallest ratio that counts", high=1, symbol="F", label="$F$ smallest ratio", scale=Scale(1e-2, 1, 0.9)
    ),
""",
    before='    "max_lag": RuleParameter(\n',
)
ALGORITHM = Edit(
    "trainer/algorithms/rows.py",
    """    Algorithm(
        name="seam",
        title="A test's algorithm",
        source="a test",
        gradient="(r_i - r̄) √ρ_θ 1[ρ_θ ≥ F] ∇log π_θ",
        advantage="group_mean",
        weight="seam_weight",
        gate="seam_gate",
        parameters=_set(floor=0.99),
    ),
""",
    before=")  # fmt: skip\n\nALGORITHMS: dict",
)
FINDING = Edit(
    "analysis/diagnosis/clipping.py",
    '''

@rule("seam_finding", order=105, page="seam", group=Group.CLIP, words="updates at all")
def updates_were_made(evidence: RunEvidence) -> Finding | None:
    """Every run with an update (a test)."""
    return Finding(
        severity=Severity.WARNING,
        sentence="Updates were made.",
        metric="clip_fraction",
        steps=steps_of(evidence.values["clip_fraction"]),
        numbers=(evidence.latest("clip_fraction"),),
        why="A trainer ran.",
        do="Nothing.",
        source="a test",
        limit=0.0,
    )
''',
)
CHECK = Edit(
    "analysis/linter/values.py",
    '''

@check(order=135)
def seam_check(evidence: LogEvidence) -> list[Finding]:
    """Whether there are rows (a test)."""
    return passed(f"There are {evidence.n_rows} rows.")
''',
)
PAGE = (
    Edit(
        "dashboard/sections/seam.py",
        '''"""Does the seam hold?"""

from ratioscope.dashboard.sections.model import Paragraph
from ratioscope.dashboard.sections.page import Page, in_numbers
from ratioscope.dashboard.sections.subject import Subject


def said(subject: Subject) -> Paragraph:
    """How long it holds."""
    return Paragraph(f"It holds in {len(subject.summary.values)} steps.")


PAGE = Page(
    "seam", "Seam", "Does the seam hold?", 85, ":material/science:",
    asks=("clipping",),
    answer=lambda subject: "It holds.",
    main=lambda subject: [said(subject)],
    tiles=("seam_metric",),
    report=[in_numbers("seam_metric"), said],
)
''',
    ),
    Edit("dashboard/sections/seam.md", "A seam holds where nothing had to be touched beside it.\n"),
)
FORMAT = Edit(
    "analysis/importers/formats/seam.py",
    '''"""A test's rollouts: seam_{step}.jsonl, a response a line."""

from ratioscope.analysis.importers.values import as_number, numbers
from ratioscope.analysis.importers.plain import Plain, of_text
from ratioscope.analysis.importers.responses import plain_text
from ratioscope.analysis.importers.source import Sign

IMPORTER = Plain(
    "seam-rollouts",
    "seam rollouts",
    framework="seam",
    files=r"seam_(\\d+)\\.jsonl",
    keys=("said", "points", "turns"),
    sequences=(("response", "said", plain_text), ("reward", "points", as_number)),
    tokens=(("logp_behavior", "turns[*].logps", numbers),),
    group=lambda record: plain_text(record.get("asked")),
    missing=of_text("a test has none"),
    signs=(Sign("seam_*.jsonl", ("said", "points", "turns")),),
).importer
''',
)

ADDITIONS: dict[str, tuple[Edit, ...]] = {
    "a metric that is a mean": (METRIC,),
    "a gate": (GATE, PARAMETER),
    "a filter": (FILTER,),
    "a weight": (WEIGHT,),
    "an algorithm": (ALGORITHM,),
    "a format of plain files": (FORMAT,),
    "a finding": (FINDING,),
    "a check of the log": (CHECK,),
    "a page, and its section of the report": PAGE,
}
"""By the first column of CONTRIBUTING.md's table."""
