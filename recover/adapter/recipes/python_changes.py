"""What a script does to a configuration other than by the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from .python_flow import Place, called_name

# Classes whose use other than by a call hides what is made with them.
_MAKERS = frozenset({"LoraConfig", "LoRA", "CanonicalLoRA", "DoRA", "LoRAConverter"})
_LOADERS = frozenset({"PeftModel", "PeftConfig", "LoraConfig", "AutoPeftModelForCausalLM"})
_NAMESPACES = frozenset({"exec", "globals", "locals", "vars"})
_REPLACING = frozenset({"replace", "update", "evolve", "model_copy"})
_OF_CLASSES = ("from_pretrained", "Config")
_WRAPPER = "get_peft_model"
_CONFIGURATION = ("cfg", "conf", "lora", "peft", "args", "param")


@dataclass
class Changes:
    """What a script sets after a configuration is built: names with their lines, and gaps.

    `anything` says that names may be bound to values that the text does not show. `continued` is
    the line where an adapter is loaded to be trained on.
    """

    name: str
    fields: dict[str, int] = field(default_factory=dict[str, int])
    gaps: dict[str, None] = field(default_factory=dict[str, None])
    anything: bool = False
    continued: int | None = None

    def gap(self, line: int, what: str) -> None:
        """Add what keeps defaults from counting."""
        self.gaps[f"{self.name}:{line}: {what}: no defaults are used"] = None

    def set(self, key: str, line: int) -> None:
        """Note that a name is set."""
        self.fields.setdefault(key, line)


def changes(places: Sequence[Place], name: str) -> Changes:
    """Find assignments to attributes, and code that may change what the text does not name."""
    found = Changes(name)
    plain = _plainly_used(places)
    made_here = _configurations(places)
    handed = {
        id(argument)
        for place in places
        if isinstance(place.node, ast.Call)
        for argument in (*place.node.args, *(k.value for k in place.node.keywords))
    }
    for place in places:
        node = place.node
        if isinstance(node, ast.Call):
            if not (called_name(node) == "vars" and id(node) in handed):  # then it is only read
                _call(node, found, made_here)
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            _part(node, found)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in _MAKERS:
            found.gap(node.lineno, f"the script has a {node.name} of its own")
        elif isinstance(node, ast.ImportFrom):
            root = (node.module or "").partition(".")[0]
            foreign = node.level > 0 or root not in ("peft", "unsloth")
            if foreign and any(alias.name == "LoraConfig" for alias in node.names):
                found.gap(node.lineno, "LoraConfig is not PEFT's own")
        if isinstance(node, (ast.Name, ast.Attribute)) and not place.annotation:
            used = _name(node)
            made = used in _MAKERS or (isinstance(node, ast.Attribute) and used == _WRAPPER)
            if made and id(node) not in plain:
                found.gap(node.lineno, f"{used} is used in another way than by a call")
    return found


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _plainly_used(places: Sequence[Place]) -> set[int]:
    """Find the expressions that are called, that own a called loader, or that only name a type."""
    plain: set[int] = set()
    for place in places:
        if isinstance(place.node, ast.Call):
            function = place.node.func
            plain.add(id(function))
            if isinstance(function, ast.Attribute) and function.attr in (
                "from_pretrained",
                "Config",
            ):
                plain.add(id(function.value))
            if called_name(place.node) in ("isinstance", "issubclass"):
                plain.update(id(node) for each in place.node.args for node in ast.walk(each))
    return plain


def _part(node: ast.Attribute | ast.Subscript, found: Changes) -> None:
    """Take what is assigned to an attribute or an item as set, of `self` excepted."""
    if isinstance(node.ctx, ast.Load):
        if isinstance(node, ast.Attribute) and node.attr in ("__dict__", "__setattr__"):
            found.gap(node.lineno, f"the script reaches into {node.attr}")
            found.anything = True
    elif isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, str):
            found.set(key, node.lineno)
    elif _name(node.value) != "self":
        found.set(node.attr, node.lineno)


def _configurations(places: Sequence[Place]) -> set[str]:
    """Name the variables that a configuration is given to."""
    names: set[str] = set()
    for place in places:
        node = place.node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if called_name(node.value) in _MAKERS:
                names.update(_name(target) for target in node.targets)
    return names


def _call(node: ast.Call, found: Changes, made_here: set[str]) -> None:
    function = called_name(node)
    if isinstance(node.func, ast.Name) and function in _NAMESPACES:
        found.gap(node.lineno, f"the script uses {function}, which may set anything")
        found.anything = True
    elif function == "setattr":
        key = node.args[1] if len(node.args) > 1 else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.set(key.value, node.lineno)
        else:
            found.gap(node.lineno, "setattr sets what only running the script tells")
    elif function in _REPLACING:
        members = _named_members(node)
        for member in members:
            found.set(member, node.lineno)
        if not members and _configures(node, made_here):
            found.gap(node.lineno, f"{function} changes a configuration")
    elif function == "getattr":
        got = node.args[1] if len(node.args) > 1 else None
        if isinstance(got, ast.Constant) and got.value in (*_MAKERS, _WRAPPER):
            found.gap(node.lineno, f"{got.value} is used in another way than by a call")
    elif function == "load_adapter":
        found.gap(node.lineno, "the script loads an adapter, whose own configuration counts")
    elif function == "from_pretrained" and isinstance(node.func, ast.Attribute):
        if _name(node.func.value) in _LOADERS:
            found.gap(node.lineno, "the script loads an adapter, whose own configuration counts")
            if any(keyword.arg == "is_trainable" for keyword in node.keywords):
                found.continued = node.lineno


def _named_members(call: ast.Call) -> list[str]:
    named = [keyword.arg for keyword in call.keywords if keyword.arg]
    for argument in call.args:
        if isinstance(argument, ast.Dict):
            for key in argument.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    named.append(key.value)
    return named


def _configures(call: ast.Call, made_here: set[str]) -> bool:
    """Tell whether a configuration, or what is called like one, is changed, or by `**`."""
    if any(keyword.arg is None for keyword in call.keywords):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = _name(owner)
    like = name in made_here or any(part in name.lower() for part in _CONFIGURATION)
    return bool(call.args) and like
