"""RFC 3161 timestamps of a checksum file: asked for, and held against known authorities.

A timestamp says that these sums existed at a moment. `openssl ts -verify -data SHA256SUMS
-in SHA256SUMS.tsr -CAfile CA.pem` reads the same file. The work is done by rfc3161-client, which
is installed with `reefkit[timestamp]`.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DoesNotHold, Untrusted, Unusable
from ...records.names import printable
from .timestamp_sets import in_order

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from cryptography.x509 import Certificate
    from rfc3161_client import TimeStampRequest, TimeStampResponse

LIMIT = 1 << 20
_SECONDS = 30.0
_QUERY_TYPE = "application/timestamp-query"
_REPLY_TYPE = "application/timestamp-reply"
_HASHES = {
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_GRANTED = 0
_SAID_LIMIT = 200


def query(sums: bytes) -> TimeStampRequest:
    """Make the request: SHA-256, a nonce, and the wish to get the certificates. Raises Unusable."""
    _require_library()
    from rfc3161_client import TimestampRequestBuilder
    from rfc3161_client.base import HashAlgorithm

    if not sums:
        raise Unusable("An empty file is not timestamped.", remedy="Sign a folder with files.")
    builder = TimestampRequestBuilder().data(sums).hash_algorithm(HashAlgorithm.SHA256)
    return builder.nonce(nonce=True).cert_request(cert_request=True).build()


def fetch(url: str, sums: bytes, *, seconds: float = _SECONDS) -> bytes:
    """Ask an authority for a timestamp of the sums, and give its response as it came.

    `http:` will do: the response is signed, and nothing but a digest is sent. It answers this
    request, for these sums; whether the authority is to be trusted is for the verifier to say.
    Redirections are not followed. Raises Unusable.
    """
    request = query(sums)
    label = f"The timestamp authority {printable(url[:_SAID_LIMIT])}"
    data = _post(_checked_url(url), request.as_bytes(), label, seconds)
    response = _decode(data, f"The answer of {printable(url[:_SAID_LIMIT])}")
    if response.status != _GRANTED:
        said = printable("; ".join(response.status_string)[:_SAID_LIMIT]) or "without a reason"
        raise Unusable(
            f"{label} refused with status {response.status}: {said}.",
            remedy="Ask another authority, or sign without --timestamp.",
        )
    fault = None
    if not _is_of(response, sums):
        fault = "is for something else"
    elif response.tst_info.nonce != request.nonce:
        fault = "answers another request"
    elif not response.signed_data.certificates:
        fault = "lacks the certificate that was asked for"
    if fault is not None:
        raise Unusable(f"{label} sent a timestamp that {fault}.", remedy="Ask another authority.")
    return data


def verify_timestamp(tsr: bytes, sums: bytes, authorities: Sequence[Path]) -> datetime:
    """Give the time (UTC) at which one of the authorities saw these sums.

    `authorities` are files with the CA certificates of the verifier's policy, in PEM; intermediate
    ones may stand beside their root. Certificates must have been valid at the time stated, not
    now. Raises Unusable for a malformed response or authority; DoesNotHold for a timestamp of
    something else or with a wrong signature; Untrusted when no authority named here made it.
    """
    _require_library()
    from rfc3161_client import VerificationError, VerifierBuilder

    known = [certificate for path in authorities for certificate in _certificates(path)]
    response = _decode(tsr, "The timestamp")
    if response.status != _GRANTED:
        raise Unusable("The timestamp is a refusal.", remedy="Timestamp the evidence again.")
    if not _is_of(response, sums):
        raise DoesNotHold("The timestamp is not one of these sums.")
    if not known:
        raise Untrusted(
            "The timestamp counts for nothing: no timestamp authority is known.",
            remedy="Name its CA in the policy, as timestamp_authorities.",
        )
    try:
        VerifierBuilder(roots=list(dict.fromkeys(known))).build().verify_message(response, sums)
    except VerificationError as error:
        raise _refused(str(error)) from None
    except ValueError:
        raise _malformed("The timestamp") from None
    return response.tst_info.gen_time.astimezone(timezone.utc)


def _refused(said: str) -> DoesNotHold | Untrusted:
    """Tell an authority that is not known from a signature that is wrong, by the library's words.

    What is not recognised counts as wrong.
    """
    if "EKU" in said or "certificate purpose" in said:
        return Untrusted(
            "The timestamp is signed with a certificate that is not one for timestamps.",
            remedy="Name the CA of a timestamp authority in the policy.",
        )
    if "expired" in said or "not yet valid" in said:
        return Untrusted("The timestamp's certificate was not valid at the time that it states.")
    if "certificate verify error" in said or "signer certificate not found" in said:
        return Untrusted(
            "The timestamp is of an authority that the policy does not name.",
            remedy="Name its CA in the policy, as timestamp_authorities, if you trust it.",
        )
    return DoesNotHold("The signature of the timestamp is wrong.")


def _require_library() -> None:
    try:
        importlib.import_module("rfc3161_client")
    except ImportError:
        raise Unusable(
            "Timestamps need rfc3161-client, which is not installed.",
            remedy="pip install 'reefkit[timestamp]'",
        ) from None


def _decode(data: bytes, label: str) -> TimeStampResponse:
    from rfc3161_client import decode_timestamp_response

    if len(data) > LIMIT:
        raise _malformed(label)
    try:
        response = decode_timestamp_response(in_order(data))
        if response.status == _GRANTED:
            _ = response.tst_info.gen_time, response.signed_data.certificates
    except (ValueError, OverflowError):
        raise _malformed(label) from None
    return response


def _malformed(label: str) -> Unusable:
    return Unusable(
        f"{label} is not an RFC 3161 response.", remedy="Get the timestamp from its source again."
    )


def _is_of(response: TimeStampResponse, sums: bytes) -> bool:
    imprint = response.tst_info.message_imprint
    name = _HASHES.get(imprint.hash_algorithm.dotted_string)
    return name is not None and imprint.message == hashlib.new(name, sums).digest()


def _certificates(path: Path) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    label = printable(str(path))
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT + 1)
        if len(data) > LIMIT:
            raise ValueError
        return load_pem_x509_certificates(data)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    except ValueError:
        fault = "holds no certificates in PEM"
    raise Unusable(
        f"The timestamp authority {label} {fault}.", remedy="Name the PEM file of its CA."
    )


def _checked_url(url: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise Unusable(
            f"{printable(url[:_SAID_LIMIT])} is not the address of a timestamp authority.",
            remedy="Give one like http://tsa.example.org/tsr, without a name or password.",
        )
    return url


def _post(url: str, body: bytes, label: str, seconds: float) -> bytes:
    from http.client import HTTPException
    from urllib import request
    from urllib.error import HTTPError

    opener = request.OpenerDirector()  # the default one also reads file:, ftp: and data:
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    headers = {"Content-Type": _QUERY_TYPE, "Accept": _REPLY_TYPE, "User-Agent": "reefkit"}
    until = time.monotonic() + seconds
    try:
        with opener.open(request.Request(url, body, headers), timeout=seconds) as response:
            kind: str = response.headers.get_content_type()
            data = _read(response, until)
    except HTTPError as error:
        with error:
            fault = f"answered with status {error.code}"
    except TimeoutError:
        fault = f"did not answer within {seconds:,.0f} seconds"
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            fault = f"did not answer within {seconds:,.0f} seconds"
        else:
            fault = f"cannot be reached: {printable(str(reason)[:_SAID_LIMIT])}"
    else:
        if data is None:
            fault = f"sent more than {LIMIT:,} bytes"
        elif kind != _REPLY_TYPE:
            fault = f"answered with {printable(kind[:64])}, not with a timestamp"
        else:
            return data
    raise Unusable(
        f"{label} {fault}.", remedy="Ask another authority, or sign without --timestamp."
    )


def _read(response: HTTPResponse, until: float) -> bytes | None:
    """Read a body of at most LIMIT bytes, or give None. Raises TimeoutError."""
    data = bytearray()
    while True:
        if time.monotonic() > until:
            raise TimeoutError
        part = response.read1(65536)
        if not part:
            return bytes(data)
        data += part
        if len(data) > LIMIT:
            return None
