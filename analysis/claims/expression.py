"""The checkable form of a claim: comparisons of printed numbers, in a small part of Python's notation.

Numbers       v(table, part, ...) is the cell "part|part|..."; each(...) those cells that are printed, where a
              part, or the table, may be a list; + - * / sum mean min max abs exp log sqrt len count
              halving(start, rate)   steps of x - rate(x) * x until half of start is left
Truth         == != < <= > >= in, and or not, all any; `a if b` in a comprehension
Statistics    paired(a, b)       p of McNemar's test, over all pairings (a range)
              unpaired(a, b)     p of Boschloo's test
              gap(a, b)          Newcombe's 95 % interval of a - b (a range)
              correlated(r, n)   p of a correlation
              apart(r, n, s, m)  p that correlations r of n and s of m other observations are equal
              corrected(p, m)    p times the m comparisons of its family (Bonferroni)
              passing(method, [p, ...])     how many of the family pass at 0.05
              lucky(m, a, b)     chance that the best of m candidates no better than b reaches a
              These, of printed numbers, are inference; everything else is arithmetic.
Printing      agree(effect, low, high, p)   the p follows from the interval
              answerable(a, n)   n single answers, or differences of n pairs, can give a
Rules         branch([(role, delta, p), ...]), choose([[delta, ...], ...], tolerance)
              unprinted(what)    undecided: the paper does not print it
"""

import ast
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from analysis.claims import quantity
from analysis.claims.functions import FUNCTIONS, INFERENTIAL, LOGIC
from analysis.claims.levels import Level, Word, computed_from, level_of
from analysis.claims.quantity import Answer, Quantity, computed
from analysis.claims.rounding import Range, rounding_range

ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISON = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class ExpressionError(ValueError):
    """A checkable form that does not follow this notation, or names a cell that the file does not have."""


class Cells(Protocol):
    """The printed cells of one file. A cell is a number or a word; None if it is not printed."""

    def cell(self, table: str, name: str) -> Quantity | str | None: ...


def decide(form: str, cells: Cells, names: Mapping[str, str | tuple[str, ...]]) -> Answer:
    """Return whether `form` holds. names: lists of words, or forms such as "lambda m: v('5', m)", by name.

    Raises ExpressionError.
    """
    try:
        answer = _Evaluator(form, cells, names).evaluate(_parse(form), {})
    except ExpressionError:
        raise
    except (ValueError, TypeError, ZeroDivisionError, AttributeError, KeyError) as error:
        raise ExpressionError(f"{form!r}: {error}") from error
    if not isinstance(answer, Answer):
        raise ExpressionError(f"{form!r} is not a statement; compare it with a number, as in: a > b")
    return answer


def _parse(form: str) -> ast.expr:
    try:
        return ast.parse(form.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"{form!r}: {error.msg}") from error


@dataclass(frozen=True, slots=True)
class _Evaluator:
    source: str
    cells: Cells
    names: Mapping[str, str | tuple[str, ...]]

    def evaluate(self, node: ast.expr, scope: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant(value=str() as word):
                return word
            case ast.Constant(value=bool() as truth):
                return Answer(truth, ())
            case ast.Constant(value=int() | float()):
                return self._literal(node)
            case ast.Name(id=name):
                return scope[name] if name in scope else self._resolve_name(name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.evaluate(part, scope) for part in parts]
            case ast.GeneratorExp() | ast.ListComp():
                return [self.evaluate(node.elt, inner) for inner in self._bind_generators(node.generators, scope)]
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                left, right = self._operand(node.left, scope), self._operand(node.right, scope)
                return quantity.combine(ARITHMETIC[type(node.op)], left, right)
            case ast.UnaryOp(op=ast.USub()):
                return quantity.combine("-", computed(0), self.evaluate(node.operand, scope))
            case ast.UnaryOp(op=ast.Not()):
                return quantity.negate(self.evaluate(node.operand, scope))
            case ast.BoolOp():
                answers = [self.evaluate(part, scope) for part in node.values]
                return (quantity.every if isinstance(node.op, ast.And) else quantity.some)(answers)
            case ast.Compare():
                return self._compare_chain(node, scope)
            case ast.Lambda():
                return lambda *values: self.evaluate(
                    node.body, {**scope, **dict(zip((a.arg for a in node.args.args), values, strict=True))}
                )
            case ast.Call(func=ast.Name(id="v"), args=args, keywords=[]):
                return self._cell(*(self.evaluate(arg, scope) for arg in args))
            case ast.Call(func=ast.Name(id="each"), args=args, keywords=[]):
                return self._printed_cells(*(self.evaluate(arg, scope) for arg in args))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                arguments = [self.evaluate(arg, scope) for arg in args]
                if name in FUNCTIONS and name not in scope:
                    return _with_level(FUNCTIONS[name](*arguments), name, arguments)
                return (scope.get(name) or self._resolve_name(name))(*arguments)
        raise ExpressionError(f"{ast.get_source_segment(self.source, node)!r} is not allowed in this notation")

    def _literal(self, node: ast.expr) -> Quantity:
        """Return an exact number that nevertheless equals whatever rounds to it."""
        text = (ast.get_source_segment(self.source, node) or "").replace("_", "")
        ends = rounding_range("0" + text if text.startswith(".") else text)
        exact = (ends.low + ends.high) / 2
        point = Range(exact, exact)
        return Quantity(ends if "." in text else point, point, text)

    def _operand(self, node: ast.expr, scope: Mapping[str, Any]) -> Quantity:
        value: Quantity = self.evaluate(node, scope)
        return computed(value.counted.low) if isinstance(node, ast.Constant) else value

    def _resolve_name(self, name: str) -> Any:
        if name not in self.names:
            raise ExpressionError(f"{name!r} is not a function, a list or a form of this file")
        definition = self.names[name]
        if isinstance(definition, tuple):
            return list(definition)
        return _Evaluator(definition, self.cells, self.names).evaluate(_parse(definition), {})

    def _cell(self, table: str, *parts: str) -> Quantity | str:
        cell = self.cells.cell(table, "|".join(parts))
        if cell is None:
            raise ExpressionError(f"table {table!r} has no cell {'|'.join(parts)!r}")
        return Word(cell, Level.TRANSCRIBED) if isinstance(cell, str) else cell

    def _printed_cells(self, *parts: str | list[str]) -> list[Quantity | str]:
        choices = [part if isinstance(part, list) else [part] for part in parts]
        cells = (self.cells.cell(table, "|".join(name)) for table, *name in itertools.product(*choices))
        return [Word(cell, Level.TRANSCRIBED) if isinstance(cell, str) else cell for cell in cells if cell is not None]

    def _bind_generators(
        self, generators: list[ast.comprehension], scope: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        if not generators:
            yield scope
            return
        first, *rest = generators
        for item in self.evaluate(first.iter, scope):
            match first.target:
                case ast.Name(id=name):
                    inner = {**scope, name: item}
                case ast.Tuple(elts=targets):
                    bound = zip((t.id for t in targets if isinstance(t, ast.Name)), item, strict=True)
                    inner = {**scope, **dict(bound)}
                case _:
                    raise ExpressionError("a comprehension may bind plain names only")
            if all(self.evaluate(test, inner).truth for test in first.ifs):
                yield from self._bind_generators(rest, inner)

    def _compare_chain(self, node: ast.Compare, scope: Mapping[str, Any]) -> Answer:
        values = [self.evaluate(part, scope) for part in (node.left, *node.comparators)]
        return quantity.every(map(_compare_pair, values, node.ops, values[1:]))


def _with_level(result: Any, name: str, arguments: list[Any]) -> Any:
    """Return the result of a function with the level that its arguments and the function imply."""
    if name in LOGIC:
        return result
    level = computed_from(arguments, Level.INFERENCE if name in INFERENTIAL else Level.ARITHMETIC)
    match result:
        case Quantity():
            return dataclasses.replace(result, level=level)
        case Answer():
            return result._replace(level=level)
    return Word(result, level)


def _compare_pair(left: Any, operator: ast.cmpop, right: Any) -> Answer:
    if isinstance(operator, ast.In | ast.NotIn):
        truth = (left in right) == isinstance(operator, ast.In)
        return Answer(truth, (f"{left} in {right}",), level_of([left, right]))
    symbol = COMPARISON[type(operator)]
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return quantity.compare(symbol, left, right)
    if isinstance(left, str) and isinstance(right, str) and symbol in ("==", "!="):
        return Answer((left == right) == (symbol == "=="), (f"{left} {symbol} {right}",), level_of([left, right]))
    if isinstance(left, Answer) or isinstance(right, Answer):
        raise ExpressionError("truth values are combined with and, or, not; they cannot be compared")
    raise ExpressionError(f"{left!r} {symbol} {right!r} compares values of different kinds")
