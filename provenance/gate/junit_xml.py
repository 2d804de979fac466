"""Read XML from outside: no document type, no entities of its own, and bounded in every way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...errors import Unusable

LIMIT = 64 << 20
_DEEPEST = 64
_MOST_NODES = 500_000
_LONGEST_TEXT = 2000


@dataclass
class Node:
    """An element; names are without prefix, text is its beginning."""

    name: str
    attributes: Mapping[str, str]
    children: list[Node] = field(default_factory=lambda: list[Node]())
    text: str = ""

    def get(self, name: str) -> str:
        """Give an attribute, or the empty string."""
        return self.attributes.get(name, "")


class _Refused(Exception):
    """Something that is not read; the message says what."""


def read_xml(data: bytes, label: str) -> tuple[Node, Callable[[str], Unusable]]:
    """Read a document; give its root, and a maker of errors about it. Raises Unusable."""

    def fault(text: str) -> Unusable:
        return Unusable(f"{label} {text}.", remedy="Get the report from its source again.")

    if len(data) > LIMIT:
        raise fault(f"has {len(data):,} bytes, more than the {LIMIT:,} that are read")
    from xml.parsers.expat import ExpatError, ParserCreate

    parser = ParserCreate()
    builder = _Builder()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse("it declares a document type, which is not read")
    parser.EntityDeclHandler = _refuse("it declares entities, which are not read")
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except ExpatError as error:
        raise fault(f"is no valid XML at line {error.lineno}: {_reason(error.code)}") from None
    except _Refused as error:
        raise fault(f"cannot be used: {error}") from None
    except (ValueError, LookupError):
        raise fault("is in an encoding that is not read") from None
    if builder.root is None:
        raise fault("holds no element")
    return builder.root, fault


def _reason(code: int) -> str:
    from xml.parsers.expat import ErrorString

    return ErrorString(code) or "it cannot be parsed"


def _refuse(text: str) -> Callable[..., None]:
    def handler(*_: object) -> None:
        raise _Refused(text)

    return handler


class _Builder:
    """Puts the elements together as the parser tells of them."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self._open: list[Node] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _DEEPEST:
            raise _Refused(f"it nests more than {_DEEPEST} deep")
        if self._count > _MOST_NODES:
            raise _Refused(f"it has more than {_MOST_NODES:,} elements")
        node = Node(name.rpartition(":")[2], attributes)
        if self._open:
            self._open[-1].children.append(node)
        else:
            self.root = node
        self._open.append(node)

    def end(self, _name: str) -> None:
        self._open.pop()

    def data(self, text: str) -> None:
        node = self._open[-1]
        if len(node.text) < _LONGEST_TEXT:
            node.text += text[:_LONGEST_TEXT]
