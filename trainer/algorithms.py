"""The catalogue: every algorithm is a declaration of parts.

All of them share one gradient,

    g = (1/norm) sum_i sum_t  A_it * weight_it * gate_it * grad log pi_theta(y_it | x_i, y_i,<t)

and differ in how advantage, weight, gate and norm are chosen (`trainer.advantages`, `ratioscope.gates`,
`trainer.losses`).
To add an algorithm, add a row here, and a part where it brings a new one.
"""

from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Algorithm:
    """Names of parts with their default parameters.

    `parameters` go to the gate; `passes` is the number of gradient passes over the batch in one update.
    """

    name: str
    title: str
    source: str
    advantage: str
    weight: str
    gate: str
    aggregation: str
    gradient: str
    parameters: MappingProxyType[str, float] = field(default_factory=lambda: MappingProxyType({}))
    passes: int = 1
    differs: str = ""

    def parts(self) -> dict[str, str]:
        """The components, for the manifest and for comparing algorithms side by side."""
        return {
            "advantage": self.advantage,
            "weight": self.weight,
            "gate": self.gate,
            "aggregation": self.aggregation,
        }


def _epsilon(low: float, high: float, **more: float) -> MappingProxyType[str, float]:
    return MappingProxyType({"epsilon_low": low, "epsilon_high": high, **more})


_ROWS = (
    Algorithm(
        name="reinforce",
        title="REINFORCE, group-relative",
        source="S3 eq. 1",
        advantage="group_mean",
        weight="none",
        gate="none",
        aggregation="token_mean",
        gradient="(r_i - r̄) ∇log π_θ",
        differs="token mean over the batch instead of the sum over a group",
    ),
    Algorithm(
        name="grpo",
        title="GRPO",
        source="S4 5.3, S3 4.1",
        advantage="group_normalised",
        weight="ratio",
        gate="one_side",
        aggregation="token_mean",
        gradient="((r_i - r̄)/σ_r) ρ_θ M ∇log π_θ",
        parameters=_epsilon(0.2, 0.2),
        differs="token mean as in S3's experiments (S4 averages inside a sequence first); no KL term",
    ),
    Algorithm(
        name="rec_oneside_is",
        title="REC-OneSide-IS",
        source="S3 4.1",
        advantage="group_mean",
        weight="ratio",
        gate="one_side",
        aggregation="token_mean",
        gradient="(r_i - r̄) ρ_θ M ∇log π_θ",
        parameters=_epsilon(0.2, 0.2),
    ),
    Algorithm(
        name="rec_oneside_nois",
        title="REC-OneSide-NoIS",
        source="S3 4.1",
        advantage="group_mean",
        weight="none",
        gate="one_side",
        aggregation="token_mean",
        gradient="(r_i - r̄) M ∇log π_θ",
        parameters=_epsilon(0.2, 0.2),
    ),
    Algorithm(
        name="rec_twoside_nois",
        title="REC-TwoSide-NoIS",
        source="S3 B.3 eq. 18",
        advantage="group_mean",
        weight="none",
        gate="two_side",
        aggregation="token_mean",
        gradient="(r_i - r̄) 1[1-ε_low ≤ ρ_θ ≤ 1+ε_high] ∇log π_θ",
        parameters=_epsilon(0.2, 0.2),
    ),
    Algorithm(
        name="rec_ring_nois",
        title="REC-Ring-NoIS",
        source="S3 B.3 eq. 19",
        advantage="group_mean",
        weight="none",
        gate="ring",
        aggregation="token_mean",
        gradient="(r_i - r̄) M_ring ∇log π_θ",
        parameters=_epsilon(0.2, 0.2, outer_low=0.6, outer_high=2.0),
        differs="the ring is the logical OR of its bands; eq. 19 adds indicators that overlap only on a bound",
    ),
    Algorithm(
        name="adaptive_clip",
        title="Method One, adaptive clipping",
        source="S0 5.3-5.4",
        advantage="group_mean",
        weight="ratio",
        gate="adaptive",
        aggregation="token_mean",
        gradient="A ρ_θ 1[|ρ_θ - ρ_k| ≤ ε on the advantage's side] ∇log π_θ",
        parameters=MappingProxyType({"epsilon": 0.2}),
        passes=4,
        differs="four passes an update: a gate anchored at π_k cannot bind in the first; group mean as advantage",
    ),
    Algorithm(
        name="incremental_clip",
        title="Method Two, incremental clipping",
        source="S0 5.3-5.4",
        advantage="group_mean",
        weight="ratio",
        gate="incremental",
        aggregation="token_mean",
        gradient="ρ_k A r 1[|r - 1| ≤ ε on the advantage's side] ∇log π_θ, r = π_θ/π_k",
        parameters=MappingProxyType({"epsilon": 0.2}),
        passes=4,
        differs="four passes an update: a gate anchored at π_k cannot bind in the first; group mean as advantage",
    ),
)

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ROWS}


def describe(algorithm: Algorithm) -> str:
    """One algorithm as text: gradient, source, parts, defaults, where it differs from its source."""
    parameters = ", ".join(f"{name}={value:g}" for name, value in algorithm.parameters.items()) or "none"
    lines = [
        f"{algorithm.title} ({algorithm.name})",
        "",
        f"  gradient    {algorithm.gradient}",
        f"  source      {algorithm.source}",
        *(f"  {part:<11} {choice}" for part, choice in algorithm.parts().items()),
        f"  parameters  {parameters}",
        f"  passes      {algorithm.passes} an update",
    ]
    if algorithm.differs:
        lines.append(f"  differs     {algorithm.differs}")
    return "\n".join(lines)


def table() -> str:
    """All algorithms, a line each, with their parts."""
    rows = [("name", "advantage", "weight", "gate", "aggregation", "source")]
    rows += [(a.name, a.advantage, a.weight, a.gate, a.aggregation, a.source) for a in ALGORITHMS.values()]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
