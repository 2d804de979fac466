"""Read the calls of a Python script, by its syntax tree: nothing is imported or executed.

Literals count, and names that are bound once in the whole script, at its top level, to a literal.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator

from ....records.names import printable
from ..statement import Json
from .document import (
    MAX_DEPTH,
    MAX_ENTRIES,
    Document,
    Entry,
    Kind,
    Unresolved,
    Value,
    broken,
    normalised,
    too_large,
)
from .identity import names_a_secret

MAX_SCRIPT = 1 << 20
# Methods that mean nothing without the class they belong to.
_METHODS = frozenset({"from_pretrained", "from_hf_pretrained", "get_peft_model", "Config"})


def parse_python(text: str, name: str) -> Document:
    """Give each call's arguments as entries: `LoraConfig.r`, `FastLanguageModel.get_peft_model.r`.

    A positional argument is called by its number; a second call of the same function `LoraConfig#2`
    and so on; further arguments from a dictionary `**`. Raises Unusable with the line of a fault.
    """
    if len(text) > MAX_SCRIPT:
        raise too_large(name, f"more than {MAX_SCRIPT:,} characters of Python")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            script = _Script(tree)
    except SyntaxError as error:
        raise broken(name, error.lineno or 1, "this is not Python") from None
    except (ValueError, RecursionError, MemoryError):
        raise broken(name, 1, "this is not Python") from None
    entries = tuple(script.entries())
    if len(entries) > MAX_ENTRIES:
        raise too_large(name, f"more than {MAX_ENTRIES:,} arguments of calls")
    return Document(name, Kind.PYTHON, entries, words=script.modules)


class _Script:
    """A script's calls, its imports and its constants."""

    def __init__(self, tree: ast.Module) -> None:
        self._calls: list[ast.Call] = []
        self._original: dict[str, str] = {}
        modules: list[str] = []
        bound: Counter[str] = Counter()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._calls.append(node)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                module = node.module if isinstance(node, ast.ImportFrom) else None
                modules += [module] if module else [alias.name for alias in node.names]
                self._original |= {a.asname: a.name for a in node.names if a.asname}
            bound.update(_bound(node))
        self.modules = tuple(modules)
        self._calls.sort(key=lambda call: (call.lineno, call.col_offset))
        self._constants = {
            target: value for target, value in _assignments(tree) if bound[target] == 1
        }

    def entries(self) -> Iterator[Entry]:
        """Give the calls in the order of the text."""
        seen: Counter[str] = Counter()
        for call in self._calls:
            called = self._called(call.func)
            if called is None:
                continue
            seen[called] += 1
            section = called if seen[called] == 1 else f"{called}#{seen[called]}"
            yield Entry(normalised(section), printable(called), {}, call.lineno)
            for number, argument in enumerate(call.args):
                yield self._entry(section, called, str(number), argument, argument.lineno)
            for keyword in call.keywords:
                name = keyword.arg or "**"
                yield self._entry(section, called, name, keyword.value, keyword.lineno)

    def _called(self, function: ast.expr) -> str | None:
        parts: list[str] = []
        while isinstance(function, ast.Attribute) and len(parts) < MAX_DEPTH:
            parts.append(function.attr)
            function = function.value
        if isinstance(function, ast.Name):
            parts.append(self._original.get(function.id, function.id))
        if not parts:
            return None
        if parts[0] in _METHODS and len(parts) > 1:
            return f"{parts[1].rpartition('.')[2]}.{parts[0]}"
        return parts[0].rpartition(".")[2]

    def _entry(self, section: str, called: str, argument: str, node: ast.expr, line: int) -> Entry:
        value: Value
        if argument == "**":
            value = Unresolved("further arguments come from a dictionary")
        else:
            value = self._value(node)
        key, shown = normalised(f"{section}.{argument}"), printable(f"{called}.{argument}")
        return Entry(key, shown, value, line)

    def _value(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name) and names_a_secret(node.id):
            return Unresolved("its name is a secret's")
        try:
            constant = self._constants.get(node.id) if isinstance(node, ast.Name) else None
            return _literal(constant or node, 0)
        except _NotLiteral:
            return Unresolved("the script computes it")


class _NotLiteral(Exception):
    """An expression whose value only running it tells."""


def _literal(node: ast.expr, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise _NotLiteral
    if isinstance(node, ast.Constant):
        if node.value is None or isinstance(node.value, (bool, int, float, str)):
            return node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand, depth + 1)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value
    elif isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(item, depth + 1) for item in node.elts]
    elif isinstance(node, ast.Set):
        return [_literal(item, depth + 1) for item in node.elts]
    elif isinstance(node, ast.Dict):
        return _mapping(node, depth)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id in ("TaskType", "PeftType"):
            return node.attr
    raise _NotLiteral


def _mapping(node: ast.Dict, depth: int) -> Json:
    members: dict[str, Json] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise _NotLiteral
        members[key.value] = _literal(value, depth + 1)
    return members


def _bound(node: ast.AST) -> Iterator[str]:
    """Name what a node gives a value to, in any scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from (*node.names, *node.names)
    elif isinstance(node, ast.alias):
        yield node.asname or node.name
    elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
