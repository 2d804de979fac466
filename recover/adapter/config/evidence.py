"""Where every field of a rebuilt configuration comes from, and what stands in the way of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....records.strict_json import Json
from ..statement import Source, Statement

SCHEMA = "reefkit.config-evidence/1"


@dataclass(frozen=True)
class Evidence:
    """How one field is known. `written` is what the configuration holds.

    It differs from `value` only for a field that is unknown: `value` is then null, and `written`
    PEFT's neutral value. `assumed` says that this could matter on loading. `overruled` names
    statements that gave way.
    """

    value: Json
    source: Source
    origin: str
    written: Json
    assumed: bool = False
    overruled: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Give `value`, `source` and `from`, and the rest where there is any."""
        document: dict[str, Json] = {
            "value": self.value,
            "source": self.source.value,
            "from": self.origin,
        }
        if self.written != self.value:
            document["written"] = self.written
        if self.assumed:
            document["assumed"] = True
        if self.overruled:
            document["overruled"] = list[Json](self.overruled)
        return document


@dataclass(frozen=True)
class Side:
    """One of the values of a conflict, and where it stands."""

    value: Json
    source: Source
    origin: str

    @classmethod
    def of(cls, statement: Statement) -> Side:
        """Take the side of a statement."""
        return cls(statement.value, statement.source, statement.origin)


@dataclass(frozen=True)
class Conflict:
    """Sources that cannot all be right; `message` is a sentence fit to print."""

    field: str
    message: str
    sides: tuple[Side, ...]

    def to_json(self) -> dict[str, Json]:
        """Give the field, the sentence, and each side."""
        return {
            "field": self.field,
            "message": self.message,
            "sides": [
                {"value": s.value, "source": s.source.value, "from": s.origin} for s in self.sides
            ],
        }


@dataclass(frozen=True)
class Explained:
    """A difference between tensors and a recipe that has a known lawful cause."""

    field: str
    cause: str
    message: str

    def to_json(self) -> dict[str, Json]:
        """Give the field, the cause's name and the sentence."""
        return {"field": self.field, "cause": self.cause, "message": self.message}


@dataclass(frozen=True)
class Need:
    """A field without a source that a configuration cannot be written without."""

    field: str
    reason: str
    flag: str

    def to_json(self) -> dict[str, Json]:
        """Give the field, why it must be known, and the flag that states it."""
        return {"field": self.field, "reason": self.reason, "flag": self.flag}


@dataclass
class Ledger:
    """What is found out field by field; the one mutable thing of this stage."""

    fields: dict[str, Evidence] = field(default_factory=dict[str, Evidence])
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    explained: list[Explained] = field(default_factory=list[Explained])
    needs: list[Need] = field(default_factory=list[Need])
    cautions: list[str] = field(default_factory=list[str])

    def know(
        self,
        name: str,
        value: Json,
        source: Source,
        origin: str,
        overruled: tuple[str, ...] = (),
    ) -> None:
        """Enter a field that has a source."""
        self.fields[name] = Evidence(value, source, origin, value, overruled=overruled)

    def assume(self, name: str, written: Json, why: str, *, matters: bool = False) -> None:
        """Enter a field that has no source, and for which a neutral value is written."""
        self.fields[name] = Evidence(None, Source.UNKNOWN, why, written, assumed=matters)

    def need(self, name: str, reason: str, flag: str) -> None:
        """Enter a field without which nothing may be written."""
        self.fields.setdefault(name, Evidence(None, Source.UNKNOWN, reason, None))
        self.needs.append(Need(name, reason, flag))

    def conflict(self, name: str, message: str, *sides: Side) -> None:
        """Enter sources that contradict each other."""
        self.fields.setdefault(name, Evidence(None, Source.UNKNOWN, message, None))
        self.conflicts.append(Conflict(name, message, sides))

    @property
    def complete(self) -> bool:
        """Tell whether a configuration may be written."""
        return not self.conflicts and not self.needs

    def config(self) -> dict[str, Json]:
        """Give the configuration as it is written."""
        return {name: self.fields[name].written for name in sorted(self.fields)}

    def to_json(self) -> dict[str, Json]:
        """Give the part of the evidence document that this holds."""
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            "fields": {name: known.to_json() for name, known in sorted(self.fields.items())},
            "conflicts": [conflict.to_json() for conflict in self.conflicts],
            "explained": [cause.to_json() for cause in self.explained],
            "missing": [need.to_json() for need in self.needs],
            "cautions": list[Json](self.cautions),
        }
