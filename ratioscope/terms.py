"""Per-token terms of the metrics as functions of log-ratios: the torch twins of `analysis/runs/macros.sql`.

They keep their digits where a log-ratio is tiny, which is where on-policy data live, and stay defined at a ratio of 0.
All take and return float64 tensors of one shape.
"""

from ratioscope.tensors import Tensor, torch

# Below this size the difference of exponential and polynomial has fewer digits than the first terms of its series.
_SMALL = 1e-2


def expm1_minus(x: Tensor) -> Tensor:
    """e^x - 1 - x, the k3 term; never negative."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))))
    return torch.where(x.abs() < _SMALL, series, torch.expm1(x) - x)


def reverse_kl(x: Tensor) -> Tensor:
    """x e^x - e^x + 1, the term of KL(current || behavior); its limit at ratio 0 is 1."""
    series = x * x * (1 / 2 + x * (1 / 3 + x * (1 / 8 + x * (1 / 30 + x / 144))))
    term = torch.where(x.abs() < _SMALL, series, (x - 1) * x.exp() + 1)
    return torch.where(x == -torch.inf, 1.0, term)


def ratio_distance(y: Tensor, x: Tensor) -> Tensor:
    """|e^y - e^x|: the larger one times 1 - e^-|y - x|, so that a small step from a large ratio keeps its digits."""
    root = (torch.maximum(x, y) / 2).exp()  # the product may be finite where the larger one is not
    return torch.where(x == y, 0.0, root * -torch.expm1(-(y - x).abs()) * root)


def log_abs_expm1(x: Tensor) -> Tensor:
    """log |e^x - 1|, also where e^x overflows; -inf at 0."""
    return torch.where(x > 30, x, torch.expm1(x).abs().log())


def weighted_reference(log_rho: Tensor, log_reference: Tensor) -> Tensor:
    """rho (e^x - 1 - x) with x = log_reference - log_rho, the weighted term of KL(current || reference) (S4 eq. 97).

    Multiplied out where rho < 1 and x > 1: that loses no digits, and a vanishing ratio does not meet an infinite e^x.
    """
    x, rho = log_reference - log_rho, log_rho.exp()
    apart = log_reference.exp() - torch.where(rho == 0, 0.0, rho * (1 + x))
    return torch.where((log_rho < 0) & (x > 1), apart, rho * expm1_minus(x))
