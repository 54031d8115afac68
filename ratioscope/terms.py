"""Terms: what is added up for a metric, as an expression over columns of which each reader makes its own.

    Mean(case(LOG_RHO < 0, -LOG_RHO, 0))          # in a catalogue entry
    evaluate_term(term, {"log_rho": tensor}, torch)    # of arrays: numpy or torch

SQL and the compiled scan make text of the same term (`analysis/summary/rendering.py`). The functions at the end keep
their digits where a log-ratio is tiny, which is where on-policy data live, and stay defined at a ratio of 0: they are
the twins of `analysis/runs/macros.sql`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from typing import Any


def _made(operation: str, *of: "Term | float") -> "Term":
    terms = (part if isinstance(part, Term) else Term("constant", leaf=float(part)) for part in of)
    return Term(operation, tuple(terms))


def _operator(operation: str, *, swapped: bool = False) -> "Callable[[Term, Term | float], Term]":
    return lambda own, other: _made(operation, *((other, own) if swapped else (own, other)))


@dataclass(frozen=True)
class Term:
    """An operation on other terms, a column or a number. Unknown (null; NaN where there are arrays) stays unknown, and
    no condition holds of it."""

    operation: str
    of: tuple["Term", ...] = ()
    leaf: str | float = ""
    """Of a column its name, of a constant its value."""

    @cached_property
    def _hash(self) -> int:
        return hash((self.operation, self.of, self.leaf))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def columns(self) -> frozenset[str]:
        """The names of all columns in it."""
        own = {str(self.leaf)} if self.operation == "column" else set[str]()
        return frozenset(own.union(*(part.columns for part in self.of)))

    @property
    def is_condition(self) -> bool:
        """Whether it holds or not, and is no number."""
        return self.operation in _CONDITIONS

    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __truediv__ = _operator("/")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __and__ = _operator("and")

    def __neg__(self) -> "Term":
        return _made("negative", self)

    def __abs__(self) -> "Term":
        return _made("abs", self)


_CONDITIONS = frozenset(
    {"<", "<=", ">", ">=", "equal", "unequal", "and", "known", "absent", "finite", "number", "true"}
)


def column(name: str) -> Term:
    """A column of the run format, or one that `analysis/runs/tokens.sql` makes of them."""
    return Term("column", leaf=name)


def exp(x: Term) -> Term:
    return _made("exp", x)


def expm1(x: Term) -> Term:
    """e^x - 1."""
    return _made("expm1", x)


def ln(x: Term) -> Term:
    return _made("ln", x)


def greatest(x: Term | float, y: Term | float) -> Term:
    return _made("greatest", x, y)


def least(x: Term | float, y: Term | float) -> Term:
    return _made("least", x, y)


def equal(x: Term, y: Term | float) -> Term:
    """Whether they are; `==` asks whether they are written alike."""
    return _made("equal", x, y)


def unequal(x: Term, y: Term | float) -> Term:
    return _made("unequal", x, y)


def known(x: Term) -> Term:
    """Whether it is not null."""
    return _made("known", x)


def absent(x: Term) -> Term:
    """Whether it is null."""
    return _made("absent", x)


def finite(x: Term) -> Term:
    """Whether it is known and finite."""
    return _made("finite", x)


def constant(x: Term) -> Term:
    """Whether it is known and not NaN."""
    return _made("number", x)


def true(x: Term) -> Term:
    """Of a column that is true or not."""
    return _made("true", x)


def case(condition: Term, then: Term | float, otherwise: Term | float) -> Term:
    """One or the other; the other where it is unknown whether the condition holds."""
    return _made("case", condition, then, otherwise)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "negative": operator.neg,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "equal": operator.eq,
    "unequal": lambda x, y: (x < y) | (x > y), "and": operator.and_, "true": lambda x: x > 0,
}  # fmt: skip
_NAMES = {"abs": "abs", "exp": "exp", "expm1": "expm1", "ln": "log", "finite": "isfinite"}


def evaluate_term(term: Term, columns: Mapping[str, Any], library: Any, found: dict[Term, Any] | None = None) -> Any:
    """A term of arrays, where NaN is null.

    Args:
        columns: arrays of one shape, by name.
        library: the module of the arrays, numpy or torch.
        found: what was computed of the same columns, which is not computed again.
    """
    if term.operation == "constant":
        return term.leaf
    if term.operation == "column":
        return columns[str(term.leaf)]
    found = {} if found is None else found
    if term not in found:
        of = [evaluate_term(part, columns, library, found) for part in term.of]
        found[term] = _computed(term.operation, library, *of)
    return found[term]


def _computed(operation: str, library: Any, *of: Any) -> Any:
    if operation in _OPERATORS:
        return _OPERATORS[operation](*of)
    if operation in _NAMES:
        return getattr(library, _NAMES[operation])(*of)
    if operation == "absent":
        return library.isnan(*of)
    if operation in ("known", "number"):
        return ~library.isnan(*of)
    if operation == "case":
        return library.where(*of)
    x, y = of
    return library.where(x < y if operation == "least" else x > y, x, y)


def log_size(term: Term) -> Term:
    """Logarithm of the size of a term: of exponentials it is there where they are beyond the floating-point range."""
    match term.operation, term.of:
        case "constant", _:
            return Term("constant", leaf=log(abs(float(term.leaf))) if term.leaf else -inf)
        case (("negative" | "abs"), (x,)):
            return log_size(x)
        case "exp", (x,):
            return x
        case "expm1", (x,):
            return log_abs_expm1(x)
        case "*", (x, y) if {x.operation, y.operation} <= {"exp", "expm1"}:
            return 2 * log_size(x) if x == y else log_size(x) + log_size(y)
        case "case", (condition, then, otherwise):
            return case(condition, log_size(then), log_size(otherwise))
    return case(term, 0, -inf) if term.is_condition else case(equal(term, 0), -inf, ln(abs(term)))


LOG_RHO, LOG_RHO_NEW, LOG_ENGINE, LOG_REFERENCE, LOG_TEACHER = map(
    column, ("log_rho", "log_rho_new", "log_engine", "log_reference", "log_teacher")
)
DEVIATION, DEVIATION_NEW, DEVIATION_ENGINE = map(expm1, (LOG_RHO, LOG_RHO_NEW, LOG_ENGINE))
"""rho - 1, of the current and of the new policy, and of the engine that trains with the sampler's weights."""

# Below this size the difference of exponential and polynomial has fewer digits than the first terms of its series.
_SMALL = 1e-2


def negative_part(x: Term) -> Term:
    """-x where it is positive, and 0."""
    return case(x < 0, -x, 0)


def expm1_minus(x: Term) -> Term:
    """e^x - 1 - x, the k3 term; never negative."""
    series = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))))
    return case(abs(x) < _SMALL, series, expm1(x) - x)


def reverse_kl(x: Term) -> Term:
    """x e^x - e^x + 1, the term of KL(current || behavior); its limit at ratio 0 is 1."""
    series = x * x * (0.5 + x * (1 / 3 + x * (0.125 + x * (1 / 30 + x / 144))))
    return case(abs(x) < _SMALL, series, case(equal(x, -inf), 1, (x - 1) * expm1(x) + x))


def ratio_distance(y: Term, x: Term) -> Term:
    """|e^y - e^x|: the larger one times 1 - e^-|y - x|, so that a small step from a large ratio keeps its digits."""
    root = exp(greatest(x, y) / 2)  # the product may be finite where the larger one is not
    return case(equal(y, x), 0, root * -expm1(-abs(y - x)) * root)


def apart(y: Term, x: Term) -> Term:
    """|e^y - e^x|: the difference of their rho - 1, which is computed once, where it is finite."""
    difference = expm1(y) - expm1(x)
    return case(finite(difference), abs(difference), ratio_distance(y, x))


def lost(y: Term, x: Term) -> Term:
    """The positive part of e^y - e^x: what the first policy gives a token and the second one takes away."""
    difference = expm1(y) - expm1(x)
    return case(finite(difference), greatest(difference, 0), case(x >= y, 0, ratio_distance(y, x)))


def log_abs_expm1(x: Term) -> Term:
    """log |e^x - 1|, also where e^x overflows; -inf at 0."""
    near = case(x < -30, -exp(x), ln(abs(expm1(x))))
    return case(equal(x, 0), -inf, case(x > 30, x, near))


def weighted_reference(log_rho: Term, log_reference: Term) -> Term:
    """rho (e^x - 1 - x) with x = log_reference - log_rho, the weighted term of KL(current || reference) (S4 eq. 97).

    Multiplied out where rho < 1 and x > 1: that loses no digits, and a vanishing ratio does not meet an infinite e^x.
    """
    apart = exp(log_reference) - exp(log_rho) * (1 + log_reference - log_rho)
    whole = exp(log_rho) * expm1_minus(log_reference - log_rho)
    return case(equal(log_rho, -inf), exp(log_reference), case(log_rho < least(log_reference - 1, 0), apart, whole))
