"""What a package holds beside its content: manifest, custody, sums, signatures, instructions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timezone

from ...errors import DoesNotHold
from ...records.custody import (
    NOT_REDACTED,
    Action,
    Artifact,
    Link,
    extended,
    is_broken_chain,
)
from ...records.custody_lines import FILE as CUSTODY
from ...records.custody_schema import PACK
from ...records.manifest import FileEntry, Manifest
from ...records.names import printable
from ..custody.chain import against_files, read_chain
from ..custody.head import HEAD, head_document
from ..finding import FindingKind
from ..sign import sshsig
from ..sign.carriers import SUMS, Form, carrier_name
from ..sign.companions import CUSTODY_HEAD_SIGNATURE, key_files
from ..sign.key import Signer
from ..sign.signatures import sign_sums
from ..sums.write import write_sums
from .package_names import MANIFEST

_MOST_TOLD = 5


def added_files(
    manifest: Manifest,
    custody: bytes,
    signer: Signer | None,
    identity: str | None,
    *,
    epoch: int | None,
    timestamp: Callable[[bytes], bytes] | None,
) -> dict[str, bytes]:
    """Make everything that is not content; give names with bytes.

    Raises DoesNotHold for content that is not what the chain says, Unusable for a damaged chain,
    and what the signer raises. `custody` is the chain so far; it goes on with the link of this
    stage. `epoch` is the second that the link is dated with, None for no date.
    """
    broken = [_artifact(entry) for entry in manifest.files if is_broken_chain(entry.path)]
    chain = extended(custody, _link(manifest, epoch), broken=broken)
    _refuse_contradictions(custody, chain, manifest)
    made = {MANIFEST: manifest.to_bytes(), CUSTODY: chain}
    if signer is not None and identity is not None:
        head = head_document(made[CUSTODY])
        made[HEAD] = head
        made[CUSTODY_HEAD_SIGNATURE] = sshsig.sign(signer, head, sshsig.CUSTODY_NAMESPACE)
        made.update(key_files(signer, identity, custody=True))
    digests = {
        **{entry.path: entry.sha256 for entry in manifest.files},
        **{name: hashlib.sha256(data).hexdigest() for name, data in made.items()},
    }
    made[SUMS] = sums = write_sums(digests)
    if signer is not None:
        made.update(sign_sums(sums, digests, signer))
        if timestamp is not None:
            made[carrier_name(Form.TIMESTAMP, 1)] = timestamp(sums)
    return made


def _refuse_contradictions(custody: bytes, chain: bytes, manifest: Manifest) -> None:
    """Refuse to vouch for files that are not what earlier stages wrote or judged."""
    digests = {entry.path: entry.sha256 for entry in manifest.files}
    changed = [
        f"{printable(each.path or CUSTODY)}: {each.diagnosis}"
        for each in against_files(read_chain(custody, None), digests)
    ]
    faults = changed or [
        each.diagnosis
        for each in read_chain(chain, None).findings
        if each.kind is FindingKind.CUSTODY_BROKEN
    ]
    if faults:
        more = len(faults) - _MOST_TOLD
        raise DoesNotHold(
            " ".join(faults[:_MOST_TOLD]) + (f" And {more:,} more." if more > 0 else ""),
            remedy="Put back what the stage left, or let the stage run again. If the change was "
            f"meant, take {CUSTODY} away, so that a new chain begins; as custody.broken.jsonl it "
            "stays in the package, and the gap is told.",
        )


def _link(manifest: Manifest, epoch: int | None) -> Link:
    """Say what was packed. No run id: packing the same again gives the same link.

    The files are inputs, too: a reader holds those against what earlier stages wrote.
    """
    return Link(
        PACK,
        inputs=[Artifact(entry.path, entry.sha256, entry.size) for entry in manifest.files],
        outputs=[_artifact(entry) for entry in manifest.files],
        run_id=None,
        time=None if epoch is None else _rfc3339(epoch),
        facts={"redaction": NOT_REDACTED},
    )


def _artifact(entry: FileEntry) -> Artifact:
    action = None if entry.header is None else Action.CARRIED
    return Artifact(entry.path, entry.sha256, entry.size, action=action)


def _rfc3339(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
