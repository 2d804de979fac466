"""A verification as SARIF 2.1.0 (OASIS), for code scanning.

A rule for each kind of finding; a location for each result: the file, relative to where the
command ran, or the container that holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ...records.documents import to_text
from ...records.names import decoded, printable
from ...records.tool import tool_identity
from ..finding import Finding, FindingKind, Gravity
from .meaning import meaning_of
from .place import uri_of
from .result import Verification

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_VERSION = "2.1.0"
_LEVELS = {
    Gravity.NOTE: "note",
    Gravity.UNTRUSTED: "warning",
    Gravity.INCOMPLETE: "error",
    Gravity.FAILED: "error",
}


def to_sarif(result: Verification) -> str:
    """Write the document."""
    kinds = sorted({finding.kind for finding in result.findings}, key=lambda kind: kind.value)
    tool = tool_identity()
    run: dict[str, object] = {
        "tool": {
            "driver": {
                "name": "reef-archive verify",
                "semanticVersion": tool["version"],
                "rules": [_rule(kind) for kind in kinds],
            }
        },
        "invocations": [
            {"executionSuccessful": True, "exitCode": int(result.exit_code)},
        ],
        "columnKind": "unicodeCodePoints",
        "results": list(_results(result, kinds)),
        "properties": {"verdict": result.verdict.value, "checked": result.checked},
    }
    return to_text({"$schema": _SCHEMA, "version": _VERSION, "runs": [run]})


def _rule(kind: FindingKind) -> dict[str, object]:
    meaning = meaning_of(kind)
    words = kind.value.split("-")
    return {
        "id": kind.value,
        "name": "".join(word.capitalize() for word in words),
        "shortDescription": {"text": meaning.title},
        "fullDescription": {"text": meaning.text},
        "help": {"text": f"{meaning.text} {meaning.remedy}"},
        "defaultConfiguration": {"level": _LEVELS[kind.gravity]},
    }


def _results(result: Verification, kinds: list[FindingKind]) -> Iterable[dict[str, object]]:
    for finding in result.findings:
        yield {
            "ruleId": finding.kind.value,
            "ruleIndex": kinds.index(finding.kind),
            "level": _LEVELS[finding.gravity] if result.counts(finding) else "note",
            "message": {"text": _message(finding)},
            "locations": [_location(result, finding)],
            "partialFingerprints": {"finding/v1": _fingerprint(finding)},
        }


def _message(finding: Finding) -> str:
    where = "" if finding.path is None else f"{printable(finding.path)}: "
    return where + finding.diagnosis


def _location(result: Verification, finding: Finding) -> dict[str, object]:
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri_of(result, finding.path)},
            "region": {"startLine": 1},
        }
    }
    if finding.path is not None:
        location["logicalLocations"] = [
            {"fullyQualifiedName": f"{result.target}!/{printable(finding.path)}", "kind": "member"}
        ]
    return location


def _fingerprint(finding: Finding) -> str:
    """Tell findings apart from run to run: by kind and path, not by what the message says."""
    text = f"{finding.kind.value}\0{decoded(finding.path or '')}"
    return hashlib.sha256(text.encode()).hexdigest()
