"""OMS 1.0, `model.sig`: an in-toto Statement in a DSSE envelope in a sigstore bundle.

As model_signing 1.1.1 writes and reads it. What is stricter here: a name that is there twice, a
name that leads out of the folder, and another order of fields than one signature over one
subject are refused; and the paths that the signer lets the verifier skip are told.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...errors import Unusable
from ...records.names import printable
from ...records.strict_json import Json, parse_object
from ..finding import FindingKind
from ..sums.names import fault_in
from . import bundle
from .der import decode_der
from .found import FoundSignature
from .key import P256, PublicKey, Signer
from .public_key import P384, P521, verifies_raw
from .signing import ecdsa_der
from .sigstore import CERTIFICATE

SCHEME = "oms"
LIMIT = 64 << 20
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
SINGLE = "."  # how model_signing calls the file where it signs one alone
_SUBJECT = "evidence"
_HEX = re.compile(r"[0-9a-f]{64}")


def pre_authentication(payload: bytes) -> bytes:
    """Give the bytes that DSSE signs in place of the payload (DSSE protocol, 1.0)."""
    head = f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(payload)} "
    return head.encode("ascii") + payload


def encode(signer: Signer, files: Mapping[str, str], ignored: Collection[str]) -> bytes:
    """Sign names with their SHA-256 as hex; `ignored` are the paths that need not be listed.

    The key must be ECDSA P-256. Raises what the signer raises.
    """
    payload = bundle.compact_json(_statement(files, ignored))
    signature = ecdsa_der(signer, pre_authentication(payload))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": "", "sig": base64.b64encode(signature).decode()}],
    }
    return bundle.encode(signer.public, {"dsseEnvelope": envelope})


def _statement(files: Mapping[str, str], ignored: Collection[str]) -> dict[str, object]:
    # model_signing sorts names part by part, not by their bytes.
    names = sorted(files, key=lambda name: name.split("/"))
    root = hashlib.sha256(b"".join(bytes.fromhex(files[name]) for name in names))
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": _SUBJECT, "digest": {"sha256": root.hexdigest()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": sorted(ignored),
            },
            "resources": [
                {"name": name, "algorithm": "sha256", "digest": files[name]} for name in names
            ],
        },
    }


@dataclass(frozen=True)
class _Bound:
    """What a statement says."""

    files: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    fault: tuple[FindingKind, str] | None = None


def read(data: bytes, path: str, label: str, sums_name: str) -> FoundSignature:
    """Read a model.sig. Raises Unusable.

    Where it covers the sums file itself, as one made by model_signing does, that one's digest is
    held against the sums when the signature is verified, and not given in `files`.
    """
    found = bundle.decode(data, label, "dsseEnvelope", LIMIT)
    hint = found.hint
    envelope = bundle.fields(found.content, label, {"payload", "payloadType", "signatures"})
    if envelope["payloadType"] != PAYLOAD_TYPE:
        raise bundle.refused(label, "holds no in-toto statement")
    signatures = bundle.as_list(envelope["signatures"], label)
    if len(signatures) != 1:
        raise bundle.refused(label, f"holds {len(signatures)} signatures, not one")
    entry = bundle.fields(signatures[0], label, {"sig"}, {"keyid"})
    bundle.as_text(entry.get("keyid", ""), label)
    signature = bundle.as_bytes(entry["sig"], label)
    decode_der(signature, label)
    payload = bundle.as_bytes(envelope["payload"], label)
    bound = _read_statement(parse_object(payload, label), label)
    files = dict(bound.files)
    stated_sums = files.pop(sums_name, None)
    signed = pre_authentication(payload)

    def check(key: PublicKey, sums: bytes, _allow_touchless: bool) -> bool:
        if hint is None or key.algorithm not in (P256, P384, P521):
            return False
        if hint and hint != bundle.key_hint(key):
            return False
        if stated_sums not in (None, hashlib.sha256(sums).hexdigest()):
            return False
        return verifies_raw(key, signed, signature)

    fault = (FindingKind.NOT_CHECKED, CERTIFICATE) if hint is None else bound.fault
    return FoundSignature(
        SCHEME,
        path,
        check,
        files=files,
        ignored=bound.ignored,
        fault=fault,
        unchecked=found.unchecked,
    )


def _read_statement(document: dict[str, Json], label: str) -> _Bound:
    statement = bundle.fields(document, label, {"_type", "subject", "predicateType", "predicate"})
    if statement["_type"] != STATEMENT_TYPE:
        raise bundle.refused(label, "holds no in-toto statement of version 1")
    predicate_type = bundle.as_text(statement["predicateType"], label)
    if predicate_type != PREDICATE_TYPE:
        said = f"It says it is {printable(predicate_type[:200])}, not {PREDICATE_TYPE}."
        return _Bound({}, fault=(FindingKind.PREDICATE_TYPE, said))
    predicate = bundle.as_object(statement["predicate"], label)  # further fields are allowed
    serialization = bundle.fields(
        predicate.get("serialization"),
        label,
        {"method", "hash_type", "allow_symlinks"},
        {"ignore_paths", "shard_size"},
    )
    ignored = tuple(
        bundle.as_text(each, label)
        for each in bundle.as_list(serialization.get("ignore_paths", []), label)
    )
    if (serialization["method"], serialization["hash_type"]) != ("files", "sha256"):
        said = "It does not list whole files with their SHA-256: only model_signing can verify it."
        return _Bound({}, ignored, (FindingKind.NOT_CHECKED, said))
    resources = bundle.as_list(predicate.get("resources", []), label)
    files = _read_resources(resources, label)
    root = hashlib.sha256(b"".join(map(bytes.fromhex, files.values()))).hexdigest()
    subjects = bundle.as_list(statement["subject"], label)
    if len(subjects) != 1:
        raise bundle.refused(label, f"has {len(subjects)} subjects, not one")
    subject = bundle.fields(subjects[0], label, {"digest"}, {"name"})
    bundle.as_text(subject.get("name", ""), label)
    if bundle.fields(subject["digest"], label, {"sha256"})["sha256"] != root:
        raise bundle.refused(label, "has a root digest that is not that of its files")
    return _Bound(files, ignored)


def _read_resources(resources: list[Json], label: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in resources:
        resource = bundle.fields(each, label, {"name", "algorithm", "digest"})
        name = bundle.as_text(resource["name"], label)
        digest = bundle.as_text(resource["digest"], label)
        if resource["algorithm"] != "sha256" or not _HEX.fullmatch(digest):
            raise bundle.refused(label, "holds a digest that is not a SHA-256")
        if name == SINGLE and len(resources) == 1:
            raise Unusable(
                f"{label} signs a single file, not a folder: whichever has the SHA-256 {digest}.",
                remedy="Check it with `model_signing verify key`, or sign the file's folder.",
            )
        fault = fault_in(name)
        if fault is not None:
            raise bundle.refused(label, f"lists {printable(name[:200])}, which is {fault}")
        if name in found:
            raise bundle.refused(label, f"lists {printable(name[:200])} twice")
        found[name] = digest
    return found
