"""Evidence that was tampered with: every stock tool rejects it, and so do we."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import (
    CONTENT,
    Stock,
    accepted,
    digests_of,
    put,
    signed,
    signer_of,
    sums_of,
)

from reefkit.provenance.sign import bundle, oms
from reefkit.provenance.sign.carriers import SUMS, all_names, carrier_of, read_signature
from reefkit.provenance.sign.key import Signer
from reefkit.provenance.sign.public_key import decode_base64
from reefkit.provenance.sign.signing import ecdsa_der
from reefkit.provenance.sign.sshsig import armor, sign

Files = dict[str, bytes]
SIG, DER, RAW = "SHA256SUMS.sig", "SHA256SUMS.p256.der", "SHA256SUMS.ed25519.raw"
SIGSTORE, MINISIG, OMS = "SHA256SUMS.sigstore.json", "SHA256SUMS.minisig", "model.sig"


def _other_content() -> Files:
    return {**CONTENT, "a.bin": b"other\n"}


def _flipped(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _lines(sums: bytes) -> list[bytes]:
    return sums.splitlines(keepends=True)


def _sums(change: Callable[[bytes], bytes]) -> Callable[[Files, Signer, str], Files]:
    return lambda files, _signer, _name: {**files, SUMS: change(files[SUMS])}


def _carrier(change: Callable[[bytes], bytes]) -> Callable[[Files, Signer, str], Files]:
    return lambda files, _signer, name: {**files, name: change(files[name])}


def _other_key(files: Files, signer: Signer, name: str) -> Files:
    other = signer_of("p256" if signer.public.algorithm.startswith("ecdsa") else "ed25519", "other")
    return {**files, name: signed(other)[name]}


def _other_package(files: Files, signer: Signer, name: str) -> Files:
    return {**files, name: signed(signer, _other_content())[name]}


# What any signature over the bytes of the sums must notice.
OVER_SUMS: Mapping[str, Callable[[Files, Signer, str], Files]] = {
    "a bit of a digest": _sums(lambda sums: _flipped(sums, 0)),
    "a bit of a name": _sums(lambda sums: _flipped(sums, 66)),
    "the last bit": _sums(lambda sums: _flipped(sums, -1)),
    "swapped lines": _sums(lambda sums: b"".join(reversed(_lines(sums)))),
    "swapped digests": _sums(
        lambda sums: b"".join(
            other[:64] + line[64:]
            for line, other in zip(_lines(sums), reversed(_lines(sums)), strict=True)
        )
    ),
    "an extra line": _sums(lambda sums: sums + b"0" * 64 + b"  evil\n"),
    "a line twice": _sums(lambda sums: sums + _lines(sums)[0]),
    "a line less": _sums(lambda sums: b"".join(_lines(sums)[1:])),
    "no lines": _sums(lambda _sums: b""),
    "CRLF": _sums(lambda sums: sums.replace(b"\n", b"\r\n")),
    "no final newline": _sums(lambda sums: sums.rstrip(b"\n")),
    "a byte order mark": _sums(lambda sums: b"\xef\xbb\xbf" + sums),
    "upper-case digests": _sums(bytes.upper),
    "binary markers": _sums(lambda sums: sums.replace(b"  ", b" *")),
    "one space": _sums(lambda sums: sums.replace(b"  ", b" ")),
    "the sums of another package": _sums(lambda _sums: sums_of(_other_content())),
    "a signature by another key": _other_key,
    "a signature of another package": _other_package,
    "a truncated signature": _carrier(lambda data: data[: len(data) // 2]),
    "an empty signature": _carrier(lambda _data: b""),
    "garbage": _carrier(lambda _data: b"\0" * 71),
}


def _ssh_blob(data: bytes) -> bytes:
    return decode_base64(b"".join(data.splitlines()[1:-1]), "x")


def _reencoded_der(der: bytes) -> bytes:
    """The same numbers in BER: the length in its long form."""
    return der[:1] + b"\x81" + der[1:]


def _padded_der(der: bytes) -> bytes:
    """The same numbers, r with one zero byte more than it needs."""
    return bytes([0x30, der[1] + 1, 2, der[3] + 1, 0]) + der[4:]


def _without_namespace(files: Files, signer: Signer, name: str) -> Files:
    return {**files, name: sign(signer, files[SUMS], "file")}


def _signed_der(files: Files, signer: Signer, name: str) -> Files:
    """The bytes of one kind of signature taken for those of another: of the SSH preamble."""
    return {**files, name: decode_base64(json.loads(files[OMS])["dsseEnvelope"]["signatures"][0][
        "sig"
    ], "x")}  # fmt: skip


def _json(change: Callable[[Any], object]) -> Callable[[Files, Signer, str], Files]:
    def tampered(files: Files, _signer: Signer, name: str) -> Files:
        document = json.loads(files[name])
        change(document)
        return {**files, name: json.dumps(document).encode()}

    return tampered


def _flip_base64(text: str, at: int) -> str:
    return base64.b64encode(_flipped(base64.b64decode(text), at)).decode()


def _message(change: Callable[[Any], object]) -> Callable[[Files, Signer, str], Files]:
    return _json(lambda document: change(document["messageSignature"]))


OF_SSH = {
    "another namespace": _without_namespace,
    "a bit of the signature": _carrier(lambda data: armor(_flipped(_ssh_blob(data), -5))),
    "a bit of the key": _carrier(lambda data: armor(_flipped(_ssh_blob(data), 60))),
    "version 2": _carrier(lambda data: armor(b"SSHSIG\0\0\0\2" + _ssh_blob(data)[10:])),
    "version 0": _carrier(lambda data: armor(b"SSHSIG\0\0\0\0" + _ssh_blob(data)[10:])),
    "bytes after the signature": _carrier(lambda data: armor(_ssh_blob(data) + b"\0")),
    "a signature without armor": _carrier(_ssh_blob),
    "a namespace replaced": _carrier(
        lambda data: armor(_ssh_blob(data).replace(b"reefkit-sums", b"reefkit-summ"))
    ),
    "a hash replaced": _carrier(lambda data: armor(_ssh_blob(data).replace(b"sha512", b"sha256"))),
}
OF_DER = {
    "a bit of r": _carrier(lambda data: _flipped(data, 10)),
    "a bit of s": _carrier(lambda data: _flipped(data, -1)),
    "BER instead of DER": _carrier(_reencoded_der),
    "a number with a zero before it": _carrier(_padded_der),
    "in base64": _carrier(base64.b64encode),
    "the signature of the statement": _signed_der,
}
OF_RAW = {
    "a bit": _carrier(lambda data: _flipped(data, 3)),
    "a byte more": _carrier(lambda data: data + b"\0"),
    "in base64": _carrier(base64.b64encode),
}
OF_MINISIG = {
    "a bit of the signature": _carrier(
        lambda data: data.replace(
            line := data.splitlines()[1], base64.b64encode(_flipped(base64.b64decode(line), -1))
        )
    ),
    "another trusted comment": _carrier(lambda data: data.replace(b"hashed", b"hushed")),
    "not prehashed, it says": _carrier(
        lambda data: data.replace(
            line := data.splitlines()[1], base64.b64encode(b"Ed" + base64.b64decode(line)[2:])
        )
    ),
    "no trusted comment": _carrier(lambda data: b"\n".join(data.splitlines()[:2]) + b"\n"),
}
OF_SIGSTORE = {
    "a bit of the signature": _message(
        lambda it: it.update(signature=_flip_base64(it["signature"], -1))
    ),
    "no signature": _message(lambda it: it.update(signature="")),
    "no digest": _message(lambda it: it.pop("messageDigest")),
    "no verification material": _json(lambda it: it.pop("verificationMaterial")),
    "another media type": _json(lambda it: it.update(mediaType="application/json")),
    "no content": _json(lambda it: it.pop("messageSignature")),
}


@pytest.fixture(params=["p256", "ed25519"])
def signer(request: pytest.FixtureRequest) -> Signer:
    return signer_of(request.param)


def _demand_rejected(
    tmp_path: Path,
    signer: Signer,
    name: str,
    tamperings: Mapping[str, Callable[[Files, Signer, str], Files]],
    tool: Callable[[Stock], Callable[[Path], bool]],
    but: str | None = None,
) -> None:
    """Demand that a tool and we accept what is untouched and nothing else; name all at once.

    The tool, not we, accepts one thing more: `but`.
    """
    stock = Stock(tmp_path / "trust", signer.public)
    files = signed(signer)
    assert tool(stock)(put(tmp_path / "untouched", files))
    assert accepted(files, name, signer.public)
    ours: list[str] = []
    theirs: list[str] = []
    for number, (title, tamper) in enumerate(tamperings.items()):
        tampered = tamper(files, signer, name)
        assert tampered != files, title
        if tool(stock)(put(tmp_path / str(number), tampered)):
            theirs.append(title)
        if accepted(tampered, name, signer.public):
            ours.append(title)
    assert (ours, theirs) == ([], [] if but is None else [but])


def test_ssh_keygen_and_we_reject(tmp_path: Path, signer: Signer) -> None:
    tamperings = {**OVER_SUMS, **OF_SSH}
    _demand_rejected(tmp_path, signer, SIG, tamperings, lambda it: it.ssh_keygen, "version 0")


def test_openssl_and_we_reject(tmp_path: Path) -> None:
    tamperings = {**OVER_SUMS, **OF_DER}
    _demand_rejected(tmp_path, signer_of("p256"), DER, tamperings, lambda it: it.openssl)


def test_openssl_and_we_reject_with_ed25519(tmp_path: Path) -> None:
    tamperings = {**OVER_SUMS, **OF_RAW}
    _demand_rejected(tmp_path, signer_of("ed25519"), RAW, tamperings, lambda it: it.openssl)


def test_minisign_and_we_reject(tmp_path: Path) -> None:
    tamperings = {**OVER_SUMS, **OF_MINISIG}
    _demand_rejected(tmp_path, signer_of("ed25519"), MINISIG, tamperings, lambda it: it.minisign)


def test_sigstore_and_we_reject(tmp_path: Path) -> None:
    signer = signer_of("p256")
    files = signed(signer)
    tamperings = {**OVER_SUMS, **OF_SIGSTORE}
    packages = [tamper(files, signer, SIGSTORE) for tamper in tamperings.values()]
    stock = Stock(tmp_path / "trust", signer.public)
    theirs = stock.sigstore([files, *packages], SIGSTORE)
    ours = [accepted(each, SIGSTORE, signer.public) for each in (files, *packages)]
    expected = [True] + [False] * len(tamperings)
    titles = ["untouched", *tamperings]
    assert dict(zip(titles, theirs, strict=True)) == dict(zip(titles, expected, strict=True))
    assert dict(zip(titles, ours, strict=True)) == dict(zip(titles, expected, strict=True))


def _resigned(change: Callable[[Any], object]) -> Callable[[Files, Signer, str], Files]:
    """Change the statement and sign it again: what a signer who means harm could publish."""

    def tampered(files: Files, signer: Signer, name: str) -> Files:
        document = json.loads(files[name])
        envelope = document["dsseEnvelope"]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        payload = bundle.compact_json(statement)
        signature = ecdsa_der(signer, oms.pre_authentication(payload))
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
        return {**files, name: json.dumps(document).encode()}

    return tampered


def _with_root(statement: Any) -> None:
    """Make the root digest fit the resources again."""
    from hashlib import sha256

    digests = b"".join(
        bytes.fromhex(each["digest"]) for each in statement["predicate"]["resources"]
    )
    statement["subject"][0]["digest"]["sha256"] = sha256(digests).hexdigest()


def _resources(change: Callable[[list[Any]], object]) -> Callable[[Files, Signer, str], Files]:
    def changed(statement: Any) -> None:
        change(statement["predicate"]["resources"])
        _with_root(statement)

    return _resigned(changed)


def _envelope(change: Callable[[Any], object]) -> Callable[[Files, Signer, str], Files]:
    return _json(lambda document: change(document["dsseEnvelope"]))


OF_MODEL = {
    "a signature by another key": _other_key,
    "a signature of another package": _other_package,
    "a truncated signature": OVER_SUMS["a truncated signature"],
    "an empty signature": OVER_SUMS["an empty signature"],
    "a bit of the payload": _envelope(lambda it: it.update(payload=_flip_base64(it["payload"], 9))),
    "another payload type": _envelope(lambda it: it.update(payloadType="application/json")),
    "a bit of the signature": _envelope(
        lambda it: it["signatures"][0].update(sig=_flip_base64(it["signatures"][0]["sig"], -1))
    ),
    "no signature": _envelope(lambda it: it.update(signatures=[])),
    "the hint of another key": _json(
        lambda it: it["verificationMaterial"]["publicKey"].update(hint="0" * 64)
    ),
    "another predicate type": _resigned(
        lambda it: it.update(predicateType="https://example.org/custom")
    ),
    "another statement type": _resigned(lambda it: it.update(_type="https://example.org/v1")),
    "two subjects": _resigned(lambda it: it["subject"].append(it["subject"][0])),
    "another root digest": _resigned(lambda it: it["subject"][0]["digest"].update(sha256="0" * 64)),
    "a resource less": _resources(lambda it: it.pop()),
    "a resource more": _resources(
        lambda it: it.append({"name": "z", "algorithm": "sha256", "digest": "0" * 64})
    ),
    "a resource renamed": _resources(lambda it: it[0].update(name="b.bin")),
    "a resource of other bytes": _resources(lambda it: it[0].update(digest="0" * 64)),
    "a resource outside": _resources(lambda it: it[0].update(name="../a.bin")),
    "swapped digests": _resources(
        lambda it: it[0].update(digest=it[1]["digest"]) or it[1].update(digest="0" * 64)
    ),
    "another hash": _resigned(
        lambda it: it["predicate"]["serialization"].update(method="unknown", hash_type="md5")
    ),
}
# What model_signing accepts, and we do not.
STRICTER = {
    "a second signature after the first": _envelope(
        lambda it: it["signatures"].append({"keyid": "", "sig": "AAAA"})
    ),
    "a resource twice": _resources(lambda it: it.insert(0, {**it[0], "digest": "0" * 64})),
    "base64 of another alphabet, or with spaces": _envelope(
        lambda it: it.update(payload=it["payload"] + "\n")
    ),
}


@pytest.mark.parametrize("title", OF_MODEL)
def test_model_signing_and_we_reject(tmp_path: Path, title: str) -> None:
    signer = signer_of("p256")
    tampered = OF_MODEL[title](signed(signer), signer, OMS)
    if title != "another hash":  # it hashes with SHA-256 whatever the statement says
        stock = Stock(tmp_path / "trust", signer.public)
        assert not stock.model_signing(put(tmp_path / "evidence", tampered))
    assert not accepted(tampered, OMS, signer.public)


@pytest.mark.parametrize("name", CONTENT)
def test_model_signing_rejects_each_changed_file(tmp_path: Path, name: str) -> None:
    signer = signer_of("p256")
    files = {**signed(signer), name: b"changed"}
    stock = Stock(tmp_path / "trust", signer.public)
    assert not stock.model_signing(put(tmp_path / "evidence", files))


def test_bytes_after_a_der_signature_are_rejected() -> None:
    """Whether openssl rejects them depends: it reads no more than the longest signature has."""
    files = signed(signer_of("p256"))
    for more in (b"\0", b"\n", b"\0" * 100):
        assert not accepted({**files, DER: files[DER] + more}, DER, signer_of("p256").public)


@pytest.mark.parametrize("title", STRICTER)
def test_we_reject_more_than_model_signing(title: str) -> None:
    signer = signer_of("p256")
    assert not accepted(STRICTER[title](signed(signer), signer, OMS), OMS, signer.public)


def test_a_signature_of_another_set_of_files_is_told_apart() -> None:
    """OMS binds files, not the bytes of the sums: who verifies must compare the two."""
    signer = signer_of("p256")
    files = {**signed(signer), OMS: signed(signer, _other_content())[OMS]}
    assert not accepted(files, OMS, signer.public)
    carrier = carrier_of(OMS)
    assert carrier is not None
    found = read_signature(carrier, OMS, files[OMS])
    assert found.verify(signer.public, files[SUMS])
    assert found.files == digests_of(_other_content())


def test_what_model_signing_may_ignore_is_told() -> None:
    signer = signer_of("p256")
    carrier = carrier_of(OMS)
    assert carrier is not None
    found = read_signature(carrier, OMS, signed(signer)[OMS])
    assert set(found.ignored) == set(all_names())


def test_a_stated_message_digest_must_be_right() -> None:
    """@sigstore/verify does not compare it when it has the file."""
    signer = signer_of("p256")
    tampered = _message(lambda it: it["messageDigest"].update(digest="A" * 43 + "="))(
        signed(signer), signer, SIGSTORE
    )
    assert not accepted(tampered, SIGSTORE, signer.public)


WRITTEN = [
    *(("p256", name) for name in (SIG, DER, SIGSTORE, OMS)),
    *(("ed25519", name) for name in (SIG, RAW, MINISIG)),
]


@pytest.mark.parametrize(("algorithm", "name"), WRITTEN)
def test_no_byte_of_a_signature_can_be_left_out(algorithm: str, name: str) -> None:
    key = signer_of(algorithm).public
    files = signed(signer_of(algorithm))
    assert accepted(files, name, key)
    data = files[name]
    step = max(1, len(data) // 150)
    for at in range(0, len(data), step):
        shorter = data[:at] + data[at + 1 :]
        if accepted({**files, name: shorter}, name, key):
            # Untrusted comments, the hint in a bundle and a final newline bind nothing.
            assert _binds_nothing(name, data, at), (name, at)


def _binds_nothing(name: str, data: bytes, at: int) -> bool:
    if name == MINISIG:
        return at < data.index(b"\n")
    if name in (SIGSTORE, OMS):
        return b'"hint"' in data[:at] or data[at : at + 1] == b"\n"
    return at == len(data) - 1 and name == SIG
