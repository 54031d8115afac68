"""Runs that lack columns, one at a time and as sources lack them together; and all that the analysis says of a run.

for label, case in CASES.items():
    run = open_run(write_run(folder / label, without(steps, case)))
    said(run)                      # every sentence, by the function that says it
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratioscope import schema
from ratioscope.analysis.clipping import quadrants
from ratioscope.analysis.clipping import sentences as clipping
from ratioscope.analysis.diagnosis.opened import Opened, open_folder
from ratioscope.analysis.diagnosis.report import text as diagnosis_text
from ratioscope.analysis.drift import pairs, promises
from ratioscope.analysis.drift import sentences as drift
from ratioscope.analysis.drift.certificate import certificate
from ratioscope.analysis.drift.feasibility import feasibility
from ratioscope.analysis.findings.course import course
from ratioscope.analysis.findings.logged import QUESTIONS, logged
from ratioscope.analysis.findings.regime import regime
from ratioscope.analysis.findings.setup import setup_of
from ratioscope.analysis.frameworks import DIALECTS, theirs
from ratioscope.analysis.overview.verdict import run_verdict
from ratioscope.analysis.ratios import distributions, growth, lengths
from ratioscope.analysis.ratios import sentences as ratios
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.staleness import age, mixed_responses
from ratioscope.analysis.summary.strata import STRATIFICATIONS, stratify
from ratioscope.analysis.tokens.attribution import MEASURES, OWNERS, sentence, shares
from ratioscope.analysis.tokens.reader import read_sequence
from ratioscope.analysis.tokens.worst_sequences import CRITERIA, worst_sequences
from ratioscope.analysis.variance import failure_mode
from ratioscope.analysis.variance.truncation import truncation
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from tests.making.runs import Step, random_step

_LOGP = ("logp_behavior", "logp_behavior_train", "logp_current", "logp_new", "logp_reference")
_EXACT = ("tv_current_behavior", "chi2_current_behavior", "tv_new_current")
_MASKS = ("clipped", "clip_side", "gate")
_GROUP = ("group_id", "sequences.group_id")
_VERSION = ("behavior_version", "steps.policy_version")
_SCALARS = ("steps.loss", "steps.grad_norm", "steps.eval_accuracy")
_RARE = ("logp_reference", *_EXACT, *_MASKS, "entropy", *_SCALARS)


@dataclass(frozen=True)
class Absent:
    """What a run lacks."""

    columns: tuple[str, ...]
    """Those of other tables than tokens with their table's name."""
    texts_alone: bool = False
    """No tokens at all."""


TOKEN_COLUMNS = (*_LOGP, "advantage", "token_id", "behavior_version", *_MASKS, "entropy", *_EXACT)
SINGLE = {
    **{name: Absent((name,)) for name in TOKEN_COLUMNS},
    "group_id": Absent(_GROUP),
    "group_id of tokens": Absent(("group_id",)),
    "masks": Absent(_MASKS),
    **{name: Absent((f"sequences.{name}",)) for name in ("reward", "n_tokens")},
    **{name: Absent((f"steps.{name}",)) for name in ("policy_version", "wall_time", "eval_accuracy", "grad_norm")},
}
SOURCES = {
    "sampler, trainer and advantage": Absent(
        ("logp_behavior_train", "logp_new", *_GROUP, *_VERSION, *_RARE),
    ),  # prime-rl's token export
    "sampler, old and advantage": Absent(("logp_behavior_train", "logp_new", *_GROUP, *_VERSION, *_RARE)),  # NeMo-RL
    "sampler alone": Absent(
        ("logp_behavior_train", "logp_current", "logp_new", "advantage", *_RARE)
    ),  # Trinity, open-instruct, tinker
    "old alone": Absent(("logp_behavior", "logp_behavior_train", "logp_new", *_VERSION, *_RARE)),  # ROLL
    "trainer's recomputation": Absent(
        ("logp_behavior", "logp_reference", *_EXACT, "entropy"),
    ),  # TRL that generates with the model itself
    "texts": Absent(("sequences.n_tokens", *_VERSION, *_SCALARS), texts_alone=True),  # AReaL's dump, verl's rollouts
    "texts with lengths": Absent((*_GROUP, *_VERSION, *_SCALARS), texts_alone=True),
    "keys alone": Absent((*TOKEN_COLUMNS, *_GROUP, *_VERSION, *_SCALARS, "sequences.reward", "sequences.n_tokens")),
}
CASES = SINGLE | SOURCES


def rich_steps(n: int = 5) -> list[Step]:
    """A synthetic run with every column that anything reads."""
    steps = [random_step(np.random.default_rng(number), number, groups=9, responses=4) for number in range(n)]
    return [replace(step, sequences=step.sequences | {"response": ["a b"] * 36}) for step in steps]


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
    """Every sentence about a run, with what says it; what cannot be computed raises one of our errors, a sentence."""
    run, summary, facts = opened.run, opened.summary, opened.facts()
    first, last = int(summary.values.index[0]), int(summary.values.index[-1])
    setup, log = setup_of(run.manifest), logged(run)
    yield "diagnose", diagnosis_text(opened)
    yield from (("check", remark.sentence) for remark in opened.remarks)
    yield from (("logged", log.sentence(question)) for question in QUESTIONS)
    yield from (("cautions", caution) for caution in log.cautions)
    yield from (("course", course(summary, key)) for key in CATALOGUE)
    yield "regime", regime(facts, setup).sentence
    yield from run_verdict(summary, opened.findings, opened.remarks, opened.limits, setup=setup)
    yield "drift", drift.headline(facts)
    yield "path", drift.path_section(facts)
    yield "triangle", drift.triangle_sentence(facts)
    yield "exact", drift.exact_sentence(summary)
    yield "ratios", ratios.answer(summary, opened.limits, setup)
    yield "spread", ratios.spread(summary)
    yield "cost", ratios.cost(summary)
    yield "left out", ratios.left_out_words(summary)
    yield "clipping", clipping.headline(summary, clipping.cannot_clip(run.manifest, summary.values))
    yield "variance", failure_mode.answer(facts, setup).sentence
    yield "blind spot", failure_mode.blind_spot_sentence(failure_mode.blind_spot(summary), opened.limits)
    yield "growth of variance", failure_mode.growth_sentence(summary)
    for name, speak in _of_tokens(run, first, last, opened).items():
        try:
            yield name, speak()
        except RatioscopeError as error:
            yield name, str(error)


def _of_tokens(run: Run, first: int, last: int, opened: Opened) -> dict[str, Callable[[], str]]:
    """What reads the tokens again."""
    speaking: dict[str, Callable[[], str]] = {
        "certificate": lambda: promises.certificate_sentence(certificate(run, gamma=0.9)),
        "bandit": lambda: promises.certificate_sentence(certificate(run, gamma=0.0)),
        "feasibility": lambda: drift.feasibility_sentence(feasibility(run), 0.2),
        "quadrants": lambda: quadrants.quadrant_sentence(
            quadrants.by_quadrant(distributions.quadrants(run, first, last), None)
        ),
        "survival": lambda: distributions.survival(run, first, last).answer,
        "survival of responses": lambda: distributions.survival(run, first, last, level="sequence").answer,
        "growth": lambda: growth.growth(run, first, last).answer,
        "length trap": lambda: lengths.length_trap(run, first, last).answer,
        "staleness of responses": lambda: failure_mode.staleness_sentence(
            opened.summary, failure_mode.response_staleness(run, first, last)
        ),
        "truncation": lambda: truncation(run, first, last, "token").sentence,
        "age": lambda: age.sentence(age.version_lags(run), stratify(run, "lag"), age.age_effect(run), opened.facts()),
        "mixed": lambda: mixed_responses.sentence(mixed_responses.switching(run)),
        "mixed by position": lambda: "; ".join(mixed_responses.by_position(run, "s_k_bounded")["note"]),
        "by versions": lambda: str(len(mixed_responses.by_versions(run))),
        "worst": lambda: str([len(worst_sequences(run, criterion)) for criterion in CRITERIA]),
        "reader": lambda: str(len(read_sequence(run, first, 0).group)),
        **{
            f"pairs of {level}": lambda level=level: "; ".join(pairs.measure(run, level=level)["note"])  # type: ignore[misc]
            for level in ("token", "sequence")
        },
        **{f"as {name}": lambda name=name: "; ".join(theirs(run, name)["note"]) for name in DIALECTS},  # type: ignore[misc]
        **{f"by {by}": lambda by=by: "; ".join(stratify(run, by).table.notes["note"]) for by in STRATIFICATIONS},  # type: ignore[misc]
        **{f"shares by {owner}": lambda owner=owner: sentence(shares(run, "chi2", owner)) for owner in OWNERS},  # type: ignore[misc]
        **{f"shares of {of}": lambda of=of: sentence(shares(run, of, "step")) for of in MEASURES},  # type: ignore[misc]
    }
    return speaking


def opened_without(folder: Any, absent: Absent, steps: Iterable[Step]) -> Opened:
    """A run without some columns, opened, summarised, checked and diagnosed."""
    from tests.making.runs import write_run

    return open_folder(write_run(folder, without(steps, absent), source={"framework": "synthetic"}))
