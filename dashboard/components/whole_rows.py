"""How high a table is that shows so many rows and cuts none in half."""

_ROW, _BORDER = 33, 2
"""Pixels: of a row or the head, 2.1875 of the theme's base font of 15, and of both edges."""


def whole_rows(n: int, most: int) -> int:
    """Return the height in pixels of a table of `n` rows that shows at most so many; the others scroll."""
    return _ROW * (1 + min(n, most)) + _BORDER
