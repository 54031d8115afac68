"""Runs that lack columns, one at a time and as sources lack them together; and all that the analysis says of a run.

for label, case in CASES.items():
    opened = opened_without(folder / label, case, steps)
    said(opened), said_of_tokens(opened)     # every sentence, with what says it
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.analysis.clipping import quadrants
from ratioscope.analysis.clipping import sentences as clipping
from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.diagnosis.report import diagnosis_text as diagnosis_text
from ratioscope.analysis.drift import pairs, promises
from ratioscope.analysis.drift import sentences as drift
from ratioscope.analysis.drift.certificate import certificate
from ratioscope.analysis.drift.feasibility import feasibility
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.findings.logged import QUESTIONS, logged
from ratioscope.analysis.findings.regime import regime
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.analysis.frameworks import theirs
from ratioscope.analysis.overview.verdict import run_verdict
from ratioscope.analysis.ratios import distributions, growth
from ratioscope.analysis.ratios import sentences as ratios
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.staleness import age, mixed_responses
from ratioscope.analysis.staleness.versions import sampled_by
from ratioscope.analysis.summary.strata import stratify
from ratioscope.analysis.tokens.attribution import attribution_sentence, shares
from ratioscope.analysis.tokens.reader import read_sequence
from ratioscope.analysis.tokens.worst_sequences import worst_sequences
from ratioscope.analysis.variance import failure_mode
from ratioscope.analysis.variance.truncation import truncation
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.run_format import schema
from tests.making.runs import Step, random_step, write_run

_LOGP = ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "logp_reference", "logp_teacher")
_EXACT = ("tv_current_behavior", "chi2_current_behavior", "tv_new_current")
_MASKS = ("clipped", "clip_side", "gate")
_GROUP = ("group_id", "sequences.group_id")
_VERSION = ("behavior_version", "steps.policy_version")
_SCALARS = ("steps.loss", "steps.grad_norm", "steps.eval_accuracy")
_RARE = ("logp_reference", "logp_teacher", *_EXACT, *_MASKS, "entropy", *_SCALARS)


@dataclass(frozen=True)
class Absent:
    """What a run lacks."""

    columns: tuple[str, ...]
    """Those of other tables than tokens with their table's name."""
    texts_alone: bool = False
    """No tokens at all."""


TOKEN_COLUMNS = (*_LOGP, "advantage", "token_id", "behavior_version", *_MASKS, "entropy", *_EXACT)
SINGLE = {
    **{name: Absent((name,)) for name in TOKEN_COLUMNS if name not in _EXACT[1:]},
    "group_id": Absent(_GROUP),
    "group_id of tokens": Absent(("group_id",)),
    "masks": Absent(_MASKS),
    **{name: Absent((f"sequences.{name}",)) for name in ("reward", "n_tokens")},
    **{name: Absent((f"steps.{name}",)) for name in ("policy_version", "wall_time", "grad_norm")},
}
SOURCES = {
    "sampler, trainer and advantage": Absent(
        ("logp_behavior_train", "logp_new", *_GROUP, *_VERSION, *_RARE)
    ),  # prime-rl's token export, NeMo-RL
    "sampler alone": Absent(
        ("logp_behavior_train", "logp_current", "logp_new", "advantage", *_RARE)
    ),  # Trinity, open-instruct, tinker
    "old alone": Absent(("logp_behavior", "logp_behavior_train", "logp_new", *_VERSION, *_RARE)),  # ROLL
    "trainer's recomputation": Absent(
        ("logp_behavior", "logp_reference", "logp_teacher", *_EXACT, "entropy"),
    ),  # TRL that generates with the model itself
    "texts": Absent(("sequences.n_tokens", *_VERSION, *_SCALARS), texts_alone=True),  # AReaL's dump, verl's rollouts
    "keys alone": Absent((*TOKEN_COLUMNS, *_GROUP, *_VERSION, *_SCALARS, "sequences.reward", "sequences.n_tokens")),
}
CASES = SINGLE | SOURCES


def rich_steps(n: int = 3) -> list[Step]:
    """A synthetic run with every column that anything reads."""
    return [random_step(np.random.default_rng(number), number, groups=9, responses=3) for number in range(n)]


def without(steps: Iterable[Step], absent: Absent) -> list[Step]:
    """The steps as a source would have them that lacks the columns."""
    return [_without(step, absent) for step in steps]


def _without(step: Step, absent: Absent) -> Step:
    taken: dict[str, set[str]] = {name: set() for name in schema.TABLES}
    for column in absent.columns:
        table, _, name = column.rpartition(".")
        taken[table or "tokens"].add(name)
    tables = {"tokens": step.tokens, "sequences": step.sequences, "steps": step.scalars}
    left: dict[str, Any] = {
        table: {name: values for name, values in columns.items() if name not in taken[table]}
        for table, columns in tables.items()
    }
    if "wall_time" in taken["steps"]:
        left["steps"]["wall_time"] = None
    return Step(step.number, None if absent.texts_alone else left["tokens"], left["sequences"], left["steps"])


def said(opened: Opened) -> Iterator[tuple[str, str]]:
    """Every sentence about a run that rests on its summary and its checks, with what says it."""
    run, summary, facts = opened.run, opened.summary, opened.facts()
    setup, log = setup_of(run.manifest), logged(run)
    yield "diagnose", diagnosis_text(opened)
    yield from (("check", remark.sentence) for remark in opened.remarks)
    yield from (("logged", log.sentence(question)) for question in QUESTIONS)
    yield from (("cautions", caution) for caution in log.cautions)
    yield from (("course", course(summary, key)) for key in CATALOGUE)
    yield "regime", regime(facts, setup).sentence
    yield from run_verdict(summary, opened.findings, opened.remarks, opened.limits).pairs
    yield "drift", drift.drift_headline(facts)
    yield "path", drift.path_section(facts)
    yield "triangle", drift.triangle_sentence(facts)
    yield "exact", drift.exact_sentence(summary)
    yield "ratios", ratios.answer(summary, opened.limits, setup)
    yield "spread", ratios.spread(summary)
    yield "cost", ratios.cost(summary)
    yield "left out", ratios.left_out_words(summary)
    yield "clipping", clipping.clipping_headline(summary, clipping.cannot_clip(run.manifest, summary.values))
    yield "variance", failure_mode.answer(facts, setup).sentence
    yield "blind spot", failure_mode.blind_spot_sentence(failure_mode.blind_spot(summary), opened.limits)
    yield "growth of variance", failure_mode.growth_sentence(summary)


def said_of_tokens(opened: Opened) -> Iterator[tuple[str, str]]:
    """What the rooms say that read the tokens again; what cannot be computed raises one of our errors, a sentence."""
    index = opened.summary.values.index
    for name, speak in _of_tokens(opened.run, int(index[0]), int(index[-1]), opened).items():
        try:
            yield name, speak()
        except RatioscopeError as error:
            yield name, str(error)


def _of_tokens(run: Run, first: int, last: int, opened: Opened) -> dict[str, Callable[[], str]]:
    """What reads the tokens again."""
    speaking: dict[str, Callable[[], str]] = {
        "certificate": lambda: promises.certificate_sentence(certificate(run, gamma=0.9)),
        "feasibility": lambda: drift.feasibility_sentence(feasibility(run), 0.2),
        "quadrants": lambda: quadrants.quadrant_sentence(
            quadrants.by_quadrant(distributions.quadrants(run, first, last), None)
        ),
        "survival": lambda: distributions.survival(run, first, last).answer,
        "growth": lambda: growth.growth(run, first, last).answer,
        "staleness of responses": lambda: failure_mode.staleness_sentence(
            opened.summary, failure_mode.response_staleness(run, first, last)
        ),
        "truncation": lambda: truncation(run, first, last, "token").sentence,
        "age": lambda: age.age_sentence(
            sampled_by(run).lags, stratify(run, "lag"), age.age_effect(run), opened.facts()
        ),
        "mixed": lambda: mixed_responses.versions_sentence(sampled_by(run).responses),
        "worst": lambda: str(len(worst_sequences(run, "largest_ratio")) + len(worst_sequences(run, "lowest_reward"))),
        "reader": lambda: str(len(read_sequence(run, first, 0).group)),
        "pairs": lambda: "; ".join(pairs.measure_pairs(run)["note"]),
        "as trl": lambda: "; ".join(theirs(run, "trl")["note"]),
        "by outcome": lambda: "; ".join(stratify(run, "outcome").table.notes["note"]),
        **{
            f"shares by {owner}": lambda owner=owner: attribution_sentence(shares(run, "chi2", owner))  # type: ignore[misc]
            for owner in ("token", "group", "advantage")
        },
        "shares of the update": lambda: attribution_sentence(shares(run, "update", "step")),
    }
    return speaking


def opened_without(folder: Path, absent: Absent, steps: Iterable[Step]) -> Opened:
    """A run without some columns, opened, summarised, checked and diagnosed."""
    return open_folder(write_run(folder, without(steps, absent), source={"framework": "synthetic"}))
