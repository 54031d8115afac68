"""What a catalogue entry is: a metric with its texts, the moment it needs, and when that can be trusted."""

from dataclasses import dataclass
from enum import Enum
from math import inf, isnan, log10

from ratioscope.notes import Kind, Note

SOURCES = {
    "S0": '"Off-Policy Training in Large Language Model Reinforcement Learning: From Theory to Practice" (2025)',
    "S1": 'Yingru Li, Jiacai Liu: "Why Off-Policy Breaks RL: An SGA Analysis Framework" (2025)',
    "S3": '"Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm" (2025)',
    "S4": '"Reinforcement Learning for LLM Alignment" (draft)',
}


class Moment(Enum):
    """Which moment of the ratio the estimator is built on."""

    BOUNDED = "bounded"
    """Bounded terms: always estimable."""
    FIRST = "first"
    """Means of rho or |rho - 1|: unreliable from k-hat 0.7 on."""
    SECOND = "second"
    """Means of rho squared: unreliable from k-hat 0.35 on, because the tail index of a square is twice as large."""


class Grain(Enum):
    """What a metric is of, which decides where it can be looked at."""

    TOKEN = "token"
    """Of the usable tokens: there is one of any set of tokens."""
    RESPONSE = "response"
    """Of whole responses: tokens that are only parts of theirs have none."""
    STEP = "step"
    """Logged by the trainer, once a step, in the steps table."""


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
    where: str = ""
    """SQL over one usable token, or one response: whether it is one of them; "" for all."""
    columns: tuple[str, ...] = ()
    """Columns of the run format, one of which must be logged."""
    within: "Denominator | None" = None
    """What they are a part of: where there is nothing of that, its reason comes first."""
    apart: bool = False
    """Scanned only where one of the columns is there: few logs have them."""

    @property
    def chain(self) -> tuple["Denominator", ...]:
        """It, what it is within, and so on."""
        return (self, *(self.within.chain if self.within else ()))


TOKENS = Denominator("n_tokens", Note(Kind.UNDEFINED, "no usable token in this step"))


@dataclass(frozen=True)
class Mean:
    """A metric that is factor * (sum of a term) / (number of what it is taken over) + offset: its entry is enough."""

    term: str = ""
    """SQL over one usable token: columns of the run format, the log-ratios of `analysis/runs/tokens.sql`, `deviation`
    and `deviation_new` (rho - 1 of both policies). Of the grain RESPONSE, over one response."""
    holds: str = ""
    """Instead of a term: SQL that is true or not; the mean is the share of those for which it is."""
    sum: str = ""
    """Instead of a term: a sum that the scan makes anyway (`analysis/summary/group_sums.sql`)."""
    factor: float = 1.0
    offset: float = 0.0


KHAT_LIMIT = {Moment.FIRST: 0.7, Moment.SECOND: 0.35}


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
    khat: tuple[str, ...] = ("khat_token",)
    """Tail indices that decide whether it can be trusted."""
    grain: Grain = Grain.TOKEN
    over: Denominator = TOKENS
    mean: Mean | None = None
    """None: a function of the step summary computes it."""
    columns: tuple[str, ...] = ()
    """Columns that its terms need besides those of `over`."""
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
    """A sample can only say "at least": `low` is a 95 % bound and `high` is infinite."""
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
    def numerator(self) -> str:
        """The name of a mean's sum in the partial sums."""
        assert self.mean is not None, self.key
        return self.mean.sum or self.key

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """Columns that must be logged, beyond the required ones: of each tuple, one at least."""
        return (*((name,) for name in self.columns), *(part.columns for part in self.over.chain if part.columns))

    @property
    def sample(self) -> str:
        """The count of the step summary that is the sample size of the tail indices that judge it."""
        return "n_sequences" if "khat_seq" in (self.key, *self.khat) else "n_tokens"


def khat_limit(moment: Moment, n: int) -> float | None:
    """From which k-hat on an estimate built on `moment` is unreliable with n samples; None: never.

    The sample-size rule min(1 - 1/log10 n, 0.7) is for means of the ratio (Vehtari et al.); its square halves it.
    """
    if moment is Moment.BOUNDED:
        return None
    by_size = 1 - 1 / log10(n) if n > 10 else 0.0
    return min(KHAT_LIMIT[moment], by_size if moment is Moment.FIRST else by_size / 2)


def doubt(tail: str, khat: float | None, moment: Moment, n: int, missing: Note | None = None) -> Note | None:
    """Why a mean of n terms of this moment cannot be trusted; None where it can.

    Args:
        tail: what the tail index is of, as a note should call it.
        khat: the tail index; None or NaN where it cannot be estimated.
        missing: why it cannot, as `ratioscope.tails` says it; None, and `Kind.NO_TAIL`, are harmless.
    """
    limit = khat_limit(moment, n)
    if limit is None:
        return None
    if khat is None or isnan(khat):
        if missing is None or missing.kind is Kind.NO_TAIL:
            return None
        return Note(Kind.UNRELIABLE, f"unreliable: {tail} cannot be estimated, {missing.reason}")
    if khat < limit:
        return None
    return Note(
        Kind.UNRELIABLE, f"unreliable: {tail} is {khat:.2f}, from {limit:.2f} on its moment cannot be estimated"
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
