"""What a run logs, and what cannot be shown for want of it: decided once, from the files' footers and the manifest.

log = logged(run)
log.has_ratios, log.engine_in_ratios
log.missing("staleness")      # None, or Note(NOT_LOGGED, "How far the policy is from its data is unknown: ...")
log.sentence("staleness")     # its text; "" where everything is there
log.cautions                  # what holds for every number of this run, a sentence each

A column counts as logged where one row has a value in it: steps may still lack it, and say so beside their numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ratioscope.analysis.findings.numbers import capital
from ratioscope.analysis.runs.columns import added_up
from ratioscope.analysis.runs.files import TableFile
from ratioscope.analysis.runs.store import Run
from ratioscope.errors import unknown
from ratioscope.metric import SAMPLED, not_logged
from ratioscope.notes import Kind, Note
from ratioscope.run_format import schema

Need = tuple[str, ...]
"""Columns, one of which must be logged. Those of other tables than tokens are written with their table."""
_RATIO: tuple[Need, ...] = (("logp_current",), SAMPLED)
GROUP: Need = ("group_id", "sequences.group_id")
_VERSIONS: tuple[Need, ...] = (("behavior_version",), ("steps.policy_version",))


@dataclass(frozen=True)
class Question:
    """Something that a room or a rule asks of a run."""

    words: str
    """As the beginning of a sentence that ends with "is unknown"."""
    needs: tuple[Need, ...]
    metric: str = ""
    """The metric that answers it: where no step has one, the question is open."""


QUESTIONS: dict[str, Question] = {
    "tokens": Question("what single tokens did", (("position",),)),
    "staleness": Question("how far the policy is from its data", _RATIO, "s_k_bounded"),
    "update": Question("how far updates moved the policy", (*_RATIO, ("logp_new",)), "u_k"),
    "new": Question("how far the new policy is from the data", (SAMPLED, ("logp_new",)), "tv_new_behavior_bounded"),
    "engine": Question(
        "how far the sampler's engine is from the trainer's",
        (("logp_behavior",), ("logp_behavior_train",)),
        "s_k_engine_bounded",
    ),
    "age": Question("how old the data are", _VERSIONS, "version_lag"),
    "age_effect": Question("whether older tokens are further from the policy", (*_VERSIONS, *_RATIO)),
    "weights": Question("what importance weights cost", _RATIO, "ess_token"),
    "clipping": Question("what the clip did", (("clipped", "clip_side"),), "clip_fraction"),
    "clip_signs": Question(
        "what the clip did to good and to bad responses",
        (("clipped", "clip_side"), ("advantage",)),
        "clip_fraction_positive",
    ),
    "quadrants": Question("which tokens drive the gradient", (*_RATIO, ("advantage",))),
    "signal": Question("which prompt groups have a signal", (("advantage",), GROUP), "zero_advantage_group_fraction"),
    "what_if": Question("what another rule would have done", (*_RATIO, ("advantage",))),
    "certificate": Question(
        "what theory promises of the updates", (*_RATIO, ("logp_new",), ("sequences.reward",), GROUP)
    ),
    "feasibility": Question(
        "whether a clip around 1 can be met",
        (("behavior_version",), ("tv_version_spread", "tv_current_behavior")),
    ),
    "exact": Question(
        "what full distributions give in place of samples", (("tv_current_behavior", "tv_new_current"),), "s_k_exact"
    ),
    "reference": Question(
        "how far the policy is from the reference", (*_RATIO, ("logp_reference",)), "kl_to_reference"
    ),
    "teacher": Question("how far the policy is from its teacher", (*_RATIO, ("logp_teacher",)), "kl_to_teacher"),
    "entropy": Question("how sure the policy is of its tokens", (("entropy",),), "entropy"),
    "reward": Question("what the responses earned", (("sequences.reward",),), "reward"),
    "learning": Question("whether the policy learns", (("sequences.reward", "steps.eval_accuracy"),)),
    "lengths": Question("how long the responses are", (("sequences.n_tokens", "position"),), "response_length"),
    "groups": Question("which responses answer the same prompt", (GROUP,)),
    "texts": Question("what the responses say", (("sequences.response", "token_id"),)),
    "attribution": Question("which tokens did it", _RATIO),
    "probes": Question("what bias and variance of the gradient cost", (("probes.estimator",),)),
    "time": Question("when the updates were made", (("steps.wall_time",),)),
    "filters": Question("how many tokens were dropped before the loss", (tuple(f"steps.{c}" for c in schema.DROPPED),)),
}


@dataclass(frozen=True)
class Logged:
    """What one run logs."""

    columns: Mapping[str, frozenset[str]]
    """By table: the columns that have a value in some row."""
    reasons: Mapping[str, str]
    """By column: why the source does not have it, as the manifest says; text of the log."""
    assumed: tuple[str, ...] = ()
    """What an importer took for granted, a sentence each; text of the log."""
    decimals: int | None = None
    """Decimals that the source keeps of a log-probability; None: all."""
    sampled_with: str = ""
    """Of the sampler's log-probabilities: "raw", "processed" or "", not known."""
    counts_versions: bool = True
    """The policy's version is logged, or there is no steps table: versions are then counted like steps."""

    def has(self, *columns: str) -> bool:
        """Whether one of these columns is logged, those of the tokens table without their table's name."""
        return any(name in self.columns.get(table, ()) for table, name in map(_split, columns))

    @property
    def has_tokens(self) -> bool:
        return self.has("position")

    @property
    def has_ratios(self) -> bool:
        return self.missing("staleness") is None

    @property
    def has_update(self) -> bool:
        return self.missing("update") is None

    @property
    def has_advantages(self) -> bool:
        return self.has("advantage")

    @property
    def has_groups(self) -> bool:
        """Intervals are over prompt groups; otherwise over responses."""
        return self.has(*GROUP)

    @property
    def has_versions(self) -> bool:
        """The age of tokens is known."""
        return self.missing("age") is None

    @property
    def has_rewards(self) -> bool:
        return self.has("sequences.reward")

    @property
    def engine_in_ratios(self) -> bool:
        """Ratios are to the sampler's own probabilities, so that the engine's part is in them."""
        return self.has("logp_behavior")

    @property
    def rounding(self) -> float:
        """By how much a log-probability may be off, nats: half a unit of the last decimal that the source keeps."""
        return 0.5 * 10.0**-self.decimals if self.decimals is not None else 0.0

    def needs_of(self, question: str) -> tuple[Need, ...]:
        """What a question needs and this log lacks: of each tuple one column would do, with its table where that is not
        tokens.

        Raises:
            RatioscopeError: there is no such question.
        """
        if question not in QUESTIONS:
            raise unknown("a question to a log", question, QUESTIONS)
        return tuple(need for need in QUESTIONS[question].needs if not self.meets(need))

    def absent(self, question: str) -> tuple[str, ...]:
        """The columns of `needs_of`, each with its table where that is not tokens.

        Raises:
            RatioscopeError: there is no such question.
        """
        return tuple(name for need in self.needs_of(question) for name in need)

    def missing(self, question: str) -> Note | None:
        """Why a question of `QUESTIONS` has no answer, in one sentence; None where all that it needs is logged.

        Raises:
            RatioscopeError: there is no such question.
        """
        absent = self.needs_of(question)
        if not absent:
            return None
        words = QUESTIONS[question].words
        return Note(Kind.NOT_LOGGED, f"{capital(words)} is unknown: {self.why(*absent[0])}.")

    def sentence(self, question: str) -> str:
        """The text of `missing`; "" where all is there."""
        note = self.missing(question)
        return note.text if note else ""

    def why(self, *columns: str) -> str:
        """Why none of these columns is there, a clause: "logp_current is not logged (<what the manifest says>)"."""
        if not self.has_tokens and any(table == schema.TOKENS.name for table, _ in map(_split, columns)):
            return _with("no tokens are logged", self.reasons.get(schema.TOKENS.name, ""))
        names = list(dict.fromkeys(name for _, name in map(_split, columns)))
        if len(names) > _MOST_NAMED:
            return f"nothing of it is logged in the {_split(columns[0])[0]} table"
        return _with(not_logged(*names).text, next(filter(None, (self.reasons.get(name, "") for name in names)), ""))

    @property
    def cautions(self) -> tuple[str, ...]:
        """What holds for every number of this run and is said once, a sentence each; `assumed` is text of the log."""
        found = []
        if self.has_ratios and not self.engine_in_ratios:
            found.append(RECOMPUTED)
        if self.has_tokens and not self.has_groups:
            found.append(NO_GROUPS)
        if self.rounding:
            found.append(
                f"The source keeps {self.decimals} decimals of a log-probability: differences up to "
                f"{2 * self.rounding:.0e} are rounding."
            )
        if self.sampled_with == "raw" and self.engine_in_ratios:
            found.append(RAW)
        return (*found, *self.assumed)

    def meets(self, need: Need) -> bool:
        """Whether one of some columns is logged; the policy's version may be counted like steps."""
        return self.has(*need) or (need == ("steps.policy_version",) and self.counts_versions)


RECOMPUTED = (
    "Ratios use logp_behavior_train: the sampler's own log-probs are not logged, so the engine's part is missing."
)
NO_GROUPS = (
    "group_id is not logged: intervals are over responses instead of prompt groups, and too narrow where responses to "
    "one prompt are alike."
)
RAW = (
    "The sampler's log-probabilities are raw, before temperature, top-k and top-p. With any of these they are not what "
    "tokens were drawn with, and ratios contain the difference."
)
_MOST_NAMED = 3


def logged(run: Run) -> Logged:
    """What a run logs; of the same files it is found once."""
    manifest = run.manifest
    return Logged(
        columns={table: _columns(files) for table, files in run.files.items()},
        reasons=manifest.missing,
        assumed=tuple(manifest.assumed),
        decimals=manifest.log_probability_decimals,
        sampled_with=manifest.sampled_with,
        counts_versions=run.counts_versions,
    )


@lru_cache(maxsize=256)
def _columns(files: tuple[TableFile, ...]) -> frozenset[str]:
    _, n_values = added_up(files)
    return frozenset(name for name, n in n_values.items() if n != 0)


def _split(column: str) -> tuple[str, str]:
    """Table and name."""
    table, _, name = column.rpartition(".")
    return table or schema.TOKENS.name, name


def _with(clause: str, reason: str) -> str:
    return f"{clause} ({reason.strip().rstrip('.')})" if reason.strip() else clause
