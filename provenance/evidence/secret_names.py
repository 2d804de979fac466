"""Which names (of options, variables, fields, parameters of URLs) say that a value is secret."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    "secret secrets password passwords passwd passwort passphrase passcode pwd pw credential "
    "credentials cred creds apikey apikeys apitoken accesskey secretkey privatekey authtoken auth "
    "authorization bearer cookie cookies jwt otp totp psk dsn sas".split()
)
_SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "apikey", "secretkey", "accesskey",
    "credentials",
)  # fmt: skip
# `--num-pass`, `--forward-pass`, `--compiler-pass`: passes over something.
_OTHER_PASSES = frozenset(
    "num n max min single two one multi first second last next final forward backward fwd bwd "
    "compiler fusion opt optimization graph eval train warmup by did all per".split()
)
_OWNERS_OF_PASSES = frozenset(
    "db my user smtp ftp pg mysql redis root admin ssh rpc mail proxy http login mqtt ldap sudo "
    "vault key cert git wifi vpn".split()
)
_KEY_KINDS = frozenset("api access secret private encryption signing master auth".split())
# `--sort-key`, `--input-key`: which column, field or entry of something.
_KEYS_OF_DATA = frozenset(
    "sort sorted primary foreign cache public pub partition dict json yaml toml group groupby "
    "index row column col label labels text image images video audio prompt prompts response "
    "answer question state metric metrics data dataset batch feature features query lookup map "
    "object input inputs output outputs target reward rewards score tool tools metadata meta "
    "multimodal id message messages chosen rejected value values order step epoch time lora "
    "adapter layer module weight weights tensor param parameter prefix suffix routing register "
    "config hot any each which by on the eval test train val source src dst".split()
)
_TOKEN_KINDS = frozenset("api access auth bearer refresh secret session hf github gitlab".split())
# `--pad-token`, `--max-token`: about tokens of text.
_TEXT_TOKENS = frozenset(
    "eos bos pad unk mask sep cls max min num per stop image audio video special end start new "
    "next first last total think every n each ignore prompt".split()
)
# What is said about a secret is none: `--token-file`, `--auth-type`, `--key-prefix`.
_ABOUT = frozenset(
    "file path dir folder name names id ids type kind mode method count len length size budget "
    "limit url uri endpoint host port scope ttl timeout expiry level env var per ratio prefix "
    "dropout embedding embeddings dim classes weight loss logprobs probs".split()
)
_SWITCHES = frozenset("no disable skip without".split())
_WEBHOOK_ENDS = frozenset("webhook webhooks url uri urls endpoint".split())
_SIGNED = frozenset("sig signature hmac key token auth".split())
_SEVERAL = frozenset("keys tokens secrets passwords credentials creds cookies apikeys".split())

_OF_A_VARIABLE = frozenset(
    "KEY KEYS APIKEY PASS PASSWD PASSWORD PASSWORDS PASSPHRASE PASSCODE PW PWD PIN OTP TOTP JWT "
    "WEBHOOK WEBHOOKS SAS TOKEN SECRET SECRETS CRED CREDS CREDENTIAL CREDENTIALS AUTH "
    "AUTHORIZATION BEARER COOKIE COOKIES SESSION DSN PSK SIG SIGNATURE LOGIN PRIVATE".split()
)
_IN_A_VARIABLE = re.compile(
    r"PASSW|PASSPHRASE|PASSCODE|SECRET|APIKEY|ACCESSKEY|CREDENTIAL|WEBHOOK|COOKIE|"
    r"TOKEN(?!S(?:_|$)|IZ)"
)


def names_secret(name: str) -> bool:
    """Tell whether a name (of an option, a variable, a field) says that its value is secret.

    `--hf-token`, `API_KEY`, `--db-pass` and `trainer.authToken` do; `--tokenizer`,
    `--max-tokens`, `--pad-token`, `--token-file`, `--input-key`, `--passes`, `--pass-through` and
    `--pin-memory` do not.
    """
    words = words_of(name)
    if not words or words[0] in _SWITCHES:
        return False
    if not {"webhook", "webhooks"}.isdisjoint(words) and words[-1] in _WEBHOOK_ENDS:
        return True
    if words[-1] in _ABOUT:
        return False
    return any(_secret_at(words, index) for index in range(len(words)))


def parameter_names_secret(name: str) -> bool:
    """Tell it of a parameter of a URL, where `key`, `sig` and `X-Amz-Signature` are secret, too."""
    words = words_of(name)
    return bool(words) and (words[-1] in _SIGNED or names_secret(name))


def variable_looks_secret(name: str) -> bool:
    """Tell it of a variable of the environment, more cautiously: one word is enough."""
    upper = name.upper()
    return (
        names_secret(name)
        or not _OF_A_VARIABLE.isdisjoint(upper.split("_"))
        or _IN_A_VARIABLE.search(upper) is not None
    )


def takes_several(name: str) -> bool:
    """Tell whether more values may follow: plural names, and vLLM's `--api-key`."""
    words = words_of(name)
    return words[-1] in _SEVERAL or words[-2:] == ["api", "key"]


def words_of(name: str) -> list[str]:
    """Give the words of a name in lower case, however it is written."""
    return [word.lower() for word in _WORDS.findall(name)]


def _secret_at(words: list[str], index: int) -> bool:
    word = words[index]
    before = words[index - 1] if index else ""
    last = index == len(words) - 1 or words[index + 1].isdigit()
    if word == "token":
        return before not in _TEXT_TOKENS
    if word == "tokens":
        return before in _TOKEN_KINDS
    if word == "key":
        return before in _KEY_KINDS or (last and bool(before) and before not in _KEYS_OF_DATA)
    if word == "keys":
        return before in _KEY_KINDS
    if word in ("pass", "pin"):
        return last and before not in _OTHER_PASSES
    return word in _SECRET_WORDS or _ends_secret(word)


def _ends_secret(word: str) -> bool:
    """Tell of words written as one: PGPASSWORD, `dbpasswd`, `hftoken`; not `padtoken`, `bypass`."""
    stem = word.removesuffix("token")
    if word.endswith(_SECRET_ENDS) or (stem != word and stem not in _TEXT_TOKENS):
        return True
    return word.endswith("pass") and word.removesuffix("pass") in _OWNERS_OF_PASSES
