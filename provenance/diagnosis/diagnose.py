"""Say in a sentence why a file does not match its digest; the verdict is not touched by it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...errors import ReefError
from ..content.members import Content, Member
from ..hashing import maker_of
from ..sums.model import SumsLine
from .compressed import compressed
from .cut_off import wrong_size, zero_tail
from .flipped_bit import flip_by_trial
from .known import Known
from .other_content import error_page
from .placement import misplaced
from .pointer import lfs_pointer
from .subject import Subject
from .text_changes import text_change

_BY_TRIAL = 16 << 10
_NOT_LOOKED = "Its bytes are other ones than those listed; why was not looked into any more."


def diagnose(content: Content, member: Member, line: SumsLine, known: Known) -> str:
    """Explain a mismatch: with proof where there is one, else by what the file looks like.

    Raises nothing: a file that cannot be read any more gets the plain sentence.
    """
    subject = Subject(content, member, line, known)
    return _explanation(subject) or _plain(subject)


class Diagnoses:
    """Explains one mismatch after the other, for as long as that is worth its time.

    When thousands of files differ, what the first ones show holds for the others. After `seconds`
    in all, or `most_in_vain` files in a row that nothing explained, each gets the plain sentence,
    which says that nobody looked.
    """

    def __init__(
        self, content: Content, known: Known, *, seconds: float = 2.0, most_in_vain: int = 50
    ) -> None:
        """Take what `diagnose` takes beside the file and its line."""
        self._content = content
        self._known = known
        self._left = seconds
        self._most_in_vain = most_in_vain
        self._in_vain = 0

    def of(self, member: Member, line: SumsLine) -> str:
        """Explain a mismatch as `diagnose` does, or say that its cause was not looked into."""
        subject = Subject(self._content, member, line, self._known)
        if self._left <= 0 or self._in_vain >= self._most_in_vain:
            return misplaced(subject) or _NOT_LOOKED  # which reads nothing
        start = time.monotonic()
        found = _explanation(subject)
        self._left -= time.monotonic() - start
        self._in_vain = self._in_vain + 1 if found is None else 0
        return found or _plain(subject)


def _explanation(subject: Subject) -> str | None:
    if maker_of(subject.line.algorithm) is None:
        return None
    try:
        for explain in _EXPLANATIONS:
            subject.begin()
            found = explain(subject)
            if found is not None:
                return found
    except (ReefError, OSError):
        pass
    return None


def _empty(subject: Subject) -> str | None:
    size = subject.member.size
    if size == 0:
        return "It is empty: get the file again."
    if subject.is_listed(()):
        return f"The listed file is empty, and this one has {size:,} bytes."
    return None


def _tensors(subject: Subject) -> str | None:
    if subject.entry is None:
        return None
    from .tensors import tensor_difference

    return tensor_difference(subject)


def _one_bit(subject: Subject) -> str | None:
    if subject.member.size > _BY_TRIAL:
        return None
    data = subject.read(0, _BY_TRIAL)
    found = flip_by_trial(data, subject.hash, subject.line.digest, lambda: subject.out_of_time)
    if found is None:
        return None
    return f"One bit is flipped: bit {found[1]} of byte {found[0]:,}. Copy it again."


def _plain(subject: Subject) -> str:
    size, here = subject.listed_size, subject.member.size
    if size is not None and size == here:
        return f"Its {here:,} bytes are other ones than those listed; no simple change explains it."
    return "Its bytes are other ones than those listed; no simple change explains it."


# The proven and the certain first; what a file merely looks like at the end.
_EXPLANATIONS: tuple[Callable[[Subject], str | None], ...] = (
    _empty,
    lfs_pointer,
    misplaced,
    compressed,
    text_change,
    error_page,
    _tensors,
    wrong_size,
    _one_bit,
    zero_tail,
)
