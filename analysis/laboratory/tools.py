"""What several experiments need, in the part of Python that a browser computes as well (see `javascript`)."""

import math
from decimal import ROUND_HALF_UP, Context

_MODULUS = 2147483647


def show(value: float, digits: int = 3) -> str:
    """Say a number with some significant digits.

    The page has its own definition of this one, as the languages round differently; a test holds them equal.
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    rounded = float(Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(value))
    if abs(rounded) >= 1e6 or 0 < abs(rounded) < 1e-4:
        mantissa, power = f"{rounded:.{digits - 1}e}".split("e")
        return f"{float(mantissa):g}e{int(power)}".replace("-", "−")
    text = f"{rounded:,.10f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("-", "−")


def capped_exp(x: float) -> float:
    """e^x, at most e^700, as no number is larger than 1.8e308."""
    return math.exp(min(x, 700.0))


def uniforms(count: int, seed: int) -> list[float]:
    """Numbers above 0 and below 1 that look random and are the same everywhere (Lehmer, 16807 mod 2^31 - 1)."""
    state = (seed * 7919 + 12345) % _MODULUS
    found = [0.0] * count
    for _ in range(8):
        state = (state * 16807) % _MODULUS
    for place in range(count):
        state = (state * 16807) % _MODULUS
        found[place] = state / _MODULUS
    return found


def normals(count: int, seed: int) -> list[float]:
    """Standard normal numbers, by Box and Muller."""
    drawn = uniforms(2 * count, seed)
    return [
        math.sqrt(-2 * math.log(drawn[2 * place])) * math.cos(2 * math.pi * drawn[2 * place + 1])
        for place in range(count)
    ]


def geometric_steps(low: float, high: float, count: int) -> list[float]:
    """Numbers from low to high, each the same factor above the one before."""
    return [low * (high / low) ** (place / (count - 1)) for place in range(count)]


def steps(low: float, high: float, count: int) -> list[float]:
    """Numbers from low to high at the same distance."""
    return [low + (high - low) * place / (count - 1) for place in range(count)]


def average(values: list[float]) -> float:
    """Their mean; there must be one."""
    return sum(values) / len(values)


def in_percent(share: float) -> str:
    """Say a share, 0 to 1, in percent."""
    return f"{show(100 * share, 2)}%"


def across(shares: list[list[float]]) -> list[float]:
    """Their x in the simplex with the corners (0, 0), (1, 0) and (½, √¾), from the shares of the corners."""
    return [point[1] + point[2] / 2 for point in shares]


def upwards(shares: list[list[float]]) -> list[float]:
    """Their y in that simplex."""
    return [point[2] * math.sqrt(0.75) for point in shares]
