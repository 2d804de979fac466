"""Take secrets out of command lines and values before they are recorded.

A value goes when the name it is given under says so, a part of a text when it has the shape of a
known kind of token, of a private key, or of a password in a URL. In doubt it goes. Paths stay as
they were given: what they tell is the redaction of a whole package to judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...records.names import decoded
from .secret_names import names_secret, parameter_names_secret, takes_several
from .secret_options import ShortOptions, without_option_values

REDACTED = "<redacted>"

_OPTION = re.compile(r"--?[A-Za-z][\w.:-]*(=.*)?", re.DOTALL)
# What follows the option of a secret is its value unless it is surely an option itself.
_SURELY_OPTION = re.compile(
    r"--[a-z]+[0-9]{0,2}(?:[_.-][a-z]+[0-9]{0,2}|[A-Z][a-z]+)*(=.*)?", re.DOTALL
)
# The second part is a type, as in `--token:str=x`.
_NAME = re.compile(r"[-+~@/]{0,2}[A-Za-z_][\w.\-\[\]/]*(?::[A-Za-z_][\w\[\], |]*)?")
_LOGINS = ("-u", "--user", "--proxy-user", "-U")
_LOGIN = re.compile(r"(-[uU]|--user=|--proxy-user=)([^:=\s/-][^:\s/]*):(?!//)(.+)", re.DOTALL)
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
    r"|\d{8,10}:AA[\w-]{32,34}(?![\w-])"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{40,}"
    r"|(?<![_-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")",
    re.DOTALL,
)
_WEBHOOK = re.compile(
    r"(hooks\.slack(?:-gov)?\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/"
    r"|api\.telegram\.org/(?:file/)?bot|\.webhook\.office\.com/|outlook\.office\.com/webhook/"
    r"|/open-apis/bot/v2/hook/|//[^/\s\"'<>]{1,255}/hooks/(?=[\w-]{20}))[^\s\"'<>?#]+"
)
_PASS_SOURCE = re.compile(r"(?<![\w:./-])pass:[^\s\"']+")
_PARAMETER = re.compile(r"([?&](?:amp;)?)([\w.~%\[\]-]{1,200})=([^&#\s\"'<>]+)")
_NESTED = re.compile(r"(\\{0,8}[\"'])([A-Za-z][\w.-]{0,200})\1\s{0,8}:\s{0,8}(?=[\[{])")
_BRACKETS = re.compile(r"[\[\]{}]")
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


def redacted_text(text: str) -> str:
    """Give a text without the secrets that can be told in it; the rest stays as it is."""
    text = _SHAPES.sub(REDACTED, text)
    text = _URL_LOGIN.sub(f"{REDACTED}@", text)
    text = _WEBHOOK.sub(rf"\1{REDACTED}", text)
    text = _PASS_SOURCE.sub(f"pass:{REDACTED}", text)
    text = _PARAMETER.sub(_parameter, text)
    text = without_option_values(text, REDACTED)
    text = _without_nested(text)
    text = _QUOTED.sub(_quoted, text)
    text = _INNER_OPTION.sub(_assigned, text)
    text = _ESCAPED.sub(_quoted, text)
    text = _without_assigned(text)
    text = _HEADER.sub(_assigned, text)
    return _SCHEME.sub(rf"\1\2{REDACTED}", text)


def _parameter(found: re.Match[str]) -> str:
    secret = parameter_names_secret(found[2])
    return f"{found[1]}{found[2]}={REDACTED}" if secret else found[0]


def _without_nested(text: str) -> str:
    """Take out lists and objects that stand under a secret name; unended ones to the end."""
    parts: list[str] = []
    done = 0
    for found in _NESTED.finditer(text):
        if found.end() < done or not names_secret(found[2]):
            continue
        quote, depth, end = found[1], 0, len(text)
        for bracket in _BRACKETS.finditer(text, found.end()):
            depth += 1 if bracket[0] in "[{" else -1
            if depth == 0:
                end = bracket.end()
                break
        parts += [text[done : found.end()], f"{quote}{REDACTED}{quote}"]
        done = end
    return "".join(parts) + text[done:]


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
    state = _State()
    return tuple(state.redacted(decoded(word)) for word in argv)


class _State:
    """What the words before say about the next one."""

    def __init__(self) -> None:
        self._waiting = self._several = self._login = False
        self._short = ShortOptions()

    def redacted(self, word: str) -> str:
        """Give one word without its secrets."""
        option = _OPTION.fullmatch(word) is not None
        if self._waiting and _SURELY_OPTION.fullmatch(word) is None:
            self._waiting = self._several
            if option:  # it may be one after all, and have a value itself
                self._expect(word)
            return REDACTED
        if self._login and not option:
            self._login = False
            user, colon, _ = word.partition(":")
            return f"{user}{colon}{REDACTED}" if colon else redacted_text(word)
        self._waiting = self._several = False
        attached = self._short.attached(word)
        if attached is not None:
            return f"{attached}{REDACTED}"
        self._expect(word)
        self._short.see(word)
        name, equals, _ = word.partition("=")
        if equals and _is_name(name) and names_secret(name):
            return f"{name}={REDACTED}"
        login = _LOGIN.fullmatch(word)
        return f"{login[1]}{login[2]}:{REDACTED}" if login else redacted_text(word)

    def _expect(self, word: str) -> None:
        """Set what is expected of the next word, if this is an option without a value."""
        self._login = word in _LOGINS
        if self._short.takes(word):
            self._waiting = True
        elif _OPTION.fullmatch(word) and "=" not in word and names_secret(word):
            self._waiting, self._several = True, takes_several(word)


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
