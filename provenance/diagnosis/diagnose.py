"""Say in a sentence why a file does not match its digest; the verdict is not touched by it."""

from __future__ import annotations

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


def diagnose(content: Content, member: Member, line: SumsLine, known: Known) -> str:
    """Explain a mismatch: with proof where there is one, else by what the file looks like.

    Raises nothing: a file that cannot be read any more gets the plain sentence.
    """
    subject = Subject(content, member, line, known)
    if maker_of(line.algorithm) is None:
        return _plain(subject)
    try:
        for explain in _EXPLANATIONS:
            subject.begin()
            found = explain(subject)
            if found is not None:
                return found
    except (ReefError, OSError):
        pass
    return _plain(subject)


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
