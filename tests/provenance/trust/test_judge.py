"""Whom the verifier trusts: lines, windows, revocation, and k of n."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trust_keys import NAMESPACE, KeyFile, make_key

from reefkit.errors import Unusable
from reefkit.provenance.finding import FindingKind
from reefkit.provenance.trust.allowed_signers import read_allowed_signers
from reefkit.provenance.trust.judge import Judgement, Trust
from reefkit.provenance.trust.quorum import count_signers

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
WINDOW = 'valid-after="20260101Z",valid-before="20260630235959Z"'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Sequence[KeyFile]:
    folder = tmp_path_factory.mktemp("keys")
    return [make_key(folder, name) for name in "abc"]


@pytest.fixture
def trust(keys: Sequence[KeyFile], tmp_path: Path) -> Callable[..., Trust]:
    """Make a Trust from lines in which KEY0, KEY1… stand for keys, and a policy's lines."""

    def make(lines: str, policy: str | None = None, at: datetime = NOON) -> Trust:
        for number, key in enumerate(keys):
            lines = lines.replace(f"KEY{number}", key.line)
        signers = tmp_path / "allowed_signers"
        signers.write_text(lines)
        if policy is None:
            return Trust.load(signers, None, at)
        path = tmp_path / "policy.toml"
        path.write_text(f'schema = "reefkit.policy/1"\nsigners = "allowed_signers"\n{policy}')
        return Trust.load(None, path, at)

    return make


def judged(trust: Trust, key: KeyFile, **when: datetime) -> Judgement:
    return trust.judge(key.public, NAMESPACE, **when)


def test_a_key_that_is_named_is_trusted(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust("a@lab KEY0\nb@lab KEY1\na@home KEY0\n")
    assert judged(made, keys[0]) == Judgement("a@lab", True)
    assert made.keys() == (keys[0].public, keys[1].public)


def test_a_key_that_is_not_named_is_told_with_the_line_that_would_name_it(
    trust: Callable[..., Trust], keys: Sequence[KeyFile], tmp_path: Path
) -> None:
    judgement = judged(trust("a@lab KEY0\n"), keys[1])
    assert (judgement.identity, judgement.trusted) == (None, False)
    assert judgement.kind is FindingKind.UNKNOWN_SIGNER
    assert judgement.reason is not None
    assert str(tmp_path / "allowed_signers") in judgement.reason
    line = judgement.reason.partition("the line ")[2]
    (signer,) = read_allowed_signers(line.encode(), "advice")
    assert signer.key == keys[1].public
    assert signer.may_sign_in(NAMESPACE)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ('a@lab namespaces="git" KEY0\n', FindingKind.NAMESPACE),
        (f"a@lab {WINDOW} KEY0\n", FindingKind.OUTSIDE_VALIDITY),
        ('a@lab valid-after="20260702Z" KEY0\n', FindingKind.OUTSIDE_VALIDITY),
        ('a@lab namespaces="git" KEY0\na@lab valid-before="20260101Z" KEY0\n', "either"),
        ("!a@lab KEY0\n", FindingKind.UNKNOWN_SIGNER),
        ("a@lab,!a@lab KEY0\n", FindingKind.UNKNOWN_SIGNER),
    ],
)
def test_a_line_that_does_not_fit_trusts_nobody(
    trust: Callable[..., Trust], keys: Sequence[KeyFile], lines: str, kind: FindingKind | str
) -> None:
    judgement = judged(trust(lines), keys[0])
    assert not judgement.trusted
    assert judgement.kind is (FindingKind.OUTSIDE_VALIDITY if kind == "either" else kind)


def test_of_several_lines_any_may_fit(trust: Callable[..., Trust], keys: Sequence[KeyFile]) -> None:
    made = trust(f'old@lab {WINDOW} KEY0\ngit@lab namespaces="git" KEY0\nnew@lab KEY0\n')
    assert judged(made, keys[0]) == Judgement("new@lab", True)


@pytest.mark.parametrize(
    ("at", "trusted"),
    [
        ("2025-12-31T23:59:59.999999", False),
        ("2026-01-01T00:00:00", True),
        ("2026-06-30T23:59:59.5", True),
        ("2026-07-01T00:00:00", False),
    ],
)
def test_windows_are_judged_at_the_named_time(
    trust: Callable[..., Trust], keys: Sequence[KeyFile], at: str, trusted: bool
) -> None:
    moment = datetime.fromisoformat(at.ljust(26, "0") if "." in at else at)
    made = trust(f"a@lab {WINDOW} KEY0\n", at=moment.replace(tzinfo=timezone.utc))
    assert judged(made, keys[0]).trusted is trusted


def test_a_timestamp_inside_the_window_keeps_the_signature_valid(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust(f"a@lab {WINDOW} KEY0\n")
    assert not judged(made, keys[0]).trusted
    kept = judged(made, keys[0], signed_at=NOON - timedelta(days=30))
    assert kept.trusted
    assert kept.reason is not None and "2026-06-01 12:00:00 UTC" in kept.reason
    assert not judged(made, keys[0], signed_at=NOON - timedelta(days=300)).trusted


def test_a_timestamp_from_after_the_time_of_judging_proves_nothing(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust(f"a@lab {WINDOW} KEY0\n", at=NOON - timedelta(days=300))
    assert not judged(made, keys[0], signed_at=NOON - timedelta(days=30)).trusted


def test_a_window_up_to_the_end_of_time_is_said(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust('a@lab valid-after="99991231235959" KEY0\n')
    assert judged(made, keys[0]).kind is FindingKind.OUTSIDE_VALIDITY


@pytest.mark.parametrize("known", [True, False])
def test_a_revoked_key_is_never_trusted_whatever_the_time(
    trust: Callable[..., Trust], keys: Sequence[KeyFile], tmp_path: Path, known: bool
) -> None:
    krl = tmp_path / "lost.krl"
    command = ["ssh-keygen", "-q", "-k", "-f", str(krl), f"{keys[0].path}.pub"]
    subprocess.run(command, check=True)
    made = trust(f"a@lab KEY{0 if known else 1}\n", 'revoked = ["lost.krl"]\n')
    judgement = judged(made, keys[0], signed_at=NOON - timedelta(days=1))
    assert not judgement.trusted
    assert judgement.kind is FindingKind.REVOKED
    assert judgement.reason is not None and "lost.krl" in judgement.reason
    named = Trust.load(tmp_path / "allowed_signers", None, NOON, revoked=[krl])
    assert judged(named, keys[0]).kind is FindingKind.REVOKED


def test_only_principals_of_the_policy_are_trusted(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust("a@lab KEY0\n*@lab KEY1\nc@home KEY2\n", 'principals = ["a@lab", "b@lab"]\n')
    assert judged(made, keys[0]) == Judgement("a@lab", True)
    assert judged(made, keys[1]) == Judgement("a@lab,b@lab", True)
    stranger = judged(made, keys[2])
    assert stranger.kind is FindingKind.UNKNOWN_SIGNER
    assert stranger.reason == "c@home is not among the principals of the policy"


PRINCIPALS = 'principals = ["a@lab", "b@lab", "c@lab"]\n'


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("a@lab KEY0\nb@lab KEY1\nc@lab KEY2\n", 3),
        ("a@lab KEY0\na@lab KEY1\na@lab KEY2\n", 1),
        ("a@lab KEY0\na@lab KEY1\nc@lab KEY2\n", 2),
        ("a@lab,b@lab KEY0\nb@lab KEY1\nc@lab KEY2\n", 2),
        ("a@lab,b@lab KEY0\nb@lab,c@lab KEY1\nc@lab KEY2\n", 2),
        ("*@lab KEY0\na@lab KEY1\nb@lab KEY2\n", 2),
        ("*@lab KEY0\n?@lab KEY1\nc@lab KEY2\n", 1),
        ("a@lab KEY0\nb@lab KEY0\nc@lab KEY0\n", 1),
    ],
)
@pytest.mark.parametrize("principals", [PRINCIPALS, ""])
def test_distinct_keys_of_distinct_principals_are_counted(
    trust: Callable[..., Trust],
    keys: Sequence[KeyFile],
    lines: str,
    count: int,
    principals: str,
) -> None:
    for threshold in (1, 2, 3):
        made = trust(lines, f"{principals}threshold = {threshold}\n")
        missing = made.missing([key for key in made.keys() if made.judge(key, NAMESPACE).trusted])
        kinds = [finding.kind for finding in missing]
        assert kinds == ([] if count >= threshold else [FindingKind.TOO_FEW_SIGNERS])


def test_too_few_signers_says_how_many_and_who(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust("a@lab KEY0\nb@lab KEY1\n", "threshold = 2\n")
    (finding,) = made.missing([keys[0].public])
    assert finding.diagnosis.startswith("2 signers are needed, each with a key of their own, and 1")
    assert "a@lab" in finding.diagnosis
    assert made.missing([keys[0].public, keys[1].public]) == ()


def test_without_a_trusted_signature_it_is_unsigned_or_of_an_unknown_signer(
    trust: Callable[..., Trust], keys: Sequence[KeyFile]
) -> None:
    made = trust("a@lab KEY0\n")
    assert [finding.kind for finding in made.missing([])] == [FindingKind.UNSIGNED]
    (finding,) = made.missing([], [keys[1].public])
    assert finding.kind is FindingKind.UNKNOWN_SIGNER
    assert keys[1].line in finding.diagnosis
    assert [finding.kind for finding in made.missing([keys[1].public])] == [FindingKind.UNSIGNED]


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "HOME"])
def test_the_default_file_is_in_the_users_config_folder(
    keys: Sequence[KeyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("REEFKIT_SIGNERS", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    folder = tmp_path if variable == "XDG_CONFIG_HOME" else tmp_path / ".config"
    file = folder / "reefkit" / "allowed_signers"
    absent = Trust.load(None, None, None)
    assert (absent.signers, absent.source) == ((), file)
    judgement = judged(absent, keys[0])
    assert judgement.kind is FindingKind.UNKNOWN_SIGNER
    file.parent.mkdir(parents=True)
    file.write_text(f"a@lab {keys[0].line}\n")
    assert judged(Trust.load(None, None, None), keys[0]).trusted
    file.write_text("nonsense\n")
    with pytest.raises(Unusable):
        Trust.load(None, None, None)


def test_the_environment_names_a_file_that_must_be_there(
    keys: Sequence[KeyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "named"
    monkeypatch.setenv("REEFKIT_SIGNERS", str(file))
    with pytest.raises(Unusable, match="cannot be read"):
        Trust.load(None, None, None)
    file.write_text(f"a@lab {keys[0].line}\n")
    assert judged(Trust.load(None, None, None), keys[0]).trusted


def test_a_dangling_default_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REEFKIT_SIGNERS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "reefkit").mkdir()
    (tmp_path / "reefkit" / "allowed_signers").symlink_to("gone")
    with pytest.raises(Unusable, match="cannot be read"):
        Trust.load(None, None, None)


@pytest.mark.parametrize("what", ["folder", "absent", "nul", "closed"])
def test_a_named_file_that_cannot_be_read_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / ("nul\0" if what == "nul" else what)
    if what == "folder":
        path.mkdir()
    elif what == "closed":
        path.symlink_to(path)
    with pytest.raises(Unusable, match="cannot be read") as caught:
        Trust.load(path, None, None)
    assert caught.value.exit_code == 2


def test_signers_named_twice_are_refused(trust: Callable[..., Trust], tmp_path: Path) -> None:
    trust("a@lab KEY0\n", "")
    with pytest.raises(Unusable, match="Two signers files"):
        Trust.load(tmp_path / "allowed_signers", tmp_path / "policy.toml", NOON)


@pytest.mark.parametrize("line", ['revoked = ["none"]\n', 'timestamp_authorities = ["none"]\n'])
def test_a_file_that_the_policy_names_must_be_there(trust: Callable[..., Trust], line: str) -> None:
    with pytest.raises(Unusable, match="none cannot be read"):
        trust("a@lab KEY0\n", line)


def test_judging_opens_no_socket(
    trust: Callable[..., Trust],
    keys: Sequence[KeyFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    krl = tmp_path / "lost.krl"
    command = ["ssh-keygen", "-q", "-k", "-f", str(krl), f"{keys[1].path}.pub"]
    subprocess.run(command, check=True)
    made = trust("a@lab KEY0\nb@lab KEY1\n", 'revoked = ["lost.krl"]\nthreshold = 2\n')
    assert judged(made, keys[0]).trusted
    assert judged(made, keys[1]).kind is FindingKind.REVOKED
    assert made.missing([keys[0].public])


owners = st.lists(st.frozensets(st.sampled_from("abcd"), max_size=3), max_size=7)


@settings(max_examples=200, deadline=None)
@given(owners)
def test_the_count_is_the_most_keys_without_a_common_owner(sets: list[frozenset[str]]) -> None:
    best = 0
    filled = [each for each in sets if each]
    for size in range(1, len(filled) + 1):
        for chosen in combinations(filled, size):
            if all(not one & other for one, other in combinations(chosen, 2)):
                best = size
    assert count_signers(sets) == best


@settings(max_examples=100, deadline=None)
@given(owners, st.frozensets(st.sampled_from("abcd")))
def test_one_more_signature_never_lowers_the_count(
    sets: list[frozenset[str]], more: frozenset[str]
) -> None:
    assert count_signers([*sets, more]) >= count_signers(sets)
