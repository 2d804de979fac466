"""Which words of a command line are secret, and which only look like it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.provenance.evidence.redacted_argv import (
    REDACTED,
    redacted_argv,
    redacted_text,
)
from reefkit.provenance.evidence.secret_names import names_secret, variable_looks_secret

# Put together here, so that no scanner takes this file for a leak.
HF = "hf_" + "aB3" * 12
GITHUB = "ghp_" + "x9Y" * 12
PAT = "github_pat_" + "11ABC_" * 8
OPENAI = "sk-" + "proj-" + "T3st" * 8
AWS = "AKIA" + "ABCDEFGH12345678"
SLACK = "xoxb-" + "123456789012-abcdef"
GITLAB = "glpat-" + "abcDEF123456_-789012"
JWT = "eyJhbGciOiJIUzI1" + ".eyJzdWIiOiIxMjM0" + ".c2lnbmF0dXJl"
KEY = "-----BEGIN " + "PRIVATE KEY-----\nMIIabc\n-----END " + "PRIVATE KEY-----"
SECRET = "s3cr3t"

SECRETS = [
    ["--token", SECRET],
    [f"--token={SECRET}"],
    ["--hf-token", SECRET],
    ["--hf_token", SECRET],
    ["--hfToken", SECRET],
    ["-token", SECRET],
    ["--password", SECRET],
    ["--passwd", SECRET],
    ["--db-password", SECRET],
    ["--passphrase", SECRET],
    ["--secret", SECRET],
    ["--client-secret", SECRET],
    ["--api-key", SECRET],
    ["--api_key", SECRET],
    ["--apikey", SECRET],
    ["--api-key", "first", SECRET],
    ["--hftoken", SECRET],
    [f"MYSQLPASSWD={SECRET}"],
    ["--auth", f"user:{SECRET}"],
    ["--auth-token", SECRET],
    ["--use-auth-token", SECRET],
    ["--credential", SECRET],
    ["--credentials", SECRET],
    ["--secret-access-key", SECRET],
    ["--password", f"-{SECRET} x"],
    [f"HF_TOKEN={SECRET}"],
    [f"WANDB_API_KEY={SECRET}"],
    [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
    [f"+trainer.api_key={SECRET}"],
    [f"logger.wandb.apiKey={SECRET}"],
    [f"PGPASSWORD=a b {SECRET}"],
    ["-u", f"user:{SECRET}"],
    ["-H", f"Authorization: Bearer {SECRET}"],
    ["-H", f"X-Api-Key: {SECRET}"],
    [f"https://user:{SECRET}@host/path"],
    [f"https://{SECRET}@host/path"],
    [f"https://user:a@{SECRET}@host/path"],
    [f"https://user:a/{SECRET}@host/path"],
    [f"redis://:{SECRET}@cache:6379/0"],
    [f"https://host/path?access_token={SECRET}&x=1"],
    [f'{{"token": "{SECRET}", "a": 1}}'],
    [f"{{'password': '{SECRET}'}}"],
    [f'{{"api_key":"a\\"{SECRET}"}}'],
    [f"env=HF_TOKEN={SECRET}"],
    [f"--env=HF_TOKEN={SECRET}"],
    ["-e", f"HF_TOKEN={SECRET}"],
    [f"a=1,token={SECRET},b=2"],
    [f'{{"a": "{{\\"token\\": \\"{SECRET}\\"}}"}}'],
    ["sh", "-c", f"HF_TOKEN={SECRET} python train.py"],
    ["sh", "-c", f"train --token {SECRET} --lr 1"],
    ["sh", "-c", f"train --password 'a {SECRET}' --lr 1"],
    [f"Server=db;Password={SECRET};Timeout=5"],
    ["--pass", SECRET],
    [f"--db-pass={SECRET}"],
    [f"DB_PASS={SECRET}"],
    [f"dbpass={SECRET}"],
    ["--pw", SECRET],
    ["sshpass", "-p", SECRET, "ssh", "host"],
    ["sshpass", f"-p{SECRET}", "ssh", "host"],
    ["/usr/bin/sshpass", "-v", "-p", f"-{SECRET}", "ssh", "host"],
    ["mysql", "-u", "root", f"-p{SECRET}", "db"],
    ["srun", "mysqldump", "-p", SECRET, "db"],
    ["mongosh", "-p", SECRET, "db"],
    ["redis-cli", "-a", SECRET, "get"],
    ["7z", "x", f"-p{SECRET}", "a.7z"],
    ["unzip", "-P", SECRET, "a.zip"],
    ["docker", "login", "-u", "ann", "-p", SECRET, "host"],
    ["openssl", "rsa", "-passin", f"pass:{SECRET}"],
    ["sh", "-c", f"sshpass -p {SECRET} ssh host"],
    ["sh", "-c", f"sshpass -p '{SECRET} x' ssh host"],
    ["sh", "-c", f"cd /tmp && mysql -u root -p{SECRET} db"],
    ["sh", "-c", f"docker login -u ann -p {SECRET} host"],
    ["--kaggle-key", SECRET],
    ["--otp", SECRET],
    ["--pin", SECRET],
    ["--passcode", SECRET],
    ["--jwt", SECRET],
    ["--sas", SECRET],
    ["--dsn", SECRET],
    ["--hf-token", f"-{SECRET}"],
    ["--hf-token", f"--{SECRET}XyZ"],
    ["--auth", "-token", SECRET],
    [f"--hf_token:str={SECRET}"],
    ["--hf_token:str", SECRET],
    [f"--user=ann:{SECRET}"],
    [f"-uann:{SECRET}"],
    ["--json", f'{{"token": ["{SECRET}"]}}'],
    ["--json", f'{{"a": {{"tokens": 3, "auth": {{"x": [1, "{SECRET}"]}}}}, "b": 2}}'],
    [f"--json={{'api_key': ['a', '{SECRET}']}}"],
    ["--json", f'{{"token": ["{SECRET}"'],
    ["--json", f'"{{\\"token\\": [\\"{SECRET}\\"]}}"'],
    [f"https://store/x?se=2030&sig={SECRET}%3D&sp=r"],
    [f"https://store/x?X-Amz-Algorithm=A&X-Amz-Signature={SECRET}"],
    [f"https://store/x?X-Goog-Signature={SECRET}"],
    [f"https://store/x?Expires=1&Signature={SECRET}&Key-Pair-Id=K"],
    [f"https://host/x?a=1&token={SECRET}"],
    [f"https://host/x?key={SECRET}"],
    ["sh", "-c", f"curl 'https://host/x?a=1&token={SECRET}'"],
    [f"https://hooks.slack.com/services/T00/B00/{SECRET}"],
    [f"https://discord.com/api/webhooks/123456/{SECRET}"],
    [f"https://discordapp.com/api/v10/webhooks/123456/{SECRET}"],
    [f"https://api.telegram.org/bot123456:{SECRET}/sendMessage?chat_id=1"],
    [f"https://team.webhook.office.com/webhookb2/{SECRET}"],
    ["--webhook-url", f"https://host/{SECRET}"],
    ["--slack-webhook", SECRET],
]
SHAPES = [HF, GITHUB, PAT, OPENAI, AWS, SLACK, GITLAB, JWT, KEY]
PLAIN = [
    "--tokenizer meta-llama/Llama-3",
    "--tokenizer-path /models/tokenizer",
    "--max-tokens 5",
    "--max-token 5",
    "--max_new_tokens=128",
    "--max-num-batched-tokens 8192",
    "tokens=1024",
    "--tokens 1024",
    "--pad-token <pad>",
    "--padtoken <pad>",
    "--eos-token-id 2",
    "--num-tokens-per-batch 4",
    "--token-file /run/secrets/hf",
    "--password-file /run/secrets/db",
    "--auth-type basic",
    "--no-auth data.json",
    "--author Bob",
    "--authors=Bob",
    "--key id_ed25519",
    "--keyword secretary",
    "--monkey 3",
    "--sort-keys data.json",
    "--secretary Ann",
    "--lr 1e-5 --seed=0",
    "git@github.com:owner/repo.git",
    "ssh://git@github.com/owner/repo.git",
    "https://host:8080/a/b@v2?x=1",
    "sk-learn-is-not-a-key-of-anything",
    "hf_hub_download",
    "model=tokenizer.json",
    "d8b17d192b6535ecbd52e68379c39c7f623d6a67",
    "--layer 3 -- train.py",
    "time: 12:30",
    "C:/Users/me/model",
    "--passes 3",
    "--pass-through data",
    "--num-pass 2",
    "--pass-rate 0.5",
    "--bypass x",
    "--pin-memory true",
    "--pin_memory=true",
    "--key-prefix model.",
    "--api-key-prefix Bearer",
    "--input-key prompt --label-key label --reward-key score",
    "--sort-key step",
    "--monkey-patch x",
    "ssh -p 2222 host",
    "docker run -p 8080:80 image",
    "sshpass -e ssh -p 2222 host",
    "mkdir -p a/b",
    "torchrun -a x -P y -w z",
    "https://host/x?keys=1&page=2&version=3",
    "https://discord.com/channels/1/2",
    "https://hooks.example.com/a",
    """--json '{"a": ["b"], "max_tokens": [1, 2]}'""",
    "--field:int=3",
    "--user=ann",
    "-u train.py",
    "--signature-columns a",
]


@pytest.mark.parametrize("argv", SECRETS, ids=" ".join)
def test_a_secret_goes_and_the_number_of_words_stays(argv: list[str]) -> None:
    found = redacted_argv(["run", *argv, "--lr", "1"])
    assert SECRET not in " ".join(found)
    assert REDACTED in " ".join(found)
    assert len(found) == len(argv) + 3
    assert found[0] == "run"
    assert found[-2:] == ("--lr", "1")


@pytest.mark.parametrize("secret", SHAPES, ids=lambda text: text[:10])
@pytest.mark.parametrize("form", ["{}", "x={}", "--name={}", "say ({}) here", "https://h/{}/x"])
def test_a_token_goes_by_its_shape_wherever_it_stands(secret: str, form: str) -> None:
    (found,) = redacted_argv([form.format(secret)])
    assert secret not in found
    assert secret[-8:] not in found
    assert REDACTED in found


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_no_secret_stays(line: str) -> None:
    argv = shlex.split(line)
    assert redacted_argv(argv) == tuple(argv)


def test_the_option_after_a_switch_is_not_taken_for_its_value() -> None:
    assert redacted_argv(["--auth", "--verbose", "x"]) == ("--auth", "--verbose", "x")


def test_bytes_that_are_no_utf8_become_text() -> None:
    assert redacted_argv(["a\udcffb"]) == ("a\\xffb",)


def test_what_looks_like_an_option_may_be_the_value_of_a_secret() -> None:
    assert redacted_argv(["--token", "-v", "x"]) == ("--token", REDACTED, "x")


def test_the_rest_of_a_text_stays_where_nested_values_go() -> None:
    text = '{"lr": [1, 2], "auth": {"a": ["x", {"b": 1}]}, "seed": 3}'
    assert redacted_text(text) == f'{{"lr": [1, 2], "auth": "{REDACTED}", "seed": 3}}'


@pytest.mark.parametrize(
    ("name", "secret"),
    [(f"VLLM_{word}", True) for word in
     "API_KEY DB_PASS PW SERVER_JWT OTP SLACK_WEBHOOK AZURE_SAS HF_TOKEN HFTOKEN CLIENT_SECRET "
     "AWS_CRED BASIC_AUTH COOKIE SESSION SESSION_ID SENTRY_DSN DBPASSWORD KEY_FILE PASSPHRASE "
     "PIN".split()]
    + [(f"VLLM_{word}", False) for word in
       "MAX_TOKENS TOKENIZER_POOL USE_V1 PASSES MONKEY BYPASS KEYBOARD PINNED".split()],
)  # fmt: skip
def test_a_variable_is_secret_by_any_word_of_its_name(name: str, secret: bool) -> None:
    assert variable_looks_secret(name) is secret


def test_an_unfinished_private_key_goes_whole() -> None:
    assert redacted_text("a " + KEY[:35] + " MIIabc") == f"a {REDACTED}"


@given(st.lists(st.text(max_size=60), max_size=6))
@settings(max_examples=150, deadline=None)
def test_redacting_keeps_the_count_and_is_stable(argv: list[str]) -> None:
    once = redacted_argv(argv)
    assert len(once) == len(argv)
    assert all(isinstance(each, str) for each in once)


@given(st.from_regex(r"[A-Za-z0-9]{12,30}", fullmatch=True), st.sampled_from(SECRETS))
@settings(max_examples=100, deadline=None)
def test_no_secret_value_survives_its_name(value: str, argv: list[str]) -> None:
    value = f"q7{value}"
    found = redacted_argv([each.replace(SECRET, value) for each in argv])
    assert value not in " ".join(found)


@pytest.mark.parametrize(
    "text",
    ["a" * 200_000, "a." * 100_000, "://a:" * 40_000, "--a " * 50_000, "eyJ" * 60_000,
     '"a":' * 50_000, '"auth":[' * 30_000, '"auth":{}' * 30_000, "mysql " * 40_000,
     "mysql -p " * 30_000, "docker login " * 20_000, "?a=" * 60_000, "&key=" * 50_000,
     "https://" * 40_000, "pass:" * 50_000, "a:" * 60_000, "-u" * 60_000, "1" * 200_000,
     "hooks.slack.com/" * 20_000, "-----BEGIN " * 20_000,
     'a="\\' * 50_000, "hf_" * 60_000, "a: " * 60_000],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_long_hostile_words_take_no_long_time(text: str) -> None:
    import time

    begin = time.perf_counter()
    redacted_text(text)
    assert time.perf_counter() - begin < 3


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_asked_for_as_a_name(name: str) -> None:
    assert names_secret(name) in (True, False)
