"""A signature that was read: every field checked, not yet held against what it signs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..finding import FindingKind
from .key import PublicKey


@dataclass(frozen=True)
class FoundSignature:
    """One signature file.

    `scheme` is `sshsig`, `openssl`, `sigstore`, `oms`, `minisign` or `signify`. `public_key` is
    None where the form carries none: any key may be tried then. `files` are the names and SHA-256
    that the signature itself binds (OMS); None: it signs the bytes of the sums. `ignored` are the
    names that an OMS signature lets pass unread. With a `fault` it is well-formed, but says
    something else than a signature must say; what it binds is not to be relied on. `unchecked` are
    sentences on what stands beside the signature in its file, and is verified by nobody.
    """

    scheme: str
    path: str
    check: Callable[[PublicKey, bytes, bool], bool] = field(repr=False)
    public_key: PublicKey | None = None
    namespace: str | None = None
    files: Mapping[str, str] | None = None
    ignored: tuple[str, ...] = ()
    fault: tuple[FindingKind, str] | None = None
    touchless: bool = False
    unchecked: tuple[str, ...] = ()

    def verify(self, key: PublicKey, sums: bytes, *, allow_touchless: bool = False) -> bool:
        """Tell whether the key made it, over these sums or over what it binds itself.

        A security key's signature counts only if somebody touched it, unless `allow_touchless`.
        """
        if self.public_key is not None and key != self.public_key:
            return False
        return self.check(key, sums, allow_touchless)
