"""Strange values: what JSON, TOML and a hurried person put where something else belongs."""

from typing import Any

from hypothesis import strategies as st

TEXTS = (
    "", " ", "x", "0", "-1", "1e400", "nan", "inf", "٣", "½", "²", "1_000", "true", "null", "[]", "{}", "../..",
    "/etc/passwd", "a/b", "~", "..", ".", "C:\\x", "x\x00y", "x\ny", "\x1b[31mred", "<script>alert(1)</script>",
    "$(id)", "`id`", "%s%n", "${x}", "' or 1=1 --", '"', "\\", "עברית", "\u202eabc", "👩‍👩‍👧", "\ud800", "\ufeffx",
    "e\u0301" * 40, "a" * 5_000, "|" * 30, "**b**", "2024-01-01", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00",
)  # fmt: skip
NUMBERS = (0, -1, 1, 2, 7, 2**31 - 1, 2**31, -(2**63), 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308, 5e-324)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


texts = st.sampled_from(TEXTS) | st.text(max_size=12)
leaves = st.sampled_from((*NUMBERS, *NOT_FINITE, True, False, None)) | texts
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
) | st.sampled_from([_nested(50), _nested(900)])


def shape(value: Any) -> str:
    """A value's kind in a word or two."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return repr(value) if value in NUMBERS or value != value else f"a {type(value).__name__}"
    if isinstance(value, str):
        return f"text {TEXTS.index(value)}" if value in TEXTS else "any text"
    held = value.values() if isinstance(value, dict) else value
    return f"{type(value).__name__} of {next(iter(sorted({type(each).__name__ for each in held})), 'nothing')}"
