"""Which code of a script runs: what a constant condition, an end or a missing call rules out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum


class Reach(IntEnum):
    """How surely code runs."""

    RUNS = 0
    CONDITIONAL = 1
    UNCALLED = 2


@dataclass(frozen=True)
class Place:
    """A node, how surely its own branch is taken, and the function that it stands in."""

    node: ast.AST
    conditional: bool
    function: int | None
    annotation: bool = False


@dataclass
class _Function:
    name: str
    outer: int | None
    known: bool
    names: set[str] = field(default_factory=set[str])


class Flow:
    """A script's nodes that can run, in no order."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions: list[_Function] = []
        self._names: set[str] = set()
        self.places = [*self._walk(tree)]
        self._reached = self._called()
        self.library = _only_defines(tree)

    def reach(self, place: Place) -> Reach:
        """Tell how surely a node runs; a library's functions are for others to call."""
        function = place.function
        while function is not None and not self.library:
            if function not in self._reached:
                return Reach.UNCALLED
            function = self._functions[function].outer
        return Reach.CONDITIONAL if place.conditional else Reach.RUNS

    def _walk(self, tree: ast.Module) -> Iterator[Place]:
        stack = [Place(tree, False, None)]
        while stack:
            place = stack.pop()
            node = place.node
            yield place
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                name = node.id if isinstance(node, ast.Name) else node.attr
                function = place.function
                names = self._names if function is None else self._functions[function].names
                names.add(name)
            for child, conditional, inner, annotation in self._children(node, place):
                stack.append(
                    Place(
                        child,
                        place.conditional or conditional,
                        inner,
                        place.annotation or annotation,
                    )
                )

    def _children(
        self, node: ast.AST, place: Place
    ) -> Iterator[tuple[ast.AST, bool, int | None, bool]]:
        inner = place.function
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            known = bool(node.decorator_list) or node.name.startswith("__")
            self._functions.append(_Function(node.name, place.function, known))
            inner = len(self._functions) - 1
        taken = _taken(node)
        for name, value in ast.iter_fields(node):
            if taken is not None and name == ("orelse" if taken else "body"):
                continue
            branch = name in ("body", "orelse", "handlers", "cases")
            doubtful = branch and isinstance(node, (ast.If, ast.IfExp)) and taken is None
            doubtful = doubtful or (name == "handlers" or (isinstance(node, ast.Match) and branch))
            if _is_main(node):
                doubtful = doubtful and name != "body"
            function = inner if name == "body" else place.function
            annotation = name in ("annotation", "returns")
            for child in _alive(value):
                yield child, doubtful, function, annotation

    def _called(self) -> set[int]:
        """Find the functions that are named where they can be called."""
        by_name: dict[str, list[int]] = {}
        for number, function in enumerate(self._functions):
            by_name.setdefault("" if function.known else function.name, []).append(number)
        reached: set[int] = set()
        names = [*self._names, ""]
        seen = set(names)
        while names:
            for number in by_name.get(names.pop(), ()):
                reached.add(number)
                new = self._functions[number].names - seen
                seen |= new
                names += new
        return reached


def _alive(value: object) -> Iterator[ast.AST]:
    """Give nodes of a field, but no statement after one that leaves the block."""
    if isinstance(value, ast.AST):
        yield value
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(item, ast.AST):
                yield item
                if isinstance(item, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                    return


def _taken(node: ast.AST) -> bool | None:
    """Tell which branch a constant condition takes: True for the body, None if it is open."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        test = node.test
        if isinstance(test, ast.Constant):
            if isinstance(node, ast.While) and test.value:
                return None
            return bool(test.value)
        name = test.id if isinstance(test, ast.Name) else None
        name = test.attr if isinstance(test, ast.Attribute) else name
        if name == "TYPE_CHECKING":
            return False
    return None


def _is_main(node: ast.AST) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    test = node.test
    sides = [test.left, *test.comparators]
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)


_HARMLESS = frozenset({"getLogger", "TypeVar", "Path", "get", "getenv", "namedtuple", "compile"})


def _only_defines(tree: ast.Module) -> bool:
    """Tell whether a script runs nothing by itself: its functions are for another's use."""
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef)):
            continue
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.Expr)):
            return False
        if any(
            isinstance(n, ast.Call) and called_name(n) not in _HARMLESS for n in ast.walk(statement)
        ):
            return False
    return any(isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)) for s in tree.body)


def called_name(call: ast.Call) -> str:
    """Give the last part of what is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
