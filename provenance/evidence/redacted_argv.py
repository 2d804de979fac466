"""Take secrets out of command lines and values before they are recorded.

A value goes when the name it is given under says so, a part of a text when it has the shape of a
known kind of token, of a private key, or of a password in a URL. In doubt it goes. Paths stay as
they were given: what they tell is the redaction of a whole package to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...records.names import decoded

REDACTED = "<redacted>"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRET_WORDS = frozenset(
    "token secret secrets password passwords passwd passwort passphrase pwd credential "
    "credentials creds apikey apikeys apitoken accesskey secretkey privatekey authtoken auth "
    "authorization bearer cookie cookies".split()
)
_SECRET_ENDS = ("password", "passwd", "apikey", "secretkey", "accesskey", "credentials")
_KEY_KINDS = frozenset(
    "api access secret private encryption signing account master auth service license ssh hf "
    "openai anthropic wandb ngc shared storage subscription".split()
)
_TOKEN_KINDS = frozenset("api access auth bearer refresh secret session hf github gitlab".split())
# `--pad-token`, `--max-token`: about tokens of text.
_TEXT_TOKENS = frozenset(
    "eos bos pad unk mask sep cls max min num per stop image audio video special end start new "
    "next first last total think every n each ignore prompt".split()
)
# What is said about a secret is none: `--token-file`, `--auth-type`, `--token-id`.
_ABOUT = frozenset(
    "file path dir folder name names id ids type kind mode method count len length size budget "
    "limit url uri endpoint host port scope ttl timeout expiry level env var per ratio "
    "dropout embedding embeddings dim classes weight loss logprobs probs".split()
)
_SWITCHES = frozenset("no disable skip without".split())
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_SEVERAL = frozenset("keys tokens secrets passwords credentials creds cookies apikeys".split())

_URL_LOGIN = re.compile(
    r"(?<=://)(?!(?:git|hg)@)(?:[^\s/?#\"'<>]{1,4096}|[^\s/@:?#]{0,256}:(?!\d{1,5}(?:/|$))[^\s@]{1,1024})@"
)
_SHAPES = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?!-----END ).)*(?:-----END [A-Z0-9 ]{0,40}-----)?"
    r"|(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}"
    r"|gh[opusr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|gl[a-z]{2,6}-[\w-]{20,64}"
    r"|sk-(?=[A-Za-z_-]{0,200}[0-9])[\w-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|dckr_pat_[\w-]{20,}|nvapi-[\w-]{20,}"
    r"|gsk_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|SG\.[\w-]{16,64}\.[\w-]{16,}"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{40,}"
    r"|(?<![_-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")",
    re.DOTALL,
)
_WEBHOOK = re.compile(r"(?<=hooks\.slack\.com/services/)[\w/-]+")
_QUOTED = re.compile(
    r"([\"'])([A-Za-z][\w.-]{0,200})\1(\s{0,8}:\s{0,8})(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[\w.+-]+)"
)
_ESCAPED = re.compile(
    r"(\\{1,8}[\"'])([A-Za-z][\w.-]{0,200})\1(\s{0,8}:\s{0,8})(\1[^\"'\\]*|[\w.+-]+)"
)
_ASSIGNED = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,200})\s?=\s?")
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s&;,\"')}\]]+", re.DOTALL)
_INNER_OPTION = re.compile(
    r"(?<![\w-])(--?[A-Za-z][\w.-]{0,200})(\s{1,8})(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"'-][^\s]*)"
)
_HEADER = re.compile(r"(?<![\w.-])([A-Za-z][\w-]{0,100})(:\s{0,8})(?=[^\s/])(.+)")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)(\s{1,4})[A-Za-z0-9+/=._~-]{8,}")


def names_secret(name: str) -> bool:
    """Tell whether a name (of an option, a variable, a field) says that its value is secret.

    `--hf-token`, `API_KEY` and `trainer.authToken` do; `--tokenizer`, `--max-tokens`,
    `--pad-token` and `--token-file` do not.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[-1] in _ABOUT or words[0] in _SWITCHES:
        return False
    return any(_secret_at(words, index) for index in range(len(words)))


def _secret_at(words: list[str], index: int) -> bool:
    word = words[index]
    before = words[index - 1] if index else ""
    if word == "token":
        return before not in _TEXT_TOKENS
    if word == "tokens":
        return before in _TOKEN_KINDS
    if word in ("key", "keys"):
        return before in _KEY_KINDS
    return word in _SECRET_WORDS or _ends_secret(word)


def _ends_secret(word: str) -> bool:
    """Tell of words written as one: PGPASSWORD, `dbpasswd`, `hftoken`; not `padtoken`."""
    stem = word.removesuffix("token")
    return word.endswith(_SECRET_ENDS) or (stem != word and stem not in _TEXT_TOKENS)


def redacted_text(text: str) -> str:
    """Give a text without the secrets that can be told in it; the rest stays as it is."""
    text = _SHAPES.sub(REDACTED, text)
    text = _URL_LOGIN.sub(f"{REDACTED}@", text)
    text = _WEBHOOK.sub(REDACTED, text)
    text = _QUOTED.sub(_quoted, text)
    text = _INNER_OPTION.sub(_assigned, text)
    text = _ESCAPED.sub(_quoted, text)
    text = _without_assigned(text)
    text = _HEADER.sub(_assigned, text)
    return _SCHEME.sub(rf"\1\2{REDACTED}", text)


def _quoted(found: re.Match[str]) -> str:
    quote, name, colon = found[1], found[2], found[3]
    return (
        f"{quote}{name}{quote}{colon}{quote}{REDACTED}{quote}" if names_secret(name) else found[0]
    )


def _assigned(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REDACTED}" if names_secret(found[1]) else found[0]


def _without_assigned(text: str) -> str:
    """Take out values of `NAME=VALUE`; names within a value (`env=TOKEN=x`) are seen, too."""
    parts: list[str] = []
    done = at = 0
    while found := _ASSIGNED.search(text, at):
        at = found.end()
        value = _VALUE.match(text, at) if names_secret(found[1]) else None
        if value is not None:
            parts += [text[done:at], REDACTED]
            done = at = value.end()
    return "".join(parts) + text[done:]


def redacted_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Give a command line without its secrets: as many words, in the same order."""
    found: list[str] = []
    waiting = several = False
    login = False
    for given in argv:
        word = decoded(given)
        option = _OPTION.fullmatch(word) is not None
        if waiting and not option:
            found.append(REDACTED)
            waiting = several
            continue
        if login and not option:
            user, colon, _ = word.partition(":")
            found.append(f"{user}{colon}{REDACTED}" if colon else redacted_text(word))
            login = False
            continue
        name, equals, _ = word.partition("=")
        waiting = option and not equals and names_secret(name)
        several = waiting and _takes_several(name)
        login = word in ("-u", "--user", "--proxy-user", "-U")
        if equals and _is_name(name) and names_secret(name):
            found.append(f"{name}={REDACTED}")
        else:
            found.append(redacted_text(word))
    return tuple(found)


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[-+~@/]{0,2}[A-Za-z_][\w.\-\[\]/]*", text) is not None


def _takes_several(name: str) -> bool:
    """Tell whether more values may follow: plural names, and vLLM's `--api-key`."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return words[-1] in _SEVERAL or words[-2:] == ["api", "key"]
