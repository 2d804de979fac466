"""Policies: every key is understood, or the file is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.provenance.trust.policy import Policy, parse_policy, read_policy

SCHEMA = 'schema = "reefkit.policy/1"\n'
PATH = Path("/policies/lab.toml")


def test_all_keys_are_read_and_paths_are_relative_to_the_file() -> None:
    text = SCHEMA + (
        'signers = "allowed_signers"\nrevoked = ["a.krl", "/etc/b.krl"]\n'
        'principals = ["a@lab", "b@lab"]\nthreshold = 2\n'
        'timestamp_authorities = ["../tsa.pem"]\nrequire = ["metrics.json"]\n'
    )
    assert parse_policy(text.encode(), PATH) == Policy(
        path=PATH,
        signers=Path("/policies/allowed_signers"),
        revoked=(Path("/policies/a.krl"), Path("/etc/b.krl")),
        principals=("a@lab", "b@lab"),
        threshold=2,
        timestamp_authorities=(Path("/policies/../tsa.pem"),),
        require=("metrics.json",),
    )


def test_the_least_policy_asks_for_one_signer() -> None:
    assert parse_policy(SCHEMA.encode(), PATH) == Policy(path=PATH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "threshold = 1\n",
        'schema = "reefkit.policy/2"\n',
        SCHEMA + "treshold = 2\n",
        SCHEMA + "[signers]\n",
        SCHEMA + "threshold = 0\n",
        SCHEMA + "threshold = true\n",
        SCHEMA + "threshold = 1.5\n",
        SCHEMA + 'threshold = "2"\n',
        SCHEMA + 'threshold = 2\nprincipals = ["a@lab"]\n',
        SCHEMA + "principals = []\n",
        SCHEMA + 'principals = "a@lab"\n',
        SCHEMA + 'principals = ["a@lab", "a@lab"]\n',
        SCHEMA + 'principals = ["*@lab"]\n',
        SCHEMA + 'principals = ["a@lab,b@lab"]\n',
        SCHEMA + "principals = [1]\n",
        SCHEMA + 'principals = [""]\n',
        SCHEMA + "signers = 1\n",
        SCHEMA + 'signers = ""\n',
        SCHEMA + 'signers = "a\\u0000"\n',
        SCHEMA + 'revoked = "a.krl"\n',
        SCHEMA + "require = [[]]\n",
        SCHEMA + SCHEMA,
        SCHEMA + "threshold = \n",
        SCHEMA + "require = " + "[" * 5000,
        SCHEMA + "threshold = " + "9" * 5000 + "x",
        SCHEMA + '"\\u001b[2J" = 1\n',
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match=r"The policy /policies/lab\.toml") as caught:
        parse_policy(text.encode(), PATH)
    assert caught.value.exit_code == 2
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"\x80", b"\xef\xbb\xbf" + SCHEMA.encode()])
def test_bytes_that_are_no_plain_utf8_are_refused(data: bytes) -> None:
    with pytest.raises(Unusable, match="is not TOML"):
        parse_policy(data, PATH)


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read"):
        read_policy(tmp_path / "none.toml")


tokens = st.sampled_from(
    [SCHEMA, '"a@lab"', "1979-13-01", "'''", "\n", "\0", "\\"]
) | st.sampled_from("threshold principals require = [ ] , 2 true { } # inf .".split())


@settings(max_examples=200, deadline=None)
@given(st.lists(tokens, max_size=12).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        policy = parse_policy(text.encode(), PATH)
    except Unusable as error:
        assert error.message.startswith("The policy")
    else:
        assert SCHEMA.strip() in text
        assert policy.threshold >= 1
