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

PARTS = tuple(
    f.name
    for f in fields(Algorithm)
    if f.name not in ("name", "title", "source", "gradient", "parameters", "epochs", "differs")
)
