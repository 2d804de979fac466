"""Sigstore bundles: what rides along with a signature is named, or refused."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import CONTENT, model_signing, signed, signer_of

from reefkit.errors import Unusable
from reefkit.provenance.sign.carriers import SUMS, carrier_of, read_signature
from reefkit.provenance.sign.found import FoundSignature

NAMES = ("SHA256SUMS.sigstore.json", "model.sig")
FILES = signed(signer_of("p256"))


def _read(name: str, data: bytes) -> FoundSignature:
    carrier = carrier_of(name)
    assert carrier is not None
    return read_signature(carrier, name, data)


def _with(name: str, **material: object) -> bytes:
    document: Any = json.loads(FILES[name])
    document["verificationMaterial"].update(material)
    return json.dumps(document).encode()


@pytest.mark.parametrize("name", NAMES)
def test_what_nothing_verifies_is_named(name: str) -> None:
    key = signer_of("p256").public
    stamps = {"rfc3161Timestamps": [{"signedTimestamp": "Ym9ndXM="}]}
    found = _read(name, _with(name, tlogEntries=[{"logIndex": "1"}, {}]))
    assert found.verify(key, FILES[SUMS])
    assert [sentence[:50] for sentence in found.unchecked] == [
        "It carries 2 entries of a transparency log, which "
    ]
    found = _read(name, _with(name, timestampVerificationData=stamps))
    assert len(found.unchecked) == 1 and "1 timestamp of an authority" in found.unchecked[0]
    for empty in ("{}", '{"rfc3161Timestamps": []}'):
        assert _read(name, _with(name, timestampVerificationData=json.loads(empty))).unchecked == ()
    assert _read(name, FILES[name]).unchecked == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"}" + b" " * 1000),
        (b"", b"}\n\n"),
        (b"", b"} \n"),
        (b"", b"}\r\n"),
        (b"\n", b"}"),
        (b"", b',"approved":true}'),
    ],
)
def test_what_no_signature_covers_is_refused(name: str, before: bytes, after: bytes) -> None:
    open_end = FILES[name].rstrip().removesuffix(b"}")
    _read(name, open_end + b"}")
    with pytest.raises(Unusable):
        _read(name, before + open_end + after)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "material",
    [
        {"tlogEntries": {"a": 1}},
        {"tlogEntries": None},
        {"timestampVerificationData": [1]},
        {"timestampVerificationData": {"other": []}},
        {"timestampVerificationData": {"rfc3161Timestamps": "x"}},
        {"note": "x"},
    ],
)
def test_other_material_is_refused(name: str, material: dict[str, object]) -> None:
    with pytest.raises(Unusable):
        _read(name, _with(name, **material))


def test_the_signature_of_a_single_file_says_that_it_is_one(tmp_path: Path) -> None:
    signing = model_signing("signing")
    (tmp_path / "m.bin").write_bytes(CONTENT["a.bin"])
    (tmp_path / "key").write_bytes(signer_of("p256").to_file(None))
    config = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "key")
    config.sign(tmp_path / "m.bin", tmp_path / "model.sig")
    with pytest.raises(Unusable, match="signs a single file, not a folder") as refused:
        _read("model.sig", (tmp_path / "model.sig").read_bytes())
    assert sha256(CONTENT["a.bin"]).hexdigest() in refused.value.message
