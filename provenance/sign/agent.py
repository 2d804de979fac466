"""Sign with a key that an ssh-agent holds: on disk elsewhere, on a card, or on a security key.

The protocol is that of OpenSSH's PROTOCOL.agent (draft-ietf-sshm-ssh-agent): a length, a type and
fields as in SSH. The agent is asked for its keys, and to sign; nothing else.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import NotPermitted, Unusable
from ...records.names import printable
from .key import ED25519, P256, PublicKey
from .public_key import RSA, fingerprint, from_blob, parse_signature
from .wire import WireReader, string

if TYPE_CHECKING:
    from socket import socket

VARIABLE = "SSH_AUTH_SOCK"
LARGEST = 256 << 10  # of a message, as in OpenSSH's agent
_LIST_SECONDS = 20.0
_SIGN_SECONDS = 180.0  # somebody may have to touch a key, or to answer a question

_FAILURE = 5
_REQUEST_IDENTITIES = 11
_IDENTITIES_ANSWER = 12
_SIGN_REQUEST = 13
_SIGN_RESPONSE = 14
_RSA_SHA2_512 = 4
_LABEL = "The ssh-agent's answer"
_START = "Start one (`eval $(ssh-agent)`, then `ssh-add FILE`), or sign with a key file."


@dataclass(frozen=True)
class AgentSigner:
    """A key in an agent. Other keys than P-256 and Ed25519 sign nothing but SSHSIG."""

    public: PublicKey
    _agent: Path
    _seconds: float = _SIGN_SECONDS

    @property
    def only_sshsig(self) -> bool:
        """Tell whether it signs nothing but SSHSIG."""
        return self.public.algorithm not in (P256, ED25519)

    def sign(self, data: bytes) -> bytes:
        """Let the agent sign; give the blob of the signature, well-formed but not verified.

        Raises NotPermitted when the agent refuses, Unusable when it is gone, gives no proper
        answer in time, or takes no message that is as large.
        """
        flags = _RSA_SHA2_512 if self.public.algorithm == RSA else 0
        fields = string(self.public.blob) + string(data) + flags.to_bytes(4, "big")
        if len(fields) >= LARGEST:
            raise Unusable(
                f"{len(data):,} bytes are more than an ssh-agent signs at once.",
                remedy="Sign with a key file, or for ssh-keygen alone: --sshsig-only.",
            )
        kind, answer = _ask(self._agent, _SIGN_REQUEST, fields, self._seconds)
        if kind == _FAILURE:
            raise NotPermitted(
                f"The ssh-agent refused to sign with {fingerprint(self.public)}.",
                remedy="It may be locked (ssh-add -X), or wait for a touch or a confirmation.",
            )
        try:
            if kind != _SIGN_RESPONSE:
                raise Unusable("")
            reader = WireReader(answer, _LABEL)
            blob = reader.string()
            reader.end()
            parse_signature(self.public, blob, _LABEL)
        except Unusable:
            raise _no_answer("is not a signature that the key can make") from None
        return blob


def agent_signer(public: PublicKey | None, *, seconds: float | None = None) -> AgentSigner:
    """Find a key in the agent that SSH_AUTH_SOCK names: the given one, or the only one there.

    `seconds` is the longest that each answer may take. Raises Unusable when there is no agent, no
    such key, or more than one and none was named; NotPermitted.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise Unusable(f"No ssh-agent is there: {VARIABLE} is not set.", remedy=_START)
    agent = Path(named)
    held = _identities(agent, seconds or _LIST_SECONDS)
    if public is None:
        public = _only(held)
    elif public not in held:
        raise Unusable(
            f"The ssh-agent does not hold the key {fingerprint(public)}.",
            remedy="Add it with `ssh-add FILE`; a locked agent (ssh-add -X) shows no keys.",
        )
    return AgentSigner(public, agent, seconds or _SIGN_SECONDS)


def _only(held: Mapping[PublicKey, str]) -> PublicKey:
    if not held:
        raise Unusable(
            "The ssh-agent holds no key that can be used here.",
            remedy="Add one with `ssh-add FILE`; a locked agent (ssh-add -X) shows no keys.",
        )
    if len(held) > 1:
        keys = "; ".join(
            f"{fingerprint(key)} {key.algorithm} {comment}".rstrip()
            for key, comment in held.items()
        )
        raise Unusable(
            f"The ssh-agent holds {len(held)} keys: {keys}.",
            remedy="Say which one: `--agent --key NAME.pub`.",
        )
    return next(iter(held))


def _identities(agent: Path, seconds: float) -> dict[PublicKey, str]:
    """Give the keys of accepted types, with their comments, fit to print."""
    kind, answer = _ask(agent, _REQUEST_IDENTITIES, b"", seconds)
    if kind == _FAILURE:
        raise NotPermitted(
            "The ssh-agent refused to say which keys it holds.",
            remedy="Unlock it with `ssh-add -X`.",
        )
    entries: list[tuple[bytes, bytes]] = []
    try:
        if kind != _IDENTITIES_ANSWER:
            raise Unusable("")
        reader = WireReader(answer, _LABEL)
        for _ in range(reader.uint32()):
            entries.append((reader.string(), reader.string()))
        reader.end()
    except Unusable:
        raise _no_answer("is not a list of keys") from None
    held: dict[PublicKey, str] = {}
    for blob, comment in entries:
        try:
            held.setdefault(from_blob(blob), printable(comment[:100]))
        except Unusable:  # a certificate, or a type that is not accepted: it cannot be chosen
            continue
    return held


def _ask(agent: Path, kind: int, fields: bytes, seconds: float) -> tuple[int, bytes]:
    import socket

    if not hasattr(socket, "AF_UNIX"):
        raise Unusable(
            "An ssh-agent cannot be asked on this system: its socket is of an unknown kind.",
            remedy="Sign with a key file.",
        )
    until = time.monotonic() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(os.fspath(agent))
            connection.sendall(string(bytes([kind]) + fields))
            size = int.from_bytes(_receive(connection, 4, until), "big")
            if not 1 <= size <= LARGEST:
                raise _no_answer(f"says that it has {size:,} bytes")
            answer = _receive(connection, size, until)
    except TimeoutError:
        raise Unusable(
            f"The ssh-agent did not answer within {seconds:,.0f} seconds.",
            remedy="A security key waits to be touched; try again.",
        ) from None
    except (OSError, ValueError) as error:
        raise _not_reached(agent, error) from None
    return answer[0], answer[1:]


def _receive(connection: socket, count: int, until: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(count - len(data))
        if not part:
            raise _no_answer("ends too early")
        data += part
    return bytes(data)


def _no_answer(fault: str) -> Unusable:
    return Unusable(
        f"{_LABEL} {fault}.", remedy=f"See what {VARIABLE} names; `ssh-add -l` asks it, too."
    )


def _not_reached(agent: Path, error: OSError | ValueError) -> NotPermitted | Unusable:
    where = printable(os.fsencode(agent))
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EACCES, errno.EPERM):
        return NotPermitted(
            f"The ssh-agent at {where} belongs to somebody else.", remedy="Start one of your own."
        )
    reason = os.strerror(number) if number is not None else "no socket can be called so"
    return Unusable(f"The ssh-agent at {where} cannot be reached: {reason}.", remedy=_START)
