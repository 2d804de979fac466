"""What a comparison of two checkpoints found, and its JSON form `reefkit.comparison/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

SCHEMA = "reefkit.comparison/1"
CASTABLE = frozenset({"F64", "F32", "F16", "BF16"})


class Result(str, Enum):
    """How alike two checkpoints are, from best to worst."""

    BYTE_IDENTICAL = "byte-identical"
    RE_SERIALISED = "re-serialised"
    VALUE_IDENTICAL = "value-identical"
    CAST = "cast"
    DIFFERENT = "different"

    @property
    def rank(self) -> int:
        """The place in the order, 0 for the best."""
        return list(Result).index(self)


def largest(ulps: Iterable[int | None]) -> int | None:
    """Give the largest distance that is known, null if none is."""
    return max((ulp for ulp in ulps if ulp is not None), default=None)


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs between two runs of elements.

    `first` is the index of the first element that differs. `max_ulp` is null where nothing
    differs, where a number faces a NaN, and for dtypes that are compared by their bytes.
    """

    count: int = 0
    first: int | None = None
    max_ulp: int | None = None

    def followed_by(self, later: Differences, offset: int) -> Differences:
        """Add the differences of elements that begin `offset` elements further on."""
        first = self.first
        if first is None and later.first is not None:
            first = later.first + offset
        ulp = largest((self.max_ulp, later.max_ulp))
        return Differences(self.count + later.count, first, ulp)


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where A and B part: an element of a tensor, and its absolute byte offset in A.

    `element` is null where tensors do not match at all, `offset` where A has no such tensor, and
    `tensor` where no tensors were compared; `offset` then is that of the first differing byte.
    """

    tensor: str | None
    element: int | None
    offset: int | None
    file: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON form; `file` is there in comparisons of folders only."""
        where: dict[str, object] = {
            "tensor": self.tensor,
            "element": self.element,
            "offset": self.offset,
        }
        return where if self.file is None else {**where, "file": self.file}


@dataclass(frozen=True, slots=True)
class Cast:
    """One side of a tensor is the other, rounded to nearest even.

    `source` is the side that holds the original; "either" where no value was changed by the cast,
    so that both directions give the same bytes (`from_dtype` is that of A then).
    """

    from_dtype: str
    to_dtype: str
    source: Literal["a", "b", "either"]

    def to_json(self) -> dict[str, object]:
        """Give the JSON form."""
        return {"from": self.from_dtype, "to": self.to_dtype, "source": self.source}


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that both sides have and that is not the same; `dtype` is that of A.

    `reason` is null where only values differ. Where dtypes differ every element counts, and
    `not_cast` counts those that a cast of the other side does not explain (null where there is no
    rule for a cast); `first_element` and `max_ulp` then are about these.
    """

    tensor: str
    dtype: str
    elements: int
    different_elements: int
    first_element: int | None
    max_ulp: int | None
    reason: str | None = None
    not_cast: int | None = None
    file: str | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON form; `file` is there in comparisons of folders only."""
        found: dict[str, object] = {
            "tensor": self.tensor,
            "dtype": self.dtype,
            "elements": self.elements,
            "different_elements": self.different_elements,
            "first_element": self.first_element,
            "max_ulp": self.max_ulp,
            "reason": self.reason,
            "not_cast": self.not_cast,
        }
        return found if self.file is None else {**found, "file": self.file}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for two files, or for two folders when `files` is not null.

    `equal_tensors` counts tensors with the same values, casts included. `different_elements`
    counts all elements of tensors that only one side has, too. `re_serialised` says that values
    are identical while header, order or trailing bytes are not. For folders `only_in_a` and
    `only_in_b` name files; the tensors that only one side has are in `files`.
    """

    result: Result
    note: str | None = None
    re_serialised: bool = False
    first_difference: FirstDifference | None = None
    different_elements: int = 0
    max_ulp: int | None = None
    equal_tensors: int = 0
    different_tensors: tuple[TensorDifference, ...] = ()
    casts: tuple[Cast, ...] = ()
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    files: tuple[tuple[str, Comparison], ...] | None = None

    def to_json(self) -> dict[str, object]:
        """Give the JSON document. Names in it are as found, and not safe for a terminal."""
        document = {"schema": SCHEMA, **self._body()}
        if self.files is not None:
            document["files"] = [{"file": name, **one._body()} for name, one in self.files]
        return document

    def _body(self) -> dict[str, object]:
        first = self.first_difference
        return {
            "result": self.result.value,
            "note": self.note,
            "re_serialised": self.re_serialised,
            "first_difference": None if first is None else first.to_json(),
            "different_elements": self.different_elements,
            "max_ulp": self.max_ulp,
            "tensors": {
                "equal": self.equal_tensors,
                "different": [tensor.to_json() for tensor in self.different_tensors],
            },
            "casts": [{**cast.to_json(), "tensors": n} for cast, n in Counter(self.casts).items()],
            "only_in_a": list(self.only_in_a),
            "only_in_b": list(self.only_in_b),
        }


def combine(
    files: Sequence[tuple[str, Comparison]],
    *,
    only_in_a: Sequence[str] = (),
    only_in_b: Sequence[str] = (),
    note: str | None = None,
) -> Comparison:
    """Sum up the comparisons of files, in the order given; the result is the worst of them."""
    found = [one for _, one in files]
    firsts = [
        replace(one.first_difference, file=name) for name, one in files if one.first_difference
    ]
    return Comparison(
        result=max((one.result for one in found), key=lambda result: result.rank),
        note=note,
        re_serialised=any(one.re_serialised for one in found),
        first_difference=firsts[0] if firsts else None,
        different_elements=sum(one.different_elements for one in found),
        max_ulp=largest([one.max_ulp for one in found]),
        equal_tensors=sum(one.equal_tensors for one in found),
        different_tensors=tuple(
            replace(tensor, file=name) for name, one in files for tensor in one.different_tensors
        ),
        casts=tuple(cast for one in found for cast in one.casts),
        only_in_a=tuple(only_in_a),
        only_in_b=tuple(only_in_b),
        files=tuple(files),
    )
