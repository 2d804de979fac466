"""Read YAML as plain data: no tags of other types, no cycles, nothing executed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .document import MAX_DEPTH, MAX_ENTRIES, Node, Pairs, broken, too_large

_PLAIN = "tag:yaml.org,2002:"
_KNOWN_TAGS = frozenset({"str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge"})
_MAX_ALIASES = 200


class _Open:
    """A collection whose end has not come; keys and values of a mapping alternate."""

    def __init__(self, line: int, mapping: bool, anchor: str | None) -> None:
        self.line = line
        self.mapping = mapping
        self.anchor = anchor
        self.children: list[Node] = []


def parse_yaml(text: str, name: str) -> Node | None:
    """Give the first YAML document of a text; None if there is none."""
    return parse_stream(text, name)[0]


def parse_stream(text: str, name: str) -> tuple[Node | None, bool]:
    """Give the first YAML document with the lines of its values, and whether others follow it.

    Repeated keys are kept. Scalars become what PyYAML's safe loader makes of them, dates excepted.
    Raises Unusable with the line of a fault, past a bound, and for tags that are no plain data.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _build(text, name, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise broken(name, line, "this is not YAML") from None
    except (UnicodeError, ValueError, RecursionError):
        raise broken(name, 1, "this is not YAML") from None


def _build(text: str, name: str, loader: Any) -> tuple[Node | None, bool]:
    import yaml

    resolver: Any = yaml.resolver.Resolver()
    stack: list[_Open] = []
    anchors: dict[str, Node | None] = {}
    aliases = nodes = 0
    root: Node | None = None
    done = False
    for event in yaml.parse(text, Loader=loader):
        line = _line(event.start_mark)
        if isinstance(event, yaml.DocumentEndEvent):
            done = True
            continue
        if done:
            empty = isinstance(event, yaml.ScalarEvent) and not event.value
            if isinstance(event, yaml.DocumentStartEvent) or empty:
                continue
            return root, not isinstance(event, yaml.StreamEndEvent)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            _check_tag(event.tag, name, line)
            if len(stack) >= MAX_DEPTH:
                raise too_large(name, f"more than {MAX_DEPTH} levels of nesting")
            if event.anchor:
                anchors[event.anchor] = None
            mapping = isinstance(event, yaml.MappingStartEvent)
            stack.append(_Open(line, mapping, event.anchor))
            continue
        if isinstance(event, yaml.ScalarEvent):
            _check_tag(event.tag, name, line)
            tag = event.tag or str(resolver.resolve(yaml.ScalarNode, event.value, event.implicit))
            node = Node(line, _line(event.end_mark), _scalar(tag, event.value))
            anchor = event.anchor
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            opened = stack.pop()
            node, anchor = _closed(opened, _line(event.end_mark), name), opened.anchor
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            target = anchors.get(event.anchor or "")
            if target is None:
                raise broken(name, line, "an alias refers to nothing, or to what it stands in")
            node, anchor = target, None
        else:
            continue
        nodes += 1
        if nodes > MAX_ENTRIES or aliases > _MAX_ALIASES:
            raise too_large(name, f"more than {MAX_ENTRIES:,} values or {_MAX_ALIASES:,} aliases")
        if anchor:
            anchors[anchor] = node
        if stack:
            stack[-1].children.append(node)
        else:
            root = node
    return root, False


def _line(mark: object) -> int:
    return int(getattr(mark, "line", 0)) + 1


def _check_tag(tag: str | None, name: str, line: int) -> None:
    if tag and tag != "!" and tag.removeprefix(_PLAIN) not in _KNOWN_TAGS:
        raise broken(name, line, "a YAML tag asks for more than plain data")


def _closed(opened: _Open, last: int, name: str) -> Node:
    if not opened.mapping:
        return Node(opened.line, last, tuple(opened.children))
    pairs: list[tuple[str, Node]] = []
    merged: list[tuple[str, Node]] = []
    for key, value in zip(opened.children[::2], opened.children[1::2], strict=True):
        if isinstance(key.value, (tuple, Pairs)):
            raise broken(name, key.line, "a key is itself a list or a mapping")
        if key.value == "<<":
            sources = value.value if isinstance(value.value, tuple) else (value,)
            for source in sources:
                if isinstance(source.value, Pairs):
                    merged += source.value.pairs
        else:
            pairs.append((_key(key.value), replace(value, line=key.line)))
    own = {key for key, _ in pairs}
    for inherited, value in merged:
        if inherited not in own:
            own.add(inherited)
            pairs.append((inherited, value))
    if len(pairs) > MAX_ENTRIES:
        raise too_large(name, f"more than {MAX_ENTRIES:,} values")
    return Node(opened.line, last, Pairs(tuple(pairs)))


def _key(value: bool | int | float | str | None) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _scalar(tag: str, text: str) -> bool | int | float | str | None:
    """Read a scalar as YAML 1.1 does; what its tag promises but the text does not hold is text."""
    kind = tag.removeprefix(_PLAIN)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("yes", "true", "on", "y")
    plain = text.replace("_", "").lower()
    try:
        if kind == "int":
            return _integer(plain)
        if kind == "float":
            return float(plain.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    return text


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith(("0x", "0b")):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits.startswith("0"):
        raise ValueError  # octal here and decimal in YAML 1.2: it stays text, which no number is
    return sign * int(digits)
