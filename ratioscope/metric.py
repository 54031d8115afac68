"""What a catalogue entry is: a metric with its texts, the moment it needs, and when that can be trusted."""

from dataclasses import dataclass
from enum import Enum
from math import inf, isnan, log10

from ratioscope.notes import Kind, Note
from ratioscope.terms import LOG_RHO, Term, column, known


class Moment(Enum):
    """Which moment of the ratio the estimator is built on."""

    BOUNDED = "bounded"
    """Bounded terms."""
    FIRST = "first"
    """Means of rho or |rho - 1|: their intervals hold whatever the tail is like (docs/metrics.md, uncertainty)."""
    SECOND = "second"
    """Means of rho squared or nearly so, and logarithms of them: doubtful where they rest on the largest ratio
    (`doubt`)."""


class Grain(Enum):
    """What a metric is of, which decides where it can be looked at."""

    TOKEN = "token"
    """Of the usable tokens: there is one of any set of tokens."""
    RESPONSE = "response"
    """Of whole responses: tokens that are only parts of theirs have none."""
    STEP = "step"
    """Logged by the trainer, once a step, in the steps table."""


class Population(Enum):
    """Which tokens or responses a metric is of, in words."""

    SAMPLED = "tokens as sampled; headline numbers also of those that trained, where some were rejected or dropped"
    RESPONSES = "responses as sampled, with those that were dropped"
    LOGGED = "as the trainer logged it"


UNDEFINED = Note(Kind.UNDEFINED, "undefined")
INFINITE = Note(Kind.INFINITE, "infinite: a ratio of 0 or beyond the floating-point range")


def not_logged(*columns: str) -> Note:
    """Why a number is missing that needs one of these columns of the run format."""
    many = f"neither {' nor '.join(columns)} is logged"
    return Note(Kind.NOT_LOGGED, many if len(columns) > 1 else f"{columns[0]} is not logged")


@dataclass(frozen=True)
class Denominator:
    """What a metric is taken over: which tokens, or responses, and why there may be none of them."""

    count: str
    """Their number, in the partial sums: a name with n_."""
    missing: Note
    """Why a metric over them is missing where there are none."""
    where: Term | None = None
    """Of one usable token, or one response: whether it is one of them; None for all."""
    columns: tuple[str, ...] = ()
    """Columns of the run format, one of which must be logged."""
    within: "Denominator | None" = None
    """What they are a part of: where there is nothing of that, its reason comes first."""
    apart: bool = False
    """Scanned only where one of the columns is there: few logs have them."""
    grain: Grain = Grain.TOKEN
    """What is counted."""

    @property
    def chain(self) -> tuple["Denominator", ...]:
        """It, what it is within, and so on."""
        return (self, *(self.within.chain if self.within else ()))


ALL_TOKENS = Denominator("n_tokens", Note(Kind.UNDEFINED, "no usable token in this step"))
CURRENT = Denominator(
    "n_current", not_logged("logp_current"), known(column("logp_current")), ("logp_current",), within=ALL_TOKENS
)
SAMPLED = ("logp_behavior", "logp_behavior_train")
"""What ratios divide by: the first of them that is logged (`analysis/runs/tokens.sql`)."""
RATIOS = Denominator("n_ratios", not_logged(*SAMPLED), known(LOG_RHO), SAMPLED, within=CURRENT)


@dataclass(frozen=True)
class Mean:
    """A metric that is factor * (sum of a term) / (number of what it is taken over) + offset: its entry is enough."""

    term: Term
    """Of one usable token, over columns of the run format and those of `analysis/runs/tokens.sql`; of the grain
    RESPONSE, of one response. Of a condition the mean is the share of those for which it holds."""
    sum: str = ""
    """Where the scan makes it of sums that it has anyway: its name there (`analysis/summary/sums.py`)."""
    graded: str = ""
    """A count of the partial sums: in steps where it is 0 every term is 0 or 1, and the mean is a share."""
    factor: float = 1.0
    offset: float = 0.0


KHAT_LIMIT = {Moment.FIRST: 0.7, Moment.SECOND: 0.35}
"""From which tail index on a moment of the ratios does not exist, or nearly so; it describes them and marks nothing."""


@dataclass(frozen=True)
class Metric:
    """One catalogue entry; texts are plain sentences, `symbol` and `formula` are LaTeX."""

    key: str
    title: str
    symbol: str
    formula: str
    definition: str
    source: str
    reading: str
    remedy: str = ""
    unit: str = ""
    better: str = ""
    moment: Moment = Moment.BOUNDED
    reliance: str = "reliance_token"
    """Of the second moment: the metric that says whether it can be trusted (`doubt`)."""
    spread: str = ""
    """The metric that says how unequal prompt groups are in it, by which the steps of a run judge each other."""
    grain: Grain = Grain.TOKEN
    over: Denominator = RATIOS
    mean: Mean | None = None
    """None: a function of the step summary computes it."""
    undefined: Note = UNDEFINED
    """Why it is missing where all that it needs is there."""
    short: str = ""
    """A name for tiles and legends, where the title is too long for them."""
    share: bool = False
    """A part of a whole: within [0, 1], written in percent."""
    lowest: float = -inf
    highest: float = inf
    """What is possible: no interval reaches beyond (`possible`)."""
    one_sided: bool = False
    """A sample can only say "at least", or "at most" where higher is better: the other end is what is possible."""
    sparse: bool = False
    """Logged now and then: its values are drawn as points."""
    comparable: bool = True
    """Between runs; what grows with the number of tokens is not."""
    colour: str = "blue"
    """Of its line, by its name in the palette of the dashboard's theme."""
    order: int = 100
    """Where lists to choose from show it: small first, equals in the order of the catalogue."""

    @property
    def label(self) -> str:
        return self.short or self.title

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and the highest value that it can have."""
        return (0.0, 1.0) if self.share else (self.lowest, self.highest)

    @property
    def population(self) -> Population:
        """Which tokens or responses it is of."""
        if self.grain is Grain.STEP:
            return Population.LOGGED
        return Population.RESPONSES if self.over.grain is Grain.RESPONSE else Population.SAMPLED

    @property
    def can_be_unreliable(self) -> bool:
        """Whether its interval need not hold: by what its own step shows, or the other steps."""
        return self.moment is Moment.SECOND or bool(self.spread)

    @property
    def unit_of_ratio(self) -> str:
        """Whose ratio is squared."""
        return "ratio of a response" if self.reliance == "reliance_seq" else "ratio"

    @property
    def numerator(self) -> str:
        """The name of a mean's sum in the partial sums."""
        assert self.mean is not None, self.key
        return self.mean.sum or self.key

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """Columns that must be logged: of each tuple, one at least. What the trainer logs is a column of its own."""
        if self.grain is Grain.STEP:
            return ()
        return tuple(dict.fromkeys(part.columns for part in self.over.chain if part.columns))

    @property
    def sample(self) -> str:
        """The count of the step summary that is the sample size of a tail index."""
        return "n_sequences" if self.key == "khat_seq" else "n_ratios"


def khat_limit(moment: Moment, n: int) -> float | None:
    """From which k-hat on a moment of n ratios cannot be estimated by the usual reading of it; None: never.

    The sample-size rule min(1 - 1/log10 n, 0.7) is for means of the ratio (Vehtari et al.); its square halves it.
    """
    if moment is Moment.BOUNDED:
        return None
    by_size = 1 - 1 / log10(n) if n > 10 else 0.0
    return min(KHAT_LIMIT[moment], by_size if moment is Moment.FIRST else by_size / 2)


# Ratios up to this one cannot hurt a mean of squares, however they are distributed: (rho - 1)^2 is at most 1/4.
HARMLESS_RATIO = 1.5

# By the simulation of `tests/oracles/trust.py`: below it intervals cover as often as they say.
MOST_RELIANCE = 0.3

# By the same simulation: above, groups that were not drawn could move the number. A single step cannot tell, because
# those that have drawn them cover and the others do not: where more than a tenth of a run's steps are above, all are
# marked. The central limit holds where the standard error is at most a tenth of the number, whatever the groups.
MOST_SPREAD = 1.3
HARMLESS_ERROR = 0.1


def doubt(reliance: float, unit: str = "ratio") -> Note | None:
    """Why a mean of squares cannot be trusted: what was not seen could move it; None where it can.

    Where the central limit holds, the largest term is small beside the standard error, and the next larger one, which
    was not drawn, as well. A fitted tail says this worse than the largest term does (docs/metrics.md, uncertainty).

    Args:
        reliance: what the largest term adds to the mean, in standard errors of the mean; 0 where no ratio is above
            `HARMLESS_RATIO`, NaN without a standard error.
        unit: what the terms are of.
    """
    if reliance <= MOST_RELIANCE:
        return None
    if isnan(reliance):
        return Note(Kind.UNRELIABLE, "unreliable: there is no standard error, and ratios are large")
    return Note(
        Kind.UNRELIABLE,
        f"unreliable: the largest {unit} alone moves it by {reliance:.2g} standard errors, "
        "so those that were not drawn could move it, too",
    )


@dataclass(frozen=True)
class Threshold:
    """A limit that findings are measured against."""

    name: str
    symbol: str
    value: float
    source: str
    meaning: str
    lowest: float
    highest: float
    """A project may move it between these two."""
