"""The name under which others trust a key, and the line in which they write that down."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from .key import PublicKey
from .public_key import LINE_LIMIT, to_openssh
from .sshsig import AUDIT_NAMESPACE, CUSTODY_NAMESPACE, SUMS_NAMESPACE

_LONGEST = 255
# What allowed_signers gives a meaning (lists, quotes, patterns, comments), and what shells do:
# the name stands in the commands of VERIFY.md.
_SPECIAL = set(",\"'*?!#\\$`;&|<>()[]{}%^~")


def check_identity(name: str) -> str:
    """Give the name back when it can stand in allowed_signers as it is. Raises Unusable."""
    if not name:
        fault = "is empty"
    elif len(name.encode("utf-8", "surrogateescape")) > _LONGEST:
        fault = f"is longer than {_LONGEST} bytes"
    elif name.startswith("-"):
        fault = "begins with a hyphen, as an option does"
    elif any(map(_is_refused, name)):
        fault = "holds a space, or a character that allowed_signers files or shells give a meaning"
    else:
        return name
    raise Unusable(
        f"The identity {printable(name[:100])} {fault}.", remedy="Use one like evidence@lab."
    )


def _is_refused(character: str) -> bool:
    category = unicodedata.category(character)
    return character in _SPECIAL or category[0] in "CZ"


def allowed_signers_line(identity: str, key: PublicKey) -> str:
    """Give the line of an allowed_signers file, with a newline, for all that is signed here."""
    namespaces = ",".join((SUMS_NAMESPACE, CUSTODY_NAMESPACE, AUDIT_NAMESPACE))
    return f'{check_identity(identity)} namespaces="{namespaces}" {to_openssh(key)}\n'


def identity_beside(key_file: Path, key: PublicKey) -> str | None:
    """Find the identity that `keygen` wrote down beside a private key, if it did.

    A comment in a .pub file is no identity: ssh-keygen puts names of users and machines there.
    """
    path = key_file.with_name(key_file.name + ".allowed_signers")
    try:
        with open(path, "rb") as file:
            line = file.read(LINE_LIMIT).decode("utf-8")
        identity = line.partition(" ")[0]
        return identity if allowed_signers_line(identity, key) == line else None
    except (OSError, UnicodeDecodeError, Unusable):
        return None
