"""The base model's identity: a Hub id that somebody states, never a local path by itself."""

from __future__ import annotations

from ....records.names import printable
from ...base.model import Base
from ..recipes.identity import looks_like_hub_id
from ..statement import Source, Statement
from .evidence import Ledger
from .statements import Statements, choose, take

_FIELD = "base_model_name_or_path"
_REVISION = "revision"
_FLAG = "--set base_model_name_or_path=OWNER/NAME"


def _is_identity(said: Statement) -> bool:
    """Tell whether a recipe names a model on the Hub; `local` marks a path beside the recipe."""
    return isinstance(said.value, str) and looks_like_hub_id(said.value) and not said.local


def settle_identity(statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter the base's identity: of --set, of --base, or of a recipe; paths are only noted."""
    setting = statements.set_on_command_line(_FIELD)
    stated = statements.of_recipes(_FIELD)
    named = [s for s in stated if _is_identity(s)]
    paths = [s for s in stated if s not in named and s.value]
    noted = tuple(f"{s.origin} (a local path: {printable(str(s.value))[:200]})" for s in paths)
    if base is not None and base.identity:
        origin = f"--base {base.label}"
        named.insert(0, Statement(_FIELD, base.identity, Source.STATED, origin))
    if setting is not None and setting.value is None:
        setting = None
    if setting is not None:
        other = tuple(f"{s.origin} ({s.value})" for s in named if s.value != setting.value)
        ledger.know(_FIELD, setting.value, Source.STATED, setting.origin, (*other, *noted))
        if other:
            ledger.cautions.append(f"{setting.origin} overrules {other[0]}.")
        elif not looks_like_hub_id(str(setting.value)):
            ledger.cautions.append(
                f"{setting.origin} is no Hub id: others cannot tell which model that is."
            )
        return
    chosen = choose(_FIELD, named, ledger)
    if chosen is not None:
        ledger.know(_FIELD, chosen.value, chosen.source, chosen.origin, noted)
    elif not named:
        said = f"; {paths[0].origin} gives only a local path" if paths else ""
        hint = base.identity_hint if base else None
        if hint:
            said += f"; the base's config.json was once saved from {hint}"
        ledger.need(_FIELD, f"no tensor tells which model it was trained on{said}", _FLAG)
        if noted:
            known = ledger.fields[_FIELD]
            ledger.fields[_FIELD] = type(known)(
                known.value, known.source, known.origin, known.written, overruled=noted
            )


def settle_revision(statements: Statements, ledger: Ledger) -> None:
    """Enter the base's revision: of --set, or of a document that states this very base.

    A revision of one model says nothing of another: what other documents state is not used.
    """
    setting = statements.set_on_command_line(_REVISION)
    if setting is not None:
        take(_REVISION, statements, ledger)
        return
    known = ledger.fields.get(_FIELD)
    base = known.value if known is not None else None
    of_base: list[Statement] = []
    others: list[Statement] = []
    for document in statements.recipes:
        bases = {str(said.value) for said in document.of(_FIELD)}
        revisions = [said for said in document.of(_REVISION) if said.value is not None]
        (of_base if base is not None and bases == {str(base)} else others).extend(revisions)
    chosen = choose(_REVISION, of_base, ledger)
    unused = tuple(f"{s.origin} ({printable(str(s.value))[:200]})" for s in others)
    if chosen is not None:
        ledger.know(_REVISION, chosen.value, chosen.source, chosen.origin, unused)
    elif not of_base:
        ledger.assume(_REVISION, None, "no source says; not needed on loading")
    if unused and not of_base:
        ledger.cautions.append(
            f"The revision of {unused[0]} is not used: it was not stated with "
            "this base; state it with --set revision=… if it is meant."
        )
