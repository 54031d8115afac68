"""Terms of the catalogue as text: SQL, and Python that is compiled."""

from collections.abc import Mapping

from ratioscope.terms import DEVIATION, DEVIATION_ENGINE, DEVIATION_NEW, Term

# Columns of the queries over usable tokens, so that they are computed once.
_NAMED = {DEVIATION: "deviation", DEVIATION_NEW: "deviation_new", DEVIATION_ENGINE: "deviation_engine"}

DEVIATIONS = ", ".join(f"expm1({term.of[0].leaf}) as {name}" for term, name in _NAMED.items())
"""SQL of these columns."""

_SQL = {
    "negative": "(-{})", "abs": "abs({})", "exp": "exp({})", "expm1": "expm1({})", "ln": "ln(({})::double)",
    "greatest": "greatest({}, {})", "least": "least({}, {})", "equal": "({} = {})", "unequal": "({} <> {})",
    "known": "({} is not null)", "absent": "({} is null)", "finite": "isfinite({})", "number": "not isnan({})",
    "true": "{}",
    "case": "case when {} then {} else {} end",
    **{sign: f"({{}} {sign} {{}})" for sign in ("+", "-", "*", "/", "<", "<=", ">", ">=", "and")},
}  # fmt: skip


def sql(term: Term) -> str:
    """A term as SQL over the views of `analysis/runs/tokens.sql`, with DEVIATIONS beside their columns."""
    if term in _NAMED:
        return _NAMED[term]
    if term.operation == "column":
        return str(term.leaf)
    if term.operation == "constant":
        text = _constant(term)
        return text if text.isdigit() else f"'{text}'::double"
    return _SQL[term.operation].format(*map(sql, term.of))


def _constant(term: Term) -> str:
    value = float(term.leaf)
    return str(int(value)) if value.is_integer() else repr(value)


_PYTHON = {
    "negative": "(-{})", "abs": "abs({})", "exp": "np.exp({})", "expm1": "np.expm1({})", "ln": "np.log({})",
    "greatest": "max({}, {})", "least": "min({}, {})", "equal": "({} == {})", "unequal": "({0} < {1} or {0} > {1})",
    "known": "({0} == {0})", "absent": "({0} != {0})", "finite": "np.isfinite({})", "number": "({0} == {0})",
    "true": "({} > 0)", "case": "({1} if {0} else {2})",
    **{sign: f"({{}} {sign} {{}})" for sign in ("+", "-", "*", "/", "<", "<=", ">", ">=", "and")},
}  # fmt: skip


def python(term: Term, names: Mapping[Term, str]) -> str:
    """A term as Python over numbers, where NaN is null; numpy is np.

    Args:
        names: of columns, and of terms that are known as well.
    """
    if term in names:
        return names[term]
    if term.operation == "constant":
        return _constant(term).replace("inf", "np.inf")
    return _PYTHON[term.operation].format(*(python(part, names) for part in term.of))
