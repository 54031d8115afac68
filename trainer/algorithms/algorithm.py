"""What a declaration of an algorithm consists of; the declarations are in `rows` and `field_rows`."""

from dataclasses import dataclass, field, fields
from types import MappingProxyType

from ratioscope.rules.filters import FILTERS


def values(**parameters: float) -> MappingProxyType[str, float]:
    """Parameters by name, not to be changed."""
    return MappingProxyType(parameters)


@dataclass(frozen=True)
class Algorithm:
    """Names of parts, and the default parameters of all of them.

    `epochs` x `minibatches` is the number of gradient passes of one update.
    """

    name: str
    title: str
    source: str
    gradient: str
    advantage: str
    selection: str = "all"
    sample_weight: str = "equal"
    level: str = "token"
    weight: str = "none"
    gate: str = "none"
    filter: str = "none"
    aggregation: str = "token_mean"
    regulariser: str = "none"
    step: str = "adamw"
    parameters: MappingProxyType[str, float] = field(default_factory=values)
    epochs: int = 1
    differs: str = ""

    @property
    def has_critic(self) -> bool:
        """Whether it trains a value head."""
        return self.advantage == "gae"

    @property
    def keeps_distributions(self) -> bool:
        """Whether it looks at all of pi_k's probabilities, not only those of the sampled tokens."""
        return self.regulariser == "adaptive_kl" or self.advantage == "optimal_token_baseline"

    @property
    def samples_greedily(self) -> bool:
        """Whether it needs the greedy response to each prompt, too."""
        return self.advantage == "greedy_baseline"

    @property
    def sees_whole_steps(self) -> bool:
        """Whether a part looks at all tokens of an optimiser step, so that micro-batches would change the loss."""
        chosen = self.filter in FILTERS and FILTERS[self.filter].updates
        return chosen or self.aggregation == "self_normalised" or self.regulariser == "covariance_kl"

    def parts(self) -> dict[str, str]:
        """The components, for the manifest and for comparing algorithms side by side."""
        return {part: getattr(self, part) for part in PARTS}


# What a part is called when it does nothing.
IDLE = {"all", "equal", "none", "token", "adamw"}

# Weights that are proportional to pi_theta, whose derivative is therefore themselves.
PROPORTIONAL = {"ratio", "incremental", "truncated_staleness", "truncated_sequence_staleness"}


def printed(algorithm: Algorithm) -> str:
    """What is printed as the loss, of each token (`trainer.algorithms.surrogate`)."""
    ratio = {"token": "ρ", "geometric": "s"}.get(algorithm.level, "W/|y|")
    ratio = ratio if algorithm.weight == "ratio" else "weight"
    if algorithm.weight == "geometric_of_clipped":
        policy = "weight A"
    elif algorithm.weight not in PROPORTIONAL:
        factors = (("w", algorithm.sample_weight), ("weight", algorithm.weight), ("M", algorithm.gate))
        policy = " ".join([*(symbol for symbol, choice in factors if choice not in IDLE), "A log π_θ"])
    else:
        policy = {
            "none": f"{ratio} A",
            "soft": f"(4/τ) sigmoid(τ({ratio} - 1)) A",
            **dict.fromkeys(("two_side", "ring", "masked"), f"{ratio} M A"),
        }.get(algorithm.gate, f"min({ratio} A, clip({ratio}) A)")
    more = {
        "none": "",
        "squared_log_ratio": " - (τ/2) (log W)²/|y|",
        "squared_token_log_ratio": " - (τ/2) (log ρ)²",
        "adaptive_kl": " - β KL(π_k ‖ π_θ)",
    }
    if algorithm.regulariser == "pair_consistency":
        return "minus the mean over responses of -(a_i - ā)²/(1+τ)²"
    policy += "" if algorithm.filter in IDLE else " (0 where filtered)"
    return f"minus the {algorithm.aggregation} of {policy}{more.get(algorithm.regulariser, ' - penalty')}"


# The modules of the parts, and the functions that are not called as the choice is.
_MODULES = {
    "level": "rules.ratios", "weight": "rules.weights", "gate": "rules.gates", "filter": "rules.filters",
    **{part: f"trainer.algorithms.{module}" for part, module in {
        "aggregation": "losses", "advantage": "advantages", "selection": "selection", "sample_weight": "selection",
        "regulariser": "regularisers",
    }.items()},
    "step": "trainer.training.update",
}  # fmt: skip
_FUNCTIONS = {
    "all": "algorithms.selection.all_responses", "adamw": "training.update.Learner",
    "trust_region": "algorithms.trust_region.trust_region_step",
}  # fmt: skip


def where_in_code(part: str, choice: str) -> str:
    """Where a part is in the code: ratioscope.rules.gates.two_side; nothing where it needs no code."""
    if ".py:" in choice or (part, choice) == ("filter", "none"):
        return ""
    if choice in _FUNCTIONS:
        return f"ratioscope.trainer.{_FUNCTIONS[choice]}"
    if choice.startswith("reject_") and choice.endswith(("k1", "k2", "k3")):
        return "ratioscope.rules.filters._rejection"  # makes all of these
    if choice.endswith("staleness_band"):
        return "ratioscope.rules.filters._staleness_band"
    return f"ratioscope.{_MODULES[part]}.{choice}" + ("_level" if part == "level" else "")


PARTS = tuple(
    f.name
    for f in fields(Algorithm)
    if f.name not in ("name", "title", "source", "gradient", "parameters", "epochs", "differs")
)
