"""What a declaration of an algorithm consists of; the declarations are in `trainer.algorithms`."""

from dataclasses import dataclass, field, fields
from types import MappingProxyType


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
    parameters: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    epochs: int = 1
    differs: str = ""

    @property
    def has_critic(self) -> bool:
        """Whether it trains a value head."""
        return self.advantage == "gae"

    def parts(self) -> dict[str, str]:
        """The components, for the manifest and for comparing algorithms side by side."""
        return {part: getattr(self, part) for part in PARTS}


# What a part is called when it does nothing.
IDLE = {"all", "equal", "none", "token", "adamw"}

# The modules of the parts, and the functions that are not called as the choice is.
_MODULES = {
    "level": "ratios", "weight": "weights", "gate": "gates", "filter": "filters", "aggregation": "trainer.losses",
    "advantage": "trainer.advantages", "selection": "trainer.selection", "sample_weight": "trainer.selection",
    "regulariser": "trainer.regularisers", "step": "trainer.update",
}  # fmt: skip
_FUNCTIONS = {
    "all": "selection.all_responses", "adamw": "update.Learner", "trust_region": "trust_region.trust_region_step",
}  # fmt: skip


def where(part: str, choice: str) -> str:
    """Where a part is in the code: ratioscope.gates.two_side; nothing where it needs no code."""
    if ".py:" in choice or (part, choice) == ("filter", "none"):
        return ""
    if choice in _FUNCTIONS:
        return f"ratioscope.trainer.{_FUNCTIONS[choice]}"
    if choice.startswith("reject_") and choice.endswith(("k1", "k2", "k3")):
        return "ratioscope.filters._rejection"  # makes all of these
    return f"ratioscope.{_MODULES[part]}.{choice}" + ("_level" if part == "level" else "")


PARTS = tuple(
    f.name
    for f in fields(Algorithm)
    if f.name not in ("name", "title", "source", "gradient", "parameters", "epochs", "differs")
)
