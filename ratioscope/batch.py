"""A batch of logged tokens as flat tensors: which of them can be used, and which sequence and group each belongs to.

Nothing here waits for the device: what depends on the data keeps the size of the batch, with empty places in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ratioscope.errors import RatioscopeError
from ratioscope.rules.ratios import log_ratio
from ratioscope.run_format.schema import LARGEST_LOG_PROBABILITY
from ratioscope.tensors import Tensor, torch


@dataclass(frozen=True)
class Segments:
    """Which of `size` segments each token is in, (n_tokens,); some segments may have no token."""

    index: Tensor
    size: int

    def sum(self, values: Tensor) -> Tensor:
        """Sum of each segment's values, (size,), float64."""
        total = torch.zeros(self.size, dtype=torch.float64, device=values.device)
        return total.index_add(0, self.index, values.double())

    def largest(self, index: Tensor) -> Tensor:
        """The largest of each segment's whole numbers, (size,), 0 where it has no token."""
        found = torch.zeros(self.size, dtype=index.dtype, device=index.device)
        return found.scatter_reduce(0, self.index, index, "amax")

    def any(self, flags: Tensor) -> Tensor:
        """Whether one of the segment's flags is set, (size,)."""
        return self.sum(flags) > 0


@dataclass(frozen=True)
class Batch:
    """The given tensors flat, float64, (n_tokens,), and what follows from them."""

    columns: dict[str, Tensor]
    present: Tensor
    """Bool: the token is eligible for the loss."""
    usable: Tensor
    """Bool: present, and all of its numbers are what they claim to be."""
    invalid: dict[str, Tensor]
    """Bool by cause: present and not usable, for this reason first."""
    sequences: Segments
    groups: Segments

    def log_rho(self, policy: str = "logp_current") -> Tensor:
        """Log-ratio of a policy to the behavior policy, 0 where unusable."""
        return torch.where(self.usable, log_ratio(self.columns[policy], self.columns["logp_behavior"]), 0.0)

    def log_weights(self) -> tuple[Tensor, Tensor]:
        """Log of every sequence's ratio W, and which are defined: an unusable token leaves its sequence without one."""
        broken = self.sequences.any(self.present & ~self.usable)
        return self.sequences.sum(self.log_rho()), self.sequences.any(self.present) & ~broken

    def counts(self) -> dict[str, Tensor]:
        """The counts of the step summary."""
        flags = {
            "n_tokens": self.usable,
            "n_sequences": self.sequences.any(self.present),
            "n_groups": self.groups.any(self.present),
            "n_invalid": self.present & ~self.usable,
            **{f"n_invalid_{cause}": found for cause, found in self.invalid.items()},
            "n_undefined": self.sequences.any(self.present & ~self.usable),
        }
        return {name: flag.sum(dtype=torch.float64) for name, flag in flags.items()}


def flatten(given: Mapping[str, Tensor]) -> Batch:
    """The batch of these tensors, [tokens] or [batch, length], by the names that `batch_metrics` gives them.

    Raises:
        RatioscopeError: a tensor has another shape, or flat log-probabilities come without `sequence`.
    """
    shape = given["logp_behavior"].shape
    if len(shape) not in (1, 2):
        raise RatioscopeError(f"logp_behavior has shape {tuple(shape)}, it must be [tokens] or [batch, length].")
    if len(shape) == 1 and "sequence" not in given:
        raise RatioscopeError("flat log-probabilities need `sequence`: which sequence each token belongs to.")
    flat = {name: _flat(name, tensor, shape) for name, tensor in given.items()}
    device = given["logp_behavior"].device
    if not shape.numel():  # one padding token instead: the largest of nothing does not exist
        flat = {name: torch.zeros(1, device=device) for name in ("sequence", *flat)} | {
            "mask": torch.zeros(1, device=device)
        }
        shape = torch.Size([1])
    if "sequence" in flat:
        sequences = _segments(flat.pop("sequence"))
    else:
        rows = torch.arange(shape[0], device=device)
        sequences = Segments(rows.unsqueeze(1).expand(shape).reshape(-1), shape[0])
    groups = _segments(flat.pop("group")) if "group" in flat else sequences
    present = flat.pop("mask") != 0 if "mask" in flat else torch.ones(shape.numel(), dtype=torch.bool, device=device)
    columns = {name: tensor.double() for name, tensor in flat.items()}
    invalid, usable = {}, present
    for cause, found in _causes(columns).items():
        invalid[cause], usable = usable & found, usable & ~found
    return Batch(columns, present, usable, invalid, sequences, groups)


def _flat(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    a_row = not name.startswith("logp_") and len(shape) == 2
    if a_row and tensor.shape != shape and tensor.shape in ((shape[0],), (shape[0], 1)):
        tensor = tensor.reshape(-1, 1).expand(shape)
    if tensor.shape != shape:
        instead = f", or one value a row, ({shape[0]},)" if a_row else ""
        raise RatioscopeError(
            f"{name} has shape {tuple(tensor.shape)}, it must be that of logp_behavior, {tuple(shape)}{instead}."
        )
    return tensor.reshape(-1)


def _segments(ids: Tensor) -> Segments:
    """Segments by rank of the id; torch.unique would wait for the device to learn how many there are."""
    ordered, order = ids.sort()
    rank = torch.zeros_like(order)
    rank[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    return Segments(torch.empty_like(order).scatter(0, order, rank), len(ids))


def _causes(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Why a token cannot be used, in the order in which causes are looked for; a ratio of 0 is no cause."""
    names = ("logp_behavior", "logp_current", "logp_new")
    logged = torch.stack([columns[name] for name in names if name in columns])  # (policies, n_tokens)
    causes = {
        "nan": logged.isnan().any(dim=0),
        "infinite": columns["logp_behavior"].isinf() | (logged == torch.inf).any(dim=0),
        "positive": (logged > LARGEST_LOG_PROBABILITY).any(dim=0),
    }
    advantage = columns.get("advantage")
    causes["advantage"] = torch.zeros_like(causes["nan"]) if advantage is None else ~advantage.isfinite()
    return causes
