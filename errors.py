"""One error tree; each class carries the exit code that the commands answer with.

ReefError
├── Unusable            2  the input cannot be judged: wrong usage, damaged or hostile data
│   └── HeaderError     2  a safetensors header breaks a rule (recover/formats/safetensors.py)
├── NotPermitted        2  the kernel refused; the remedy says what would open the way
├── ProcessGone         2  no such process, or it has become another one
├── DestinationExists   2  something is there already and --force was not given
├── NothingFound        1  looked, and there was nothing to act on
├── DoesNotHold         1  what was asked for is not the case, or less was saved than asked for
├── Untrusted           3  intact, but nobody the verifier trusts signed it
├── Blocked             4  publication stopped: leftovers, secrets or scheduler traces
└── NotFinished         5  nothing is lost, and `resume` continues
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What both commands answer with; the same numbers mean the same everywhere."""

    HOLDS = 0
    DOES_NOT_HOLD = 1
    CANNOT_JUDGE = 2
    UNTRUSTED = 3
    BLOCKED = 4
    NOT_FINISHED = 5


class ReefError(Exception):
    """A failure that a person can act on: one sentence, and what to do about it."""

    exit_code: ExitCode = ExitCode.CANNOT_JUDGE

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @property
    def code(self) -> str:
        """Name the cause in a form that programs can match: the class name."""
        return type(self).__name__


class Unusable(ReefError):
    """The input cannot be judged: wrong usage, damaged or hostile data."""


class HeaderError(Unusable):
    """A safetensors header breaks one of the format's rules."""


class NotPermitted(ReefError):
    """The kernel refused what was needed."""


class ProcessGone(ReefError):
    """No such process, or the process id now belongs to another one."""


class DestinationExists(ReefError):
    """Something is at the destination already and `--force` was not given."""


class NothingFound(ReefError):
    """There was nothing to act on."""

    exit_code = ExitCode.DOES_NOT_HOLD


class DoesNotHold(ReefError):
    """What was asked for is not the case, or less was saved than asked for."""

    exit_code = ExitCode.DOES_NOT_HOLD


class Untrusted(ReefError):
    """Intact, but nobody the verifier trusts signed it."""

    exit_code = ExitCode.UNTRUSTED


class Blocked(ReefError):
    """Publication stopped: leftovers, secrets or scheduler traces were found."""

    exit_code = ExitCode.BLOCKED


class NotFinished(ReefError):
    """The store could not be reached or refused; nothing is lost."""

    exit_code = ExitCode.NOT_FINISHED
