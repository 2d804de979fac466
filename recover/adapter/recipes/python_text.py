"""Read the calls of a Python script, by its syntax tree: nothing is imported or executed.

Literals count, and names that are bound once in the whole script, at its top level, to a literal.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ....records.names import printable
from ....records.strict_json import Json
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
from .python_changes import changes
from .python_flow import Flow, Reach

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
            script = _Script(tree, name)
    except SyntaxError as error:
        raise broken(name, error.lineno or 1, "this is not Python") from None
    except (ValueError, RecursionError, MemoryError):
        raise broken(name, 1, "this is not Python") from None
    entries = tuple(script.entries())
    if len(entries) > MAX_ENTRIES:
        raise too_large(name, f"more than {MAX_ENTRIES:,} arguments of calls")
    notes = tuple(dict.fromkeys(script.notes))
    return Document(name, Kind.PYTHON, entries, script.modules, notes, tuple(script.changes.gaps))


# Calls that make an adapter's configuration, and keep to themselves what a script leaves out.
_MAKING = re.compile(
    r"(?:.*\.)?(?:LoraConfig|get_peft_model|LoRA|CanonicalLoRA|DoRA|Config|ModelConfig"
    r"|create_lora_training_client(?:_async)?)"
)


class _Script:
    """A script's calls, its imports and its constants."""

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        flow = Flow(tree)
        self.changes = changes(flow.places, name)
        self._calls: list[tuple[ast.Call, Reach]] = []
        self._original: dict[str, str] = {}
        modules: list[str] = []
        bound: Counter[str] = Counter()
        star = 0
        touched: set[str] = set()
        for place in flow.places:
            node = place.node
            if isinstance(node, ast.Call):
                self._calls.append((node, flow.reach(place)))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                module = node.module if isinstance(node, ast.ImportFrom) else None
                modules += [module] if module else [alias.name for alias in node.names]
                self._original |= {a.asname: a.name for a in node.names if a.asname}
                if any(alias.name == "*" for alias in node.names):
                    star = max(star, node.lineno)
            touched.update(_touched(node))
            bound.update(_bound(node))
        self.modules = tuple(modules)
        self._calls.sort(key=lambda call: (call[0].lineno, call[0].col_offset))
        self._constants = {
            target: value
            for target, value in _assignments(tree)
            if bound[target] == 1
            and value.lineno > star
            and not self.changes.anything
            and not (target in touched and isinstance(value, (ast.List, ast.Dict, ast.Set)))
        }

    def entries(self) -> Iterator[Entry]:
        """Give the calls in the order of the text; of those that never run only what they lack."""
        named = [(self._called(call.func), call, reach) for call, reach in self._calls]
        run = {called for called, _, reach in named if reach is not Reach.UNCALLED}
        seen: Counter[str] = Counter()
        for called, call, reach in named:
            if called is None:
                continue
            making = _MAKING.fullmatch(called) is not None
            if reach is Reach.UNCALLED:
                if making:
                    self.notes.append(
                        f"{self._at(call, called)} stands in code that is never called"
                    )
                if called in run:
                    continue
            elif reach is Reach.CONDITIONAL and making:
                self.notes.append(f"{self._at(call, called)} stands under a condition")
            seen[called] += 1
            section = called if seen[called] == 1 else f"{called}#{seen[called]}"
            yield from self._arguments(section, called, call, reach, making=making)

    def _at(self, call: ast.Call, called: str) -> str:
        return f"{self.name}:{call.lineno}: {printable(called)}"

    def _arguments(
        self, section: str, called: str, call: ast.Call, reach: Reach, *, making: bool
    ) -> Iterator[Entry]:
        yield Entry(normalised(section), printable(called), {}, call.lineno)
        uncalled = Unresolved("it stands in code that is never called")
        arguments: list[tuple[str, ast.expr]] = []
        for number, argument in enumerate(call.args):
            starred = isinstance(argument, ast.Starred)
            arguments.append(("**" if starred else str(number), argument))
        arguments += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
        for name, node in arguments:
            entry = self._entry(section, called, name, node, node.lineno)
            changed = self.changes.fields.get(name)
            if reach is Reach.UNCALLED:
                entry = replace(entry, value=uncalled)
            elif changed is not None and (making or node.lineno < changed):
                entry = replace(entry, value=_set_again(changed))
            elif making and self.changes.continued is not None:
                line = self.changes.continued
                entry = replace(entry, value=Unresolved(f"line {line} continues another adapter"))
            yield entry
        if not making:
            return
        if reach is Reach.UNCALLED:
            yield Entry(normalised(f"{section}.**"), printable(called), uncalled, call.lineno)
        given = {name for name, _ in arguments}
        for name, line in self.changes.fields.items():
            if name not in given and name.isidentifier():
                key = f"{section}.{name}"
                shown = printable(f"{called}.{name}")
                yield Entry(normalised(key), shown, _set_again(line), line)

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


def _set_again(line: int) -> Unresolved:
    return Unresolved(f"line {line} of the script sets it again")


def _touched(node: ast.AST) -> Iterator[str]:
    """Name what a method or an assignment to a part may change."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.value.id


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
