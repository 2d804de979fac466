"""Result bundles: one JSON that carries the artifacts of a run, each with its original digest.

The form is that of RL-Kernel's operator reports: `schema_version` 1, and for each artifact its
`format`, its `content` and `original_sha256`, the digest of the file before it was taken in. A
JSON artifact is there as a value, so its original bytes are gone; they are rebuilt in the ways
that people serialise with, and only a digest that fits is taken for proof. None that fits proves
nothing: the original may have been written in a way that is not tried. Of a text the bundle
holds every character, so one that fits in no line ending and encoding has been changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...errors import Unusable
from ...records.strict_json import Json, parse_object
from ..finding import Finding, FindingKind
from .name_bytes import name_bytes
from .shown import shown

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_LARGEST = 64 << 20
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LAYOUTS: tuple[tuple[int | str | None, tuple[str, str]], ...] = (
    (2, (",", ": ")),
    (None, (", ", ": ")),
    (None, (",", ":")),
    (4, (",", ": ")),
    (1, (",", ": ")),
    ("\t", (",", ": ")),
)
_FORMATS = ("json", "text")


@dataclass(frozen=True)
class Artifact:
    """One artifact; `rule` names how its original bytes were rebuilt, None where they were not.

    `finding` is there exactly when there is no rule.
    """

    name: str
    format: str
    original_sha256: str
    rule: str | None
    data: bytes | None
    finding: Finding | None


@dataclass(frozen=True)
class ResultBundle:
    """A bundle: the machine, the description, and the artifacts sorted by name."""

    label: str
    gpu: str | None
    description: str | None
    artifacts: tuple[Artifact, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What could not be checked, or is proven to be another thing."""
        return tuple(each.finding for each in self.artifacts if each.finding is not None)


def is_result_bundle(document: Mapping[str, Json]) -> bool:
    """Tell whether a JSON object claims to be one; what is wrong in it is for the reader to say."""
    artifacts = document.get("artifacts")
    return (
        document.get("schema_version") == 1
        and document["schema_version"] is not True
        and isinstance(artifacts, dict)
        and all(
            isinstance(each, dict) and {"format", "original_sha256", "content"} <= each.keys()
            for each in artifacts.values()
        )
    )


def read_result_bundle(data: bytes, label: str) -> ResultBundle:
    """Read a bundle and hold each artifact against its digest. Raises Unusable."""
    if len(data) > _LARGEST:
        raise _refused(label, f"is larger than {_LARGEST >> 20} MiB")
    document = parse_object(data, label)
    if not is_result_bundle(document):
        raise _refused(label, "is no result bundle of schema version 1")
    artifacts = document["artifacts"]
    assert isinstance(artifacts, dict)
    read = [_artifact(label, name, each) for name, each in artifacts.items()]
    return ResultBundle(
        label,
        _text(document, "gpu"),
        _text(document, "description"),
        tuple(sorted(read, key=lambda each: name_bytes(each.name))),
    )


def _text(document: Mapping[str, Json], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None


def _artifact(label: str, name: str, fields: Json) -> Artifact:
    what = f"{label}: artifact {shown(name)}"
    assert isinstance(fields, dict)
    kind, digest, content = fields["format"], fields["original_sha256"], fields["content"]
    if not isinstance(kind, str) or kind not in _FORMATS:
        raise _refused(what, "has a format other than json and text")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise _refused(what, "has no SHA-256 of the original")
    if kind == "text" and not isinstance(content, str):
        raise _refused(what, "is a text whose content is none")
    digest = digest.lower()
    forms = _texts(content) if isinstance(content, str) and kind == "text" else _jsons(content)
    for rule, data in forms:
        if hashlib.sha256(data).hexdigest() == digest:
            return Artifact(name, kind, digest, rule, data, None)
    return Artifact(name, kind, digest, None, None, _unproven(name, kind))


def _unproven(name: str, kind: str) -> Finding:
    if kind == "text":
        text = (
            f"The text of {shown(name)} in the bundle is not the original: its digest is "
            "another one with every line ending, final newline and byte order mark."
        )
        return Finding(FindingKind.MISMATCH, name, text)
    text = (
        f"The original bytes of {shown(name)} are not in the bundle, which holds its value "
        "only, and no usual way to write that has the digest."
    )
    return Finding(FindingKind.NOT_CHECKED, name, text)


def _texts(content: str) -> Iterator[tuple[str, bytes]]:
    bodies = {"as it is": content}
    bodies["without its final newline"] = content.removesuffix("\n")
    bodies["with a final newline"] = content + "\n"
    for how, body in bodies.items():
        data = body.encode()
        yield how, data
        if "\n" in body and "\r" not in body:
            yield f"{how}, with CRLF line ends", data.replace(b"\n", b"\r\n")
        yield f"{how}, after a byte order mark", b"\xef\xbb\xbf" + data


def _jsons(content: Json) -> Iterator[tuple[str, bytes]]:
    for indent, separators in _LAYOUTS:
        before = ""
        for order, sort in (("keys as they come", False), ("sorted keys", True)):
            text = json.dumps(
                content, indent=indent, sort_keys=sort, ensure_ascii=False, separators=separators
            )
            if text == before:
                continue
            before = text
            for escape in (False,) if text.isascii() else (False, True):
                how = f"{_named(indent, separators)}, {order}"
                if escape:
                    how += ", ASCII only"
                data = _escaped(text).encode() if escape else text.encode()
                yield f"{how}, no final newline", data
                yield f"{how}, with a final newline", data + b"\n"


def _escaped(text: str) -> str:
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _named(indent: int | str | None, separators: tuple[str, str]) -> str:
    if indent is None:
        return "compact" if separators[0] == "," else "on one line"
    return "indented by a tab" if indent == "\t" else f"indented by {indent}"


def _refused(label: str, fault: str) -> Unusable:
    return Unusable(f"{label} {fault}.", remedy="Get the file from its source again.")
