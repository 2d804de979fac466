"""allowed_signers: the same line gives the same answer as with ssh-keygen."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trust_keys import NAMESPACE, KeyFile, accepts, make_key, sign

from reefkit.errors import Unusable
from reefkit.provenance.trust.allowed_signers import (
    AllowedSigner,
    parse_time,
    read_allowed_signers,
)
from reefkit.provenance.trust.pattern_list import matches


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    return make_key(tmp_path_factory.mktemp("keys"), "signer")


@pytest.fixture(scope="module")
def signature(key: KeyFile) -> Path:
    return sign(key)


@pytest.fixture
def timezone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def trusted(signer: AllowedSigner, principal: str, seconds: int) -> bool:
    named = signer.is_named(principal) and signer.may_sign_in(NAMESPACE)
    return named and signer.is_valid_at(seconds)


PRINCIPALS = [
    ("a@lab", "a@lab", True),
    ("a@lab", "A@lab", False),
    ("a@lab", "a@labs", False),
    ("a@lab,b@lab", "b@lab", True),
    ("*", "a@lab", True),
    ("*@lab", "a@lab", True),
    ("*@lab", "@lab", True),
    ("*@lab", "a@lab.org", False),
    ("a*b*@lab", "axxbxbx@lab", True),
    ("a*b*@lab", "axx@lab", False),
    ("?@lab", "a@lab", True),
    ("?@lab", "ab@lab", False),
    ("??@lab", "ü@lab", True),
    ("*@lab,!b@lab", "a@lab", True),
    ("*@lab,!b@lab", "b@lab", False),
    ("!b@lab,*@lab", "b@lab", False),
    ("!b@lab", "a@lab", False),
    ("!!b@lab,*", "!b@lab", False),
    (",a@lab,", "a@lab", True),
    ('"a@lab"', "a@lab", True),
    ('"a b,c d"', "c d", True),
    ("**@*l?b*", "a@lab", True),
    ("a@lab#x", "a@lab#x", True),
    ("[a]@lab", "a@lab", False),
    ("\\*", "\\x", True),
]


@pytest.mark.parametrize(("patterns", "principal", "expected"), PRINCIPALS)
def test_principals_match_as_with_ssh_keygen(
    key: KeyFile, signature: Path, tmp_path: Path, patterns: str, principal: str, expected: bool
) -> None:
    file = tmp_path / "signers"
    file.write_text(f"{patterns} {key.line}\n")
    (signer,) = read_allowed_signers(file.read_bytes(), "signers")
    assert trusted(signer, principal, 1_800_000_000) is expected
    assert accepts(file, signature, principal) is expected


OPTIONS = [
    ('namespaces="reefkit-sums"', True),
    ('NameSpaces="reefkit-sums"', True),
    ('namespaces="git,reefkit-*"', True),
    ('namespaces="git"', False),
    ('namespaces="*,!reefkit-sums"', False),
    ('namespaces="REEFKIT-SUMS"', False),
    ('namespaces=""', False),
    ('namespaces="a b,reefkit-sums"', True),
    ('namespaces="a\\"b,reefkit-sums"', True),
    ('valid-after="20210630"', True),
    ('valid-after="20210701Z"', True),
    ('valid-after="20210702z"', False),
    ('valid-before="20210701120000UTC"', True),
    ('valid-before="202107011159Z"', False),
    ('valid-before="20210701120000Z"', True),
    ('valid-before="20210701115959Z"', False),
    ('valid-after="20210701120000Z"', True),
    ('valid-after="20210701120001Z"', False),
    ('Valid-After="20210101Z",VALID-BEFORE="20220101Z",namespaces="reefkit-sums"', True),
    ('valid-after="20210101Z",valid-before="20210201Z"', False),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
def test_options_decide_as_with_ssh_keygen(
    key: KeyFile, signature: Path, tmp_path: Path, options: str, expected: bool
) -> None:
    file = tmp_path / "signers"
    file.write_text(f"a@lab \t{options}  {key.line} a comment\n")
    (signer,) = read_allowed_signers(file.read_bytes(), "signers")
    noon = 1_625_140_800
    assert trusted(signer, "a@lab", noon) is expected
    assert accepts(file, signature, "a@lab", "-Overify-time=20210701120000Z") is expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Kiritimati"])
@pytest.mark.parametrize("moment", ["20210701120000", "202101010930", "20210328", "20211031023000"])
def test_local_times_are_those_of_ssh_keygen(
    key: KeyFile,
    signature: Path,
    tmp_path: Path,
    timezone: pytest.MonkeyPatch,
    zone: str,
    moment: str,
) -> None:
    timezone.setenv("TZ", zone)
    time.tzset()
    file = tmp_path / "signers"
    file.write_text(f'a@lab valid-before="{moment}" {key.line}\n')
    (signer,) = read_allowed_signers(file.read_bytes(), "signers")
    assert signer.valid_before is not None
    for seconds in (signer.valid_before, signer.valid_before + 1):
        at = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(seconds))
        accepted = accepts(file, signature, "a@lab", f"-Overify-time={at}", timezone=zone)
        assert accepted is signer.is_valid_at(seconds)
        assert accepted is (seconds == signer.valid_before)


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
@pytest.mark.parametrize("comment", ["", " by post"])
def test_line_endings_comments_and_blank_lines_are_read_as_by_ssh_keygen(
    key: KeyFile, signature: Path, tmp_path: Path, ending: str, comment: str
) -> None:
    file = tmp_path / "signers"
    text = f"# who\n\r\n   \n  # more\n\ta@lab {key.line}{comment}{ending}"
    file.write_bytes(text.encode())
    (signer,) = read_allowed_signers(file.read_bytes(), "signers")
    assert (signer.line, signer.principals, signer.key) == (5, "a@lab", key.public)
    assert accepts(file, signature, "a@lab")


def test_find_principals_names_the_same_line(key: KeyFile, signature: Path, tmp_path: Path) -> None:
    file = tmp_path / "signers"
    file.write_text(f'old@lab valid-before="20200101Z" {key.line}\nnew@lab,n@lab {key.line}\n')
    command = ["ssh-keygen", "-Y", "find-principals", "-f", str(file), "-s", str(signature)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = read_allowed_signers(file.read_bytes(), "signers")
    (fitting,) = (line for line in lines if line.is_valid_at(int(time.time())))
    assert done.stdout.split() == fitting.principals.split(",") == ["new@lab", "n@lab"]


BROKEN = [
    "a@lab",
    "a@lab KEY-LESS",
    '"a@lab KEY',
    "a@lab bogus KEY",
    "a@lab no-touch-required KEY",
    'a@lab namespaces="x",bogus KEY',
    "a@lab namespaces=x KEY",
    "a@lab namespaces KEY",
    'a@lab namespaces="x KEY',
    'a@lab namespaces="x"',
    'a@lab namespaces="x",namespaces="x" KEY',
    'a@lab namespaces="x", KEY',
    'a@lab namespaces="x"y KEY',
    'a@lab valid-after="20210101Z",VALID-AFTER="20210101Z" KEY',
    'a@lab valid-after="2021" KEY',
    'a@lab valid-after="20211301Z" KEY',
    'a@lab valid-after="2021010112Z" KEY',
    'a@lab valid-after="20210101240000Z" KEY',
    'a@lab valid-after="19700101Z" KEY',
    'a@lab valid-after="19600101Z" KEY',
    'a@lab valid-after="tomorrow" KEY',
    'a@lab valid-after="20210101Z",valid-before="20210101Z" KEY',
    "a@lab cert-authority KEY",
    'a@lab Cert-Authority,namespaces="x" KEY',
    "a@lab # KEY",
    "a@lab ssh-ed25519",
    "a@lab ssh-ed25519 AAAA",
    "a@lab ssh-rsa BLOB",
    "a@lab ssh-ed25519 !!!!",
    "a@lab ssh-ed25519\u3000BLOB x",
    "a@lab\vKEY",
]


@pytest.mark.parametrize("line", BROKEN)
def test_what_ssh_keygen_refuses_is_refused_with_its_line(
    key: KeyFile, signature: Path, tmp_path: Path, line: str
) -> None:
    text = line.replace("KEY-LESS", "x").replace("KEY", key.line).replace("BLOB", key.line[12:])
    file = tmp_path / "signers"
    file.write_text(f"# first\n{text}\n")
    with pytest.raises(Unusable, match="signers, line 2"):
        read_allowed_signers(file.read_bytes(), "signers")
    assert not accepts(file, signature, "a@lab", "-Overify-time=20210101Z")


STRICTER = [
    'a"@lab" KEY',
    '"a@lab"KEY',
    'a@lab ,namespaces="reefkit-sums" KEY',
    'a@lab valid-before="20210230Z" KEY',
    'a@lab valid-after="20210101235960Z" KEY',
    "b@lab bogus KEY\na@lab KEY",
    "b@lab\na@lab KEY",
    "a@lab KEY\nb@lab cert-authority KEY",
    "a@lab KEY\nb@lab ssh-dss AAAA",
]


@pytest.mark.parametrize("line", STRICTER)
def test_what_ssh_keygen_passes_over_is_refused(
    key: KeyFile, signature: Path, tmp_path: Path, line: str
) -> None:
    file = tmp_path / "signers"
    file.write_text(line.replace("KEY", key.line) + "\n")
    with pytest.raises(Unusable, match="signers, line"):
        read_allowed_signers(file.read_bytes(), "signers")
    assert accepts(file, signature, "a@lab", "-Overify-time=20210101235960Z")


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"# nobody\n", b"\xef\xbb\xbfa@lab KEY\n", "a@lab KEY\n".encode("utf-16")],
)
def test_a_file_without_signers_or_in_another_encoding_is_refused(
    key: KeyFile, data: bytes
) -> None:
    with pytest.raises(Unusable, match="signers"):
        read_allowed_signers(data.replace(b"KEY", key.line.encode()), "signers")


def test_a_certificate_authority_is_named_as_the_reason(key: KeyFile) -> None:
    data = f"a@lab {key.line}\n*@lab cert-authority {key.line}\n".encode()
    with pytest.raises(Unusable, match=r"signers, line 2 trusts an authority") as caught:
        read_allowed_signers(data, "signers")
    assert caught.value.exit_code == 2


def test_a_principal_that_is_not_utf8_is_kept_as_it_is(key: KeyFile) -> None:
    (signer,) = read_allowed_signers(b"\xff@lab " + key.line.encode(), "signers")
    assert signer.is_named("\udcff@lab")


@pytest.mark.parametrize("option", ["namespaces", "principals"])
def test_a_pattern_longer_than_ssh_takes_is_refused(key: KeyFile, option: str) -> None:
    long = "a" * 1023
    line = f'a namespaces="{long}"' if option == "namespaces" else long
    with pytest.raises(Unusable, match="too long"):
        read_allowed_signers(f"{line} {key.line}".encode(), "signers")
    assert read_allowed_signers(f"{line.replace(long, long[1:])} {key.line}".encode(), "signers")


def test_many_stars_take_no_long_time() -> None:
    began = time.perf_counter()
    assert not matches("a" * 5000, "*a" * 500 + "b")
    assert time.perf_counter() - began < 2


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+1AXqAB2Mj5tntHhYpiPalBK8HkTkTMZY4ZlnH2dhn"
WORDS = "a@lab namespaces valid-after valid-before cert-authority 20210101 20210101Z ssh-ed25519"
tokens = (
    st.sampled_from(WORDS.split()) | st.sampled_from(list('*!, \t"\\=#\r\n\0\udc80')) | st.just(KEY)
)


@settings(max_examples=200, deadline=None)
@given(st.lists(tokens, max_size=14).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        signers = read_allowed_signers(text.encode("utf-8", "surrogateescape"), "signers")
    except Unusable as error:
        assert error.message.startswith(("signers", "The key in signers"))
    else:
        assert all(signer.key.algorithm == "ssh-ed25519" for signer in signers)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(Unusable):
        read_allowed_signers(data, "signers")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20) | st.from_regex(r"[0-9]{8,14}[zZ]?", fullmatch=True))
def test_any_time_is_read_or_none(text: str) -> None:
    seconds = parse_time(text)
    assert seconds is None or text[:8].isdigit()


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=8), st.text("ab*?", max_size=8))
def test_one_pattern_matches_as_a_shell_pattern_does(text: str, pattern: str) -> None:
    from fnmatch import fnmatchcase

    assert matches(text, pattern) is (bool(pattern) and fnmatchcase(text, pattern))
