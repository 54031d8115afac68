"""Writes functions of a small part of Python as JavaScript, so that a browser computes what Python defines.

The part: numbers, strings, lists, dictionaries with constant keys; assignments, `for`, `while`, `if`, comprehensions
with one `for`, lambdas, f-strings without format; positional arguments; `math` and the built-ins below; constants and
functions of modules of the laboratory. Whatever else is refused by name and line. What the two languages do differently
must not be asked for: truth of anything but booleans, a sum of lists, a division by zero, a number beyond 1.8e308.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

_MATH = {
    "exp": "Math.exp", "log": "Math.log", "sqrt": "Math.sqrt", "floor": "Math.floor", "ceil": "Math.ceil",
    "cos": "Math.cos", "sin": "Math.sin", "tanh": "Math.tanh", "log10": "Math.log10", "expm1": "Math.expm1",
    "log1p": "Math.log1p", "isfinite": "Number.isfinite", "pi": "Math.PI", "inf": "Infinity", "nan": "NaN",
}  # fmt: skip
_BUILT_IN = {
    "abs": "Math.abs", "float": "Number", "int": "Math.trunc", "str": "String", "bool": "Boolean", "len": "_len",
    "sum": "_sum", "min": "_min", "max": "_max", "range": "_range", "zip": "_zip", "enumerate": "_enumerate",
    "sorted": "_sorted", "any": "_any", "all": "_all", "list": "_list",
}  # fmt: skip
_OPERATORS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.USub: "-", ast.UAdd: "+", ast.Not: "!",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "===", ast.NotEq: "!==",
    ast.And: "&&", ast.Or: "||",
}  # fmt: skip

PRELUDE = """
const _len = list => list.length
const _list = list => [...list]
const _sum = list => { let sum = 0; for (const value of list) sum += value; return sum }
const _pick = better => (...given) => {
  const list = given.length === 1 ? given[0] : given
  let found = list[0]
  for (const value of list) if (better(value, found)) found = value
  return found
}
const _min = _pick((a, b) => a < b), _max = _pick((a, b) => a > b)
const _range = (...given) => {
  const [first, end, step] = given.length === 1 ? [0, given[0], 1] : [...given, 1]
  const list = []
  for (let value = first; step > 0 ? value < end : value > end; value += step) list.push(value)
  return list
}
const _zip = (...lists) => _range(_min(lists.map(_len))).map(place => lists.map(list => list[place]))
const _enumerate = list => list.map((value, place) => [place, value])
const _sorted = list => [...list].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0))
const _any = list => list.some(value => value), _all = list => list.every(value => value)
const _mod = (a, b) => ((a % b) + b) % b
const show = (value, digits = 3) => {
  if (Number.isNaN(value)) return "undefined"
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞"
  const rounded = Number(value.toPrecision(digits))
  const size = Math.abs(rounded)
  if (size >= 1e6 || (size > 0 && size < 1e-4)) {
    const [mantissa, power] = rounded.toExponential(digits - 1).split("e")
    return `${Number(mantissa)}e${Number(power)}`.replaceAll("-", "−")
  }
  const [whole, rest] = size.toFixed(10).split(".")
  const part = rest.replace(/0+$/, "")
  const text = whole.replace(/\\B(?=(\\d{3})+$)/g, ",") + (part ? `.${part}` : "")
  return rounded < 0 ? `−${text}` : text
}
"""
"""What stands for Python's built-ins and for `tools.show`, which JavaScript rounds itself."""

_OWN = {"show"}
_RESERVED = frozenset("""
case catch class const debugger default delete do enum export extends false function implements instanceof interface
let new null package private protected public static super switch this throw true typeof var void with
""".split())  # fmt: skip  # noqa: SIM905 - as a list it would be forty lines


class NotWritten(ValueError):
    """Something that has no counterpart."""


def written(function: Callable[..., Any]) -> str:
    """Write a function, and whatever it calls, as an expression in JavaScript; `PRELUDE` must stand above it.

    Raises:
        NotWritten: a construct or a name that is outside of the part.
    """
    found: dict[str, str] = {}
    _add(function.__name__, function, found, {})
    return "(() => {\n" + "\n".join(found.values()) + f"\nreturn {function.__name__}\n}})()"


def _add(name: str, thing: Any, found: dict[str, str], sources: dict[str, Any]) -> None:
    if name in sources:
        if sources[name] is not thing:
            raise NotWritten(f"{name} is the name of two things.")
        return
    sources[name] = thing
    if not isinstance(thing, FunctionType):
        found[name] = f"const {name} = {json.dumps(thing)}"
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    writer = _Writer(thing)
    text = writer.function(tree)
    for needed in sorted(writer.needed):
        _add(needed, thing.__globals__[needed], found, sources)
    found[name] = text


class _Writer:
    """Writes one function and collects what it needs of its module."""

    def __init__(self, function: FunctionType) -> None:
        self.globals = function.__globals__
        self.where = function.__name__
        self.needed: set[str] = set()
        self.local: list[set[str]] = []

    def function(self, tree: ast.FunctionDef) -> str:
        return f"const {tree.name} = {self.arrow(tree.args, tree.body)}"

    def arrow(self, arguments: ast.arguments, body: list[ast.stmt]) -> str:
        names = [_named(argument.arg) for argument in arguments.args]
        if arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            raise self.refusal(body[0], "only positional arguments")
        self.local.append({*names, *_assigned(body)})
        defaults = [""] * (len(names) - len(arguments.defaults)) + [f" = {self.of(d)}" for d in arguments.defaults]
        given = ", ".join(name + default for name, default in zip(names, defaults, strict=True))
        declared = sorted(self.local[-1] - {*names} - {f.name for f in body if isinstance(f, ast.FunctionDef)})
        lines = [f"let {', '.join(declared)}"] if declared else []
        lines += [self.statement(line) for line in body]
        self.local.pop()
        return f"({given}) => {{\n" + "\n".join(line for line in lines if line) + "\n}"

    def block(self, body: list[ast.stmt]) -> str:
        return "{\n" + "\n".join(self.statement(line) for line in body) + "\n}"

    def statement(self, node: ast.stmt) -> str:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                return ""
            case ast.Expr(value=value):
                return self.of(value)
            case ast.Return(value=value) if value is not None:
                return f"return {self.of(value)}"
            case ast.Assign(targets=[target], value=value):
                return f";{self.of(target)} = {self.of(value)}"
            case ast.AnnAssign(target=target, value=value) if value is not None:
                return f"{self.of(target)} = {self.of(value)}"
            case ast.AugAssign(target=target, op=operator, value=value):
                return f"{self.of(target)} = {self.binary(node, self.of(target), operator, self.of(value))}"
            case ast.If(test=test, body=body, orelse=other):
                return f"if ({self.of(test)}) {self.block(body)}" + (f" else {self.block(other)}" if other else "")
            case ast.While(test=test, body=body, orelse=[]):
                return f"while ({self.of(test)}) {self.block(body)}"
            case ast.For(
                target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[*ends]), body=body, orelse=[]
            ) if len(ends) < 3:
                name, end = _named(name), self.of(ends[-1])
                first = self.of(ends[0]) if len(ends) == 2 else "0"
                return f"for ({name} = {first}; {name} < {end}; {name}++) {self.block(body)}"
            case ast.For(target=target, iter=of, body=body, orelse=[]):
                return f"for ({self.of(target)} of {self.of(of)}) {self.block(body)}"
            case ast.Break():
                return "break"
            case ast.Continue():
                return "continue"
            case ast.FunctionDef():
                return self.function(node)
        raise self.refusal(node, f"no {type(node).__name__}")

    def of(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=bool() as value):
                return "true" if value else "false"
            case ast.Constant(value=int() | float() | str() as value):
                return json.dumps(value, ensure_ascii=False)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in _MATH:
                return _MATH[name]
            case ast.BinOp(left=ast.List(elts=[one]), op=ast.Mult(), right=count):
                return f"Array({self.of(count)}).fill({self.of(one)})"
            case ast.BinOp(left=left, op=operator, right=right):
                return self.binary(node, self.of(left), operator, self.of(right))
            case ast.UnaryOp(op=operator, operand=operand) if type(operator) in _OPERATORS:
                return f"({_OPERATORS[type(operator)]}{self.of(operand)})"
            case ast.BoolOp(op=operator, values=values):
                return "(" + f" {_OPERATORS[type(operator)]} ".join(map(self.of, values)) + ")"
            case ast.Compare(left=left, ops=operators, comparators=rights):
                sides = [self.of(side) for side in (left, *rights)]
                if not all(type(operator) in _OPERATORS for operator in operators):
                    raise self.refusal(node, "no such comparison")
                pairs = zip(sides, operators, sides[1:], strict=False)
                return "(" + " && ".join(f"{a} {_OPERATORS[type(o)]} {b}" for a, o, b in pairs) + ")"
            case ast.IfExp(test=test, body=then, orelse=other):
                return f"({self.of(test)} ? {self.of(then)} : {self.of(other)})"
            case ast.List(elts=values) | ast.Tuple(elts=values):
                return "[" + ", ".join(map(self.of, values)) + "]"
            case ast.Starred(value=value):
                return f"...{self.of(value)}"
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
                entries = zip(keys, values, strict=True)
                return "({" + ", ".join(f"{self.of(key)}: {self.of(value)}" for key, value in entries if key) + "})"
            case ast.Subscript(value=value, slice=ast.Slice(lower=low, upper=high, step=None)):
                ends = [self.of(low) if low else "0", *([self.of(high)] if high else [])]
                return f"{self.of(value)}.slice({', '.join(ends)})"
            case ast.Subscript(value=value, slice=ast.UnaryOp(op=ast.USub()) as place):
                return f"{self.of(value)}.at({self.of(place)})"
            case ast.Subscript(value=value, slice=place):
                return f"{self.of(value)}[{self.of(place)}]"
            case ast.ListComp(elt=value, generators=[each]) | ast.GeneratorExp(elt=value, generators=[each]):
                return self.comprehension(value, each)
            case ast.JoinedStr(values=parts):
                return "`" + "".join(map(self.part, parts)) + "`"
            case ast.Lambda(args=arguments, body=value):
                return self.arrow(arguments, [ast.Return(value)])
            case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value], keywords=[]):
                return f"{self.of(owner)}.push({self.of(value)})"
            case ast.Call(func=function, args=arguments, keywords=[]):
                return f"{self.of(function)}({', '.join(map(self.of, arguments))})"
        raise self.refusal(node, f"no {type(node).__name__}")

    def name(self, node: ast.expr, name: str) -> str:
        if any(_named(name) in names for names in self.local) or name in _OWN:
            return _named(name)
        if name in self.globals:
            self.needed.add(name)
            return name
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        raise self.refusal(node, f"{name} is not known")

    def binary(self, node: ast.AST, left: str, operator: ast.operator, right: str) -> str:
        if isinstance(operator, ast.FloorDiv):
            return f"Math.floor({left} / {right})"
        if isinstance(operator, ast.Mod):
            return f"_mod({left}, {right})"
        if type(operator) not in _OPERATORS:
            raise self.refusal(node, f"no {type(operator).__name__}")
        return f"(({left}) {_OPERATORS[type(operator)]} ({right}))"

    def comprehension(self, value: ast.expr, each: ast.comprehension) -> str:
        self.local.append({_named(leaf.id) for leaf in ast.walk(each.target) if isinstance(leaf, ast.Name)})
        target = f"({self.of(each.target)})"
        kept = "".join(f".filter({target} => {self.of(test)})" for test in each.ifs)
        made = f"{kept}.map({target} => {self.of(value)})"
        self.local.pop()
        return self.of(each.iter) + made

    def part(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str() as text):
                return text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return "${" + self.of(value) + "}"
        raise self.refusal(node, "a format: call show")

    def refusal(self, node: ast.AST, why: str) -> NotWritten:
        return NotWritten(f"{self.where}, line {getattr(node, 'lineno', '?')}: {why}.")


def _named(name: str) -> str:
    """A name that is none of JavaScript's own words."""
    return f"{name}_" if name in _RESERVED else name


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Names that are assigned in a function, not in what it contains."""
    found: set[str] = set()
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(_named(node.id))
            pending.extend(ast.iter_child_nodes(node))
    return found
