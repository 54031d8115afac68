"""Terms of the catalogue as text: SQL, and Python that is compiled."""

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
        value = float(term.leaf)
        return str(int(value)) if value.is_integer() else f"'{value!r}'::double"
    return _SQL[term.operation].format(*map(sql, term.of))
