"""The digests that checksum lists hold: what tools call them, and what they prove."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

# Collisions are made to order: such a digest says that a copy is whole, not that it is the file.
WEAK = frozenset({"md5", "sha1"})

# Without a tag the length decides, as it does for the tools whose lists carry none.
BY_LENGTH: Mapping[int, str] = MappingProxyType(
    {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
)
HEX_LENGTH: Mapping[str, int] = MappingProxyType(
    {
        **{name: length for length, name in BY_LENGTH.items()},
        "sha512_256": 64,
        "sha512_224": 56,
        "sha3_224": 56,
        "sha3_256": 64,
        "sha3_384": 96,
        "sha3_512": 128,
        "blake2b": 128,
        "blake2s": 64,
    }
)
# coreutils, the BSDs, OpenSSL 1 and 3; spelt without case, `-`, `_`, `/` and spaces.
_TAGS: Mapping[str, str] = MappingProxyType(
    {
        **{name.replace("_", ""): name for name in HEX_LENGTH},
        "sha2224": "sha224",
        "sha2256": "sha256",
        "sha2384": "sha384",
        "sha2512": "sha512",
        "sha2512256": "sha512_256",
        "sha2512224": "sha512_224",
        "sha512t256": "sha512_256",
        "sha512t224": "sha512_224",
        "blake2b512": "blake2b",
        "blake2s256": "blake2s",
    }
)
_PREFERRED = ("sha256", "sha512", "sha512_256", "blake2b", "sha3_512", "sha3_256", "sha384")
_LISTS_OF_BLAKE2B = re.compile(r"(?i)(?:^|[./_ -])(?:b2sums?|blake2b?(?:sums?)?|b2)(?:[._-]|$)")


def by_tag(tag: str) -> str | None:
    """Give hashlib's name for a tag like `SHA256`, `SHA2-256` or `BLAKE2b`, or None."""
    return _TAGS.get(re.sub(r"[-_/ ]", "", tag).lower())


def by_length(digits: int, label: str) -> str | None:
    """Give the algorithm that a list without tags means by so many hexadecimal digits, or None.

    SHA-512 and BLAKE2b are equally long: a list whose name says so is taken for b2sum's.
    """
    if digits == 128 and _LISTS_OF_BLAKE2B.search(label):
        return "blake2b"
    return BY_LENGTH.get(digits)


def rank(algorithm: str) -> int:
    """Order algorithms, lowest first, by which to check when one file has several digests."""
    if algorithm in WEAK:
        return len(_PREFERRED) + 1
    return _PREFERRED.index(algorithm) if algorithm in _PREFERRED else len(_PREFERRED)
