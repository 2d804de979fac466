"""Timestamps: asked for at an authority of openssl's, and held against what the policy names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timestamp_authority import REPLY_TYPE, Authority, Behaviour, make_authority, served

from reefkit.errors import DoesNotHold, ReefError, Untrusted, Unusable
from reefkit.provenance.sign.timestamp import fetch, query, verify_timestamp
from reefkit.provenance.sign.timestamp_sets import in_order

SUMS = b"0" * 64 + b"  a\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def response(authority: Authority) -> bytes:
    return authority.answer(query(SUMS).as_bytes())


@pytest.fixture
def behaviour(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Behaviour:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return Behaviour(authority.answer)


@pytest.fixture
def url(behaviour: Behaviour) -> Iterator[str]:
    with served(behaviour) as address:
        yield address


def assert_recent(when: datetime) -> None:
    assert abs(datetime.now(timezone.utc) - when) < timedelta(minutes=5)


def test_a_fetched_timestamp_verifies_here_and_with_openssl(
    authority: Authority, behaviour: Behaviour, url: str, tmp_path: Path
) -> None:
    data = fetch(url, SUMS)
    ((path, headers, sent),) = behaviour.asked
    assert (path, headers["Content-Type"]) == ("/tsr", "application/timestamp-query")
    assert SUMS not in sent and len(sent) < 100
    (tmp_path / "SHA256SUMS").write_bytes(SUMS)
    (tmp_path / "SHA256SUMS.tsr").write_bytes(data)
    files = ("-data", str(tmp_path / "SHA256SUMS"), "-in", str(tmp_path / "SHA256SUMS.tsr"))
    authority.openssl("ts", "-verify", *files, "-CAfile", "ca.pem")
    when = verify_timestamp(data, SUMS, [authority.certificate])
    assert when.tzinfo is timezone.utc
    assert_recent(when)


def test_a_timestamp_that_openssl_asked_for_verifies(authority: Authority) -> None:
    (authority.folder / "sums").write_bytes(SUMS)
    for digest in ("-sha256", "-sha512"):
        authority.openssl("ts", "-query", "-data", "sums", digest, "-cert", "-out", "own.tsq")
        reply = authority.answer((authority.folder / "own.tsq").read_bytes())
        assert_recent(verify_timestamp(reply, SUMS, [authority.certificate]))


def test_certificates_in_any_order_are_read(authority: Authority) -> None:
    for number in range(4):  # the order depends on the certificates' bytes
        authority.issue(f"order{number}", "tsa", serial=100 + number)
        reply = authority.answer(query(SUMS).as_bytes(), f"order{number}", "certs = ca.pem")
        assert sorted(in_order(reply)) == sorted(reply)
        assert_recent(verify_timestamp(reply, SUMS, [authority.certificate]))


def test_an_intermediate_certificate_leads_to_the_root(authority: Authority) -> None:
    authority.issue("between", "ca", serial=200)
    folder = authority.folder
    lower = make_authority(folder / "lower")
    for kind in ("pem", "key"):
        (lower.folder / f"ca.{kind}").write_bytes((folder / f"between.{kind}").read_bytes())
    lower.issue("tsa", "tsa", serial=201)
    with_chain = lower.answer(query(SUMS).as_bytes(), "tsa", "certs = ca.pem")
    assert_recent(verify_timestamp(with_chain, SUMS, [authority.certificate]))
    alone = lower.answer(query(SUMS).as_bytes())
    with pytest.raises(Untrusted):
        verify_timestamp(alone, SUMS, [authority.certificate])
    both = folder / "both.pem"
    both.write_bytes(authority.certificate.read_bytes() + lower.certificate.read_bytes())
    assert_recent(verify_timestamp(alone, SUMS, [both]))


def test_an_authority_that_is_not_named_is_not_trusted(
    authority: Authority, stranger: Authority, response: bytes
) -> None:
    with pytest.raises(Untrusted, match="does not name") as caught:
        verify_timestamp(response, SUMS, [stranger.certificate])
    assert caught.value.exit_code == 3
    with pytest.raises(Untrusted, match="no timestamp authority is known"):
        verify_timestamp(response, SUMS, [])
    assert_recent(verify_timestamp(response, SUMS, [stranger.certificate, authority.certificate]))


def test_a_timestamp_of_something_else_does_not_hold(authority: Authority, response: bytes) -> None:
    with pytest.raises(DoesNotHold, match="not one of these sums"):
        verify_timestamp(response, SUMS + b"\n", [authority.certificate])


def test_a_wrong_signature_does_not_hold(authority: Authority, response: bytes) -> None:
    broken = bytearray(response)
    broken[-1] ^= 1
    with pytest.raises(DoesNotHold, match="signature of the timestamp is wrong"):
        verify_timestamp(bytes(broken), SUMS, [authority.certificate])


def test_another_time_than_the_signed_one_does_not_hold(
    authority: Authority, response: bytes
) -> None:
    year = str(datetime.now(timezone.utc).year).encode()
    at = response.index(b"\x18\x0f" + year)
    broken = response[: at + 5] + bytes([response[at + 5] ^ 1]) + response[at + 6 :]
    with pytest.raises((DoesNotHold, Untrusted)):
        verify_timestamp(broken, SUMS, [authority.certificate])


def test_a_certificate_that_had_expired_is_not_trusted(authority: Authority) -> None:
    authority.issue("expired", "tsa", serial=300, days="-1")
    old = authority.answer(query(SUMS).as_bytes(), "expired")
    with pytest.raises(Untrusted, match="not valid at the time"):
        verify_timestamp(old, SUMS, [authority.certificate])


def test_a_certificate_that_expired_later_still_counts(
    authority: Authority, response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is the one in the timestamp: nothing here asks for the current one."""
    import time

    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert_recent(verify_timestamp(response, SUMS, [authority.certificate]))


def lend_purpose(authority: Authority, rogue: Authority) -> bytes:
    """Sign with a key whose certificate is for mail, and add a forged one for timestamps."""
    authority.issue("mail", "mail", serial=400)
    (rogue.folder / "mail.key").write_bytes((authority.folder / "mail.key").read_bytes())
    rogue.issue("mail", "tsa", serial=400)
    token = rogue.answer(query(SUMS).as_bytes(), "mail", f"certs = {authority.folder}/mail.pem")
    return in_order(token)


def test_a_forged_certificate_lends_no_purpose(authority: Authority, stranger: Authority) -> None:
    token = lend_purpose(authority, stranger)
    with pytest.raises(Untrusted):
        verify_timestamp(token, SUMS, [authority.certificate])


def test_a_certificate_for_something_else_is_not_trusted(
    authority: Authority, stranger: Authority
) -> None:
    token = lend_purpose(authority, stranger)
    forged = authority.openssl("x509", "-in", f"{stranger.folder}/mail.pem", "-outform", "DER")
    mail = authority.openssl("x509", "-in", "mail.pem", "-outform", "DER")
    assert token.count(forged) == token.count(mail) == 1
    only_mail = _shortened(token, forged)
    with pytest.raises(Untrusted, match="not one for timestamps"):
        verify_timestamp(only_mail, SUMS, [authority.certificate])


def _shortened(token: bytes, certificate: bytes) -> bytes:
    """Take a certificate out, and correct the four-byte headers around it."""
    at = token.index(certificate)
    data = bytearray(token[:at] + token[at + len(certificate) :])
    for position in range(at):
        length = int.from_bytes(token[position + 2 : position + 4], "big")
        inside = position + 4 <= at and at + len(certificate) <= position + 4 + length
        if token[position + 1] == 0x82 and token[position] in (0x30, 0xA0) and inside:
            data[position + 2 : position + 4] = (length - len(certificate)).to_bytes(2, "big")
    return bytes(data)


def test_a_refusal_is_no_timestamp(authority: Authority) -> None:
    with pytest.raises(Unusable, match="a refusal"):
        verify_timestamp(authority.answer(b"xx"), SUMS, [authority.certificate])


@pytest.mark.parametrize("content", [None, b"", b"text", b"\0" * (2 << 20)])
def test_an_authority_that_cannot_be_read_is_refused(
    response: bytes, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Unusable, match=r"ca\.pem (cannot be read|holds no)"):
        verify_timestamp(response, SUMS, [path])


def body(data: bytes) -> Callable[[bytes], bytes]:
    return lambda _query: data


ANSWERS = {
    "not an RFC 3161 response": b"garbage",
    "The answer of .* is not": b"\x30\x80" * 5000,
    "is not an RFC": b"",
    "sent more than 1,048,576 bytes": b"\0" * ((1 << 20) + 1),
}


@pytest.mark.parametrize("fault", ANSWERS)
def test_an_answer_that_is_none_is_refused(behaviour: Behaviour, url: str, fault: str) -> None:
    behaviour.reply = body(ANSWERS[fault])
    with pytest.raises(Unusable, match=fault):
        fetch(url, SUMS)


QUERIES = {
    "refused with status 2: Bad request": b"xx",
    "is for something else": query(b"other").as_bytes(),
    "answers another request": query(SUMS).as_bytes(),
}


@pytest.mark.parametrize("fault", QUERIES)
def test_the_answer_to_another_request_is_refused(
    authority: Authority, behaviour: Behaviour, url: str, fault: str
) -> None:
    behaviour.reply = body(authority.answer(QUERIES[fault]))
    with pytest.raises(Unusable, match=fault):
        fetch(url, SUMS)


@pytest.mark.parametrize("status", [204, 302, 307, 404, 500])
def test_another_status_is_refused_and_no_redirection_followed(
    behaviour: Behaviour, url: str, status: int
) -> None:
    behaviour.status = status
    behaviour.headers = {"Content-Type": REPLY_TYPE, "Location": "file:///etc/passwd"}
    if status == 307:
        behaviour.headers["Location"] = url
    behaviour.reply = body(b"")
    with pytest.raises(Unusable):
        fetch(url, SUMS)
    assert len(behaviour.asked) == 1


def test_a_page_is_no_timestamp(behaviour: Behaviour, url: str) -> None:
    behaviour.headers = {"Content-Type": "text/html; charset=utf-8"}
    with pytest.raises(Unusable, match="answered with text/html, not with a timestamp"):
        fetch(url, SUMS)


@pytest.mark.parametrize("kind", ["pause", "drip"])
def test_a_server_that_hangs_is_given_up(behaviour: Behaviour, url: str, kind: str) -> None:
    setattr(behaviour, kind, 0.7 if kind == "pause" else 0.02)
    behaviour.reply = body(b"\0" * 500)
    with pytest.raises(Unusable, match="did not answer within"):
        fetch(url, SUMS, seconds=0.4)


def test_a_server_that_is_not_there_is_said(url: str) -> None:
    with pytest.raises(Unusable, match="cannot be reached"):
        fetch("http://127.0.0.1:1/", SUMS)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "tsa.example.org",
        "file:///etc/passwd",
        "ftp://example.org/",
        "data:,x",
        "http://",
        "http:///tsr",
        "http://name:password@example.org/",
        "http://[::1/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://ex\u0430mple.org/",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(Unusable, match="is not the address of a timestamp authority"):
        fetch(address, SUMS)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(Unusable, match="cannot be reached"):
        fetch("http://127.0.0.1:99999999/", SUMS)


def test_an_empty_file_is_not_timestamped() -> None:
    with pytest.raises(Unusable, match="empty"):
        query(b"")


def test_without_the_library_the_remedy_says_what_to_install(
    authority: Authority, response: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    for call in (
        lambda: fetch("http://127.0.0.1:1/", SUMS),
        lambda: verify_timestamp(response, SUMS, [authority.certificate]),
    ):
        with pytest.raises(Unusable) as caught:
            call()
        assert caught.value.remedy == "pip install 'reefkit[timestamp]'"


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_changed_response_is_refused_or_says_the_same(
    authority: Authority, response: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(response) - 1))
    length = data.draw(st.integers(0, 6))
    put = data.draw(st.binary(max_size=6))
    changed = response[:at] + put + response[at + length :]
    authorities = [authority.certificate]
    try:
        when = verify_timestamp(changed, SUMS, authorities)
    except ReefError:
        return
    assert when == verify_timestamp(response, SUMS, authorities)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_keep_their_shape(data: bytes) -> None:
    assert sorted(in_order(data)) == sorted(data)
    with pytest.raises(Unusable):
        verify_timestamp(data, SUMS, [])
