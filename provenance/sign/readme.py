"""VERIFY.md: what a package says of how it is checked, with tools that its reader has.

It follows from the key, the identity and what is in the package: no clock, no version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .carriers import SUMS, Form, carrier_name
from .key import PublicKey
from .public_key import fingerprint
from .sshsig import CUSTODY_NAMESPACE, SUMS_NAMESPACE

_INTRODUCTION = """\
# How to verify this

{sums} lists every file here with its SHA-256, but for itself and its signatures. The signatures
are over that list. Run the commands in this folder: where this came as a zip, unpack it into an
empty folder first. A check has passed only if its command ends with exit code 0.

**The keys in this folder prove nothing.** Whoever changes the files can also change allowed_signers
and key.pub.pem. Take the signer's key from somewhere else, where you know that it is theirs, and
compare it:

    identity     {identity}
    fingerprint  {fingerprint}

Below, TRUSTED_SIGNERS is your own file with the signer's line in it, as in:

    {identity} namespaces="{namespace},{custody}" TYPE BASE64
"""
_ALL = """\
## Everything at once, on any system

    reef-archive verify . --signers TRUSTED_SIGNERS

This also finds files that are here and not in the list, and says what is wrong, not only that
something is.
"""
_FILES = """\
## The files

Linux:

    sha256sum --strict -c {sums}

macOS:

    shasum -a 256 -c {sums}

Windows, in PowerShell; it prints what differs, and nothing when all is well:

    Get-Content -Encoding UTF8 {sums} | ForEach-Object {{ $hash, $name = $_ -split '  ', 2
      if ((Get-FileHash -Algorithm SHA256 -LiteralPath $name).Hash -ne $hash) {{ "BAD $name" }} }}

None of these looks for files that the list lacks.
"""
_SSH = """\
## The signature, with OpenSSH 8.2 or newer

Linux and macOS:

    ssh-keygen -Y verify -f TRUSTED_SIGNERS -I {identity} -n {namespace} -s {file} < {sums}

Windows: PowerShell has no `<`, and its pipes change bytes. Let cmd do it:

    cmd /c "ssh-keygen -Y verify -f TRUSTED_SIGNERS -I {identity} -n {namespace} -s {file} < {sums}"
"""
_PEM = """\
## The signature, with the key in PEM

TRUSTED.pem is your own copy of the signer's public key, as `reef-archive keygen` wrote it.
"""
_PEM_FROM_SSH = """\
From their OpenSSH key you get it with:

    ssh-keygen -e -m PKCS8 -f TRUSTED.pub > TRUSTED.pem
"""
_DER = """\
OpenSSL or LibreSSL, on any system:

    openssl dgst -sha256 -verify TRUSTED.pem -signature {file} {sums}
"""
_ED25519 = """\
OpenSSL 3 (LibreSSL, which macOS calls openssl, cannot):

    openssl pkeyutl -verify -pubin -inkey TRUSTED.pem -rawin -in {sums} -sigfile {file}
"""
_SIGSTORE = """\
cosign, without any network:

    cosign verify-blob --key TRUSTED.pem --bundle {file} --insecure-ignore-tlog {sums}
"""
_OMS = """\
model_signing (`pip install model-signing pyOpenSSL`), which also finds files that the list lacks:

    model_signing verify key . --signature {file} --public_key TRUSTED.pem --no-ignore-git-paths
"""
_MINISIGN = """\
## The signature, with minisign

TRUSTED.minisign.pub is your own copy of the signer's key in minisign's form:

    minisign -V -p TRUSTED.minisign.pub -m {sums} -x {file}
"""
_CUSTODY = """\
## What was done to the files

custody.jsonl says it, stage by stage; each line holds the hash of the one before, and the signed
head holds the number of lines and the hash of the last. `reef-archive verify` checks the chain.
The signature of the head:

    ssh-keygen -Y verify -f TRUSTED_SIGNERS -I {identity} -n {custody} -s custody.head.json.sig \\
      < custody.head.json
"""
_FURTHER = """\
## Further signers

A second signer's files are called {second} and so on, a third's {third}. Check
each in the same way, with that signer's identity and key.
"""
_TEXTS = {
    Form.SSHSIG: _SSH,
    Form.DER: _DER,
    Form.ED25519: _ED25519,
    Form.SIGSTORE: _SIGSTORE,
    Form.OMS: _OMS,
    Form.MINISIGN: _MINISIGN,
}
_WITH_PEM = (Form.DER, Form.ED25519, Form.SIGSTORE, Form.OMS)


def verify_readme(
    key: PublicKey, identity: str, forms: Collection[Form], *, custody: bool = False
) -> str:
    """Write VERIFY.md for a package signed by that key in these forms (`forms_of` of its signer).

    `custody`: there is a custody.jsonl with a signed head.
    """
    values = {
        "sums": SUMS,
        "identity": identity,
        "fingerprint": fingerprint(key),
        "namespace": SUMS_NAMESPACE,
        "custody": CUSTODY_NAMESPACE,
        "second": carrier_name(Form.SSHSIG, 2),
        "third": carrier_name(Form.SSHSIG, 3),
    }
    return "\n".join(
        text.format(**values, file=carrier_name(form, 1))
        for form, text in _sections(forms, custody=custody)
    )


def _sections(forms: Collection[Form], *, custody: bool) -> Iterator[tuple[Form, str]]:
    for text in (_INTRODUCTION, _ALL, _FILES, _SSH):
        yield Form.SSHSIG, text
    with_pem = [form for form in _WITH_PEM if form in forms]
    if with_pem:
        yield Form.SSHSIG, _PEM
    if Form.DER in forms:  # ssh-keygen 9.2 converts no Ed25519 key
        yield Form.SSHSIG, _PEM_FROM_SSH
    for form in (*with_pem, *(form for form in (Form.MINISIGN,) if form in forms)):
        yield form, _TEXTS[form]
    if custody:
        yield Form.SSHSIG, _CUSTODY
    yield Form.SSHSIG, _FURTHER
