"""Short options that take a secret: they mean that only behind the name of certain programs."""

from __future__ import annotations

import re

_DATABASE = "mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlsh mariadb mariadb-dump"
_MONGO = "mongo mongosh mongodump mongorestore mongoexport mongoimport"
_BY_OPTION = {
    "-p": f"sshpass {_DATABASE} {_MONGO} 7z 7za 7zr rar unrar clickhouse",
    "-P": "zip unzip",
    "-a": "redis-cli",
    "-w": "ldapsearch ldapmodify ldapadd ldapwhoami kdb5_util",
    "-k": "openssl",
}
_JOINED = ("-p", "-P")  # `-pVALUE`
_OPTIONS: dict[str, frozenset[str]] = {}
for _option, _programs in _BY_OPTION.items():
    for _program in _programs.split():
        _OPTIONS[_program] = _OPTIONS.get(_program, frozenset()) | {_option}
# `docker run -p` is a port, `docker login -p` a password.
_LOGINS = frozenset("docker podman nerdctl skopeo helm oras buildah az crane".split())
_WRAPPERS = frozenset({"sshpass"})  # what follows their options is another program
_NAMES = "|".join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))
_IN_TEXT = re.compile(
    rf"(?<![\w.-])({_NAMES})(?=\s)((?:\s[^|;&\n]{{0,300}}?)?\s)(-[pPawk])(\s{{0,4}})"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"']+)"
)
_LOGIN_IN_TEXT = re.compile(
    rf"(?<![\w.-])({'|'.join(sorted(_LOGINS))})(\s[^|;&\n]{{0,100}}?\blogin\s"
    r"(?:[^|;&\n]{0,300}?\s)?)(-p)(\s{0,4})(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s\"']+)"
)


class ShortOptions:
    """Follows a command line word by word, and knows which short options take a secret there."""

    def __init__(self) -> None:
        """Begin before the first word."""
        self._taken: frozenset[str] = frozenset()
        self._wrapper = self._login = False

    def see(self, word: str) -> None:
        """Take in a word that is no value of an option."""
        if word.startswith("-"):
            return
        program = re.split(r"[/\\]", word)[-1].removesuffix(".exe")
        if program in _OPTIONS:
            self._taken = _OPTIONS[program]
            self._wrapper = program in _WRAPPERS
            return
        if self._wrapper:
            self._taken, self._wrapper = frozenset(), False
        if program in _LOGINS:
            self._login = True
        elif self._login and program == "login":
            self._taken = frozenset({"-p"})

    def takes(self, word: str) -> bool:
        """Tell whether this word is such an option, and its value is the next word."""
        return word in self._taken

    def attached(self, word: str) -> str | None:
        """Give the option that has its value in the same word (`-pVALUE`)."""
        joined = len(word) > 2 and word[:2] in _JOINED and word[:2] in self._taken
        return word[:2] if joined else None


def without_option_values(text: str, instead: str) -> str:
    """Take such values out of a command line that stands in a text."""

    def redacted(found: re.Match[str]) -> str:
        if found[1] in _OPTIONS and found[3] not in _OPTIONS[found[1]]:
            return found[0]
        return f"{found[1]}{found[2]}{found[3]}{found[4]}{instead}"

    return _LOGIN_IN_TEXT.sub(redacted, _IN_TEXT.sub(redacted, text))
