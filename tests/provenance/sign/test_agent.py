"""Keys in an ssh-agent: a real one, a security key's, and hostile ones."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ssh_agents import asked_to_sign, fake_agent, identities, message, real_agent
from trust_keys import MESSAGE, NAMESPACE, KeyFile, accepts, make_key

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.provenance.sign import sshsig
from reefkit.provenance.sign.agent import AgentSigner, agent_signer
from reefkit.provenance.sign.key import PublicKey
from reefkit.provenance.sign.public_key import fingerprint, to_openssh, verifies
from reefkit.provenance.sign.signatures import sign_sums
from reefkit.provenance.sign.wire import string

Answer = Callable[[bytes], bytes | None]
FIDO = "sk-ssh-ed25519@openssh.com"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyFile]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name, name) for name in ("ecdsa", "ed25519", "rsa")}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with real_agent(tmp_path / "agent") as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        yield path


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], None]]:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "fake"))
    with ExitStack() as stack:

        def start(answer: Answer) -> None:
            stack.enter_context(fake_agent(tmp_path / "fake", answer))

        yield start


def add(*keys: KeyFile, options: Sequence[str] = ()) -> None:
    files = [str(key.path) for key in keys]
    subprocess.run(["ssh-add", "-q", *options, *files], check=True, stdin=subprocess.DEVNULL)


def demand_accepted(signature: bytes, key: PublicKey, tmp_path: Path) -> None:
    (tmp_path / "signers").write_text(f"a@lab {to_openssh(key)}\n")
    (tmp_path / "signature").write_bytes(signature)
    assert accepts(tmp_path / "signers", tmp_path / "signature", "a@lab")


@pytest.mark.parametrize("algorithm", ["ecdsa", "ed25519", "rsa"])
@pytest.mark.usefixtures("agent")
def test_a_real_agent_signs_what_ssh_keygen_accepts(
    keys: dict[str, KeyFile], tmp_path: Path, algorithm: str
) -> None:
    add(*keys.values())
    key = keys[algorithm].public
    signer = agent_signer(key)
    assert signer.public == key
    assert signer.only_sshsig is (algorithm == "rsa")
    assert verifies(key, b"data", signer.sign(b"data"))
    demand_accepted(sshsig.sign(signer, MESSAGE, NAMESPACE), key, tmp_path)


@pytest.mark.parametrize(("algorithm", "count"), [("ecdsa", 4), ("ed25519", 3), ("rsa", 1)])
@pytest.mark.usefixtures("agent")
def test_the_only_key_makes_all_its_forms_without_being_named(
    keys: dict[str, KeyFile], algorithm: str, count: int
) -> None:
    add(keys[algorithm])
    signer = agent_signer(None)
    sums = hashlib.sha256(b"").hexdigest().encode() + b"  a\n"
    files = sign_sums(sums, {"a": hashlib.sha256(b"").hexdigest()}, signer)
    assert len(files) == count


@pytest.mark.usefixtures("agent")
def test_of_several_keys_one_must_be_named(keys: dict[str, KeyFile]) -> None:
    add(*keys.values())
    with pytest.raises(Unusable, match="holds 3 keys") as caught:
        agent_signer(None)
    assert all(fingerprint(key.public) in caught.value.message for key in keys.values())
    assert caught.value.remedy is not None and "--key" in caught.value.remedy


@pytest.mark.usefixtures("agent")
def test_a_key_that_the_agent_does_not_hold_is_said(keys: dict[str, KeyFile]) -> None:
    add(keys["rsa"])
    with pytest.raises(Unusable, match="does not hold the key SHA256:"):
        agent_signer(keys["ecdsa"].public)


@pytest.mark.usefixtures("agent")
def test_an_empty_agent_and_one_that_lost_the_key_are_said(keys: dict[str, KeyFile]) -> None:
    with pytest.raises(Unusable, match="no key that can be used") as caught:
        agent_signer(None)
    assert caught.value.remedy is not None and "ssh-add -X" in caught.value.remedy
    add(keys["ecdsa"])
    signer = agent_signer(None)
    subprocess.run(["ssh-add", "-q", "-D"], check=True, stderr=subprocess.DEVNULL)
    with pytest.raises(NotPermitted, match="refused to sign"):
        signer.sign(b"data")


@pytest.mark.usefixtures("agent")
def test_a_key_that_must_be_confirmed_and_is_not_is_refused(
    keys: dict[str, KeyFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    add(keys["ed25519"], options=["-c"])
    with pytest.raises(NotPermitted, match="refused to sign"):
        agent_signer(None).sign(b"data")


@pytest.mark.parametrize("size", [200_000, 300_000])
@pytest.mark.usefixtures("agent")
def test_what_is_too_large_for_an_agent_is_said_before_it_is_asked(
    keys: dict[str, KeyFile], size: int
) -> None:
    add(keys["ed25519"])
    signer = agent_signer(None)
    if size == 200_000:
        assert verifies(signer.public, b"x" * size, signer.sign(b"x" * size))
        return
    with pytest.raises(Unusable, match="300,000 bytes are more than an ssh-agent signs at once"):
        signer.sign(b"x" * size)
    assert sshsig.sign(signer, b"x" * size, NAMESPACE)


def soft_fido_key() -> tuple[PublicKey, Answer]:
    """Make an agent with a security key in software, as PROTOCOL.u2f has it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    raw = private.public_key().public_bytes_raw()
    blob = string(FIDO.encode()) + string(raw) + string(b"ssh:")

    def answer(request: bytes) -> bytes | None:
        if request[0] == 11:
            return identities((blob, b"token"))
        wanted, data, _flags = asked_to_sign(request)
        assert wanted == blob
        tail = b"\x01" + (41).to_bytes(4, "big")
        digests = hashlib.sha256(b"ssh:").digest() + tail + hashlib.sha256(data).digest()
        signature = string(FIDO.encode()) + string(private.sign(digests)) + tail
        return message(14, string(signature))

    return PublicKey(FIDO, blob), answer


def test_a_security_key_signs_sshsig_and_nothing_else(
    pretend: Callable[[Answer], None], tmp_path: Path
) -> None:
    key, answer = soft_fido_key()
    pretend(answer)
    signer = agent_signer(None)
    assert signer.public == key
    assert signer.only_sshsig
    assert list(sign_sums(MESSAGE, {}, signer)) == ["SHA256SUMS.sig"]
    demand_accepted(sshsig.sign(signer, MESSAGE, NAMESPACE), key, tmp_path)


def test_keys_that_cannot_be_used_are_passed_over(
    keys: dict[str, KeyFile], pretend: Callable[[Answer], None]
) -> None:
    dsa = string(b"ssh-dss") + string(b"x")
    certificate = string(b"ssh-ed25519-cert-v01@openssh.com") + string(b"x")
    usable = keys["ecdsa"].public
    listed = identities(
        (dsa, b"old"), (certificate, b"cert"), (b"", b""), (usable.blob, b"\x1b[2J")
    )
    pretend(lambda _: listed)
    assert agent_signer(None).public == usable


def test_comments_cannot_act_on_a_terminal(
    keys: dict[str, KeyFile], pretend: Callable[[Answer], None]
) -> None:
    listed = identities(*((key.public.blob, b"\x1b[2J\n") for key in keys.values()))
    pretend(lambda _: listed)
    with pytest.raises(Unusable) as caught:
        agent_signer(None)
    assert caught.value.message.isprintable()


HOSTILE = {
    "closes": b"",
    "half a length": b"\0\0",
    "no type": b"\0\0\0\0",
    "a huge length": b"\xff\xff\xff\xff\x0c",
    "more than the most": (256 * 1024 + 1).to_bytes(4, "big") + b"\x0c",
    "less than it says": b"\0\0\0\x09\x0c\0\0",
    "another type": message(99),
    "a success": message(6),
    "more keys than bytes": message(12, b"\xff\xff\xff\xff"),
    "a key with a huge length": message(12, b"\0\0\0\x01\xff\xff\xff\xff"),
    "bytes after the keys": message(12, b"\0\0\0\0x"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_an_answer_that_is_none_is_refused(pretend: Callable[[Answer], None], what: str) -> None:
    pretend(lambda _: HOSTILE[what])
    with pytest.raises(Unusable, match="The ssh-agent's answer") as caught:
        agent_signer(None)
    assert caught.value.remedy is not None


def test_an_agent_that_refuses_to_list_is_not_permitted(
    pretend: Callable[[Answer], None],
) -> None:
    pretend(lambda _: message(5))
    with pytest.raises(NotPermitted, match="refused to say which keys"):
        agent_signer(None)


@pytest.mark.parametrize(
    "reply",
    [
        message(12, b"\0\0\0\0"),
        message(14),
        message(14, string(b"")),
        message(14, string(string(b"ssh-rsa") + string(b"x" * 256))),
        message(14, string(string(b"ssh-ed25519") + string(b"x" * 64)) + b"x"),
        message(14, string(string(b"ecdsa-sha2-nistp256") + string(b"\0" * 64))),
        b"\xff\xff\xff\xff\x0e",
    ],
)
def test_a_signature_that_is_none_is_refused(
    keys: dict[str, KeyFile], pretend: Callable[[Answer], None], reply: bytes
) -> None:
    key = keys["ecdsa"].public
    pretend(lambda request: identities((key.blob, b"")) if request[0] == 11 else reply)
    with pytest.raises(Unusable, match="The ssh-agent's answer"):
        agent_signer(None).sign(b"data")


def test_a_signature_by_another_key_is_refused(
    keys: dict[str, KeyFile], pretend: Callable[[Answer], None]
) -> None:
    key, answer = soft_fido_key()
    other, _ = soft_fido_key()
    listed = identities((other.blob, b""))

    def swapped(request: bytes) -> bytes | None:
        if request[0] == 11:
            return listed
        _, data, _flags = asked_to_sign(request)
        return answer(b"\x0d" + string(key.blob) + string(data) + bytes(4))

    pretend(swapped)
    with pytest.raises(Unusable, match="not its signature"):
        sshsig.sign(agent_signer(None), MESSAGE, NAMESPACE)


@pytest.mark.parametrize("reply", [None, b"\0\0\0\x09\x0c\0"])
def test_an_agent_that_hangs_is_given_up(
    pretend: Callable[[Answer], None], reply: bytes | None
) -> None:
    def answer(_request: bytes) -> bytes | None:
        if reply is not None:
            time.sleep(1)
        return reply

    pretend(answer)
    began = time.monotonic()
    with pytest.raises(Unusable, match="did not answer within"):
        agent_signer(None, seconds=0.3)
    assert time.monotonic() - began < 0.9


def test_without_an_agent_the_remedy_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(Unusable, match="SSH_AUTH_SOCK is not set") as caught:
        agent_signer(None)
    assert caught.value.remedy is not None and "ssh-add" in caught.value.remedy
    (tmp_path / "file").touch()
    for path in (tmp_path / "gone", tmp_path / "file", tmp_path / ("x" * 200)):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        with pytest.raises(Unusable, match="cannot be reached"):
            agent_signer(None)


def test_an_agent_of_somebody_else_is_not_permitted(agent: Path) -> None:
    agent.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(NotPermitted, match="belongs to somebody else"):
            agent_signer(None)
    finally:
        os.seteuid(user)


def test_a_system_without_such_sockets_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "somewhere")
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(Unusable, match="cannot be asked on this system"):
        agent_signer(None)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=40) | st.just(string(b"x")), max_size=4), st.integers(0, 255))
def test_any_answer_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    fields: list[bytes],
    kind: int,
) -> None:
    path = tmp_path_factory.mktemp("a") / "s"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    with fake_agent(path, lambda _: message(kind, *fields)):
        try:
            signer = agent_signer(None)
        except ReefError as error:
            assert error.message.startswith("The ssh-agent")
        else:
            assert isinstance(signer, AgentSigner)
