"""Functions that numba compiles where it is installed (`pip install "ratioscope[fast]"`), once a machine."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any


@cache
def installed() -> bool:
    """Whether functions can be compiled."""
    return find_spec("numba") is not None


def loaded() -> bool:
    """Whether this process has compiled one, so that the next costs little; importing the compiler takes a second."""
    return kernel.cache_info().currsize > 0


@cache
def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled, once: it is kept beside its file, or in the user's cache where that cannot be written."""
    from numba import njit

    return njit(function, nogil=True, cache=True, error_model="numpy")
