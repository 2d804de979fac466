"""OpenSSH's allowed_signers file: who may sign, with which key, what for and when.

The grammar is ssh-keygen(1), ALLOWED SIGNERS, as OpenSSH 9.2 reads it, but nothing is passed
over: ssh-keygen skips a broken line that names another principal, and reads 30 February as
2 March; here such a file is refused as a whole.
"""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass

from ...errors import Unusable
from ...records.names import printable
from ..sign.key import PublicKey
from ..sign.public_key import from_openssh
from .pattern_list import matches, too_long

LIMIT = 4 << 20

_BLANK = " \t"
_PRINCIPALS = re.compile(r'(?:"([^"]+)"|([^ \t"]+))[ \t]+')
_KEY_TYPE = re.compile(r"(?:ssh|ecdsa|sk|rsa|dsa)-")
# A backslash escapes a quote and nothing else.
_OPTION = re.compile(r'([A-Za-z-]+)(?:="((?:\\"|[^"\\]|\\(?!"))*)")?(?=[, \t]|$)')
_TIME = re.compile(r"([0-9]{8}|[0-9]{12}|[0-9]{14})(Z|UTC)?", re.IGNORECASE)
_CERTIFICATES = "cert-authority"
_OPTIONS = ("namespaces", "valid-after", "valid-before")


@dataclass(frozen=True)
class AllowedSigner:
    """One line. Times are whole seconds since 1970, both of them still inside the window."""

    line: int
    principals: str
    key: PublicKey
    namespaces: str | None = None
    valid_after: int | None = None
    valid_before: int | None = None

    def is_named(self, principal: str) -> bool:
        """Tell whether the key is this principal's."""
        return matches(principal, self.principals)

    def may_sign_in(self, namespace: str) -> bool:
        """Tell whether signatures of this namespace are accepted."""
        return self.namespaces is None or matches(namespace, self.namespaces)

    def is_valid_at(self, seconds: int) -> bool:
        """Tell whether a moment lies in the window."""
        after = self.valid_after is None or self.valid_after <= seconds
        return after and (self.valid_before is None or seconds <= self.valid_before)


def read_allowed_signers(data: bytes, label: str) -> tuple[AllowedSigner, ...]:
    """Read a whole file. Raises Unusable that names the line, and for a file without a signer."""
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Unusable(
            f"{label} begins with a byte order mark, which ssh-keygen takes for a name.",
            remedy="Save it as UTF-8 without a byte order mark.",
        )
    signers: list[AllowedSigner] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.decode("utf-8", "surrogateescape").strip(" \t\r")
        if text and not text.startswith("#"):
            signers.append(_read_line(text, number, f"{label}, line {number}"))
    if not signers:
        raise Unusable(
            f"{label} names no signer.", remedy="Add a line: PRINCIPAL KEYTYPE BASE64-KEY."
        )
    return tuple(signers)


def _read_line(text: str, number: int, label: str) -> AllowedSigner:
    if any((char < " " and char != "\t") or char == "\x7f" for char in text):
        raise _refused(label, "holds a control character")
    found = _PRINCIPALS.match(text)
    if found is None:
        raise _refused(label, "is not `PRINCIPALS [OPTIONS] KEYTYPE BASE64-KEY`")
    principals: str = found[1] or found[2]
    if too_long(principals):
        raise _refused(label, "holds a pattern that is too long for ssh-keygen")
    rest = text[found.end() :]
    options: dict[str, str] = {}
    if not _KEY_TYPE.match(rest):
        options, rest = _read_options(rest, label)
    words = rest.split()[:2]
    if len(words) < 2 or not rest.replace("\t", " ").startswith(words[0] + " "):
        raise _refused(label, "holds no key")
    key = from_openssh(" ".join(words), f"The key in {label}")
    after = _read_time(options, "valid-after", label)
    before = _read_time(options, "valid-before", label)
    if after is not None and before is not None and before <= after:
        raise _refused(label, "ends its validity before it begins")
    return AllowedSigner(number, principals, key, options.get("namespaces"), after, before)


def _read_options(text: str, label: str) -> tuple[dict[str, str], str]:
    options: dict[str, str] = {}
    at = 0
    while True:
        found = _OPTION.match(text, at)
        name = found[1].lower() if found else ""
        if name == _CERTIFICATES:
            raise Unusable(
                f"{label} trusts an authority for certificates, which are not supported.",
                remedy="Take the line out, and add the signers' own keys.",
            )
        if found is None or name not in _OPTIONS or found[2] is None:
            what = re.split(r"[=, \t]", text[at:], maxsplit=1)[0]
            raise _refused(label, f"holds an option that is not understood: {printable(what[:64])}")
        if name in options:
            raise _refused(label, f"gives {name} twice")
        options[name] = found[2].replace('\\"', '"')
        if too_long(options[name]):
            raise _refused(label, "holds a pattern that is too long for ssh-keygen")
        at = found.end()
        if text[at : at + 1] != ",":
            return options, text[at:].lstrip(_BLANK)
        at += 1


def _read_time(options: dict[str, str], name: str, label: str) -> int | None:
    if name not in options:
        return None
    seconds = parse_time(options[name])
    if seconds is None or seconds <= 0:
        raise _refused(label, f"holds a {name} that is no time: {printable(options[name][:64])}")
    return seconds


def parse_time(text: str) -> int | None:
    """Read `YYYYMMDD[HHMM[SS]][Z]` as seconds since 1970, or give None for anything else.

    Without Z it is local time, and standard time even in summer: so does ssh-keygen 9.2.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    clock = found[1][8:].ljust(6, "0")
    hour, minute, second = int(clock[:2]), int(clock[2:4]), int(clock[4:])
    if not (1 <= month <= 12 and year >= 1 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    moment = (year, month, day, hour, minute, second, 0, 0, 0)
    if found[2]:
        return calendar.timegm(moment)
    try:
        return int(time.mktime(moment))
    except (OverflowError, ValueError):
        return None


def _refused(label: str, fault: str) -> Unusable:
    return Unusable(
        f"{label} {fault}.", remedy="Correct the line; ssh-keygen(1) has them, ALLOWED SIGNERS."
    )
