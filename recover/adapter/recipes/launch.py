"""One command of a script as a document: its program, and the program's own arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ....records.names import printable
from ....records.strict_json import Json
from .document import (
    OWN_CONFIGURATIONS,
    Document,
    Entry,
    Kind,
    Unresolved,
    Value,
    builds_on,
    normalised,
)
from .shell_state import NAMED_VALUE, Expanded, Script

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@-]*)=", re.ASCII)
_ARGUMENT = re.compile(r"-[-A-Za-z]|[+~]{0,2}[A-Za-z_][\w./@-]*=", re.ASCII)
_SCRIPT = re.compile(r"[^\0]+\.py")
# Programs that training is started with by their own name.
_PROGRAMS = frozenset("trl swift megatron llamafactory-cli llamafactory axolotl tune".split())
_NOT_TRAINING = re.compile(
    r"(?:run_)?(?:infer(?:ence)?|eval(?:uate)?|export|deploy|app|web-?ui|webchat|chat|api|version|env"
    r"|vllm[-_]serve|serve(?:_rm)?|merge[-_]lora|merge[-_]sharded[-_]fsdp[-_]weights|preprocess|fetch"
    r"|sample|rollout|download|ls|cp|validate|cat|quantize|delinearize[-\w]*|lm[-_]eval|model_merger"
    r"|legacy_model_merger|main_generation|main_eval|lora_combiner|interactive_chat|batch_inference"
    r"|help|config|agent|train_tokenizer)"
)
_CONFIG_FLAGS = frozenset(
    "--config --config_path --config_name --config_dir --cfg --experimental_config @ -c -cn -cp "
    "-cd --job.config_file --recipe --yaml --args_file".split()
)
_FOREIGN = re.compile(
    r"--(?:config_file|deepspeed\w*|ds_config\w*|fsdp\w*|accelerate\w*|runtime_env\w*|\w*template\w*"
    r"|.*tokenizer.*|.*data.*|.*file|.*files|output\w*|.*prompt.*|.*reward.*|.*tool.*|.*env.*)$"
)
_YAML = re.compile(r".+\.(?:ya?ml|toml)")
_CONFIG_FILE = re.compile(r".+\.(?:ya?ml|toml|json)")
_SWITCH = re.compile(
    r"--?(?:(?:no|do|use|enable|disable|with|load_in|overwrite|push|is|skip|save_only|auto)_.*"
    r"|.*_(?:checkpointing|only|enabled?|remote_code|offload)|bf16|fp16|tf32|packing|debug|verbose"
    r"|quiet|colocate\w*|streaming|multi_gpu|standalone|gradient_checkpointing|train|shuffle)$"
)


@dataclass(frozen=True)
class Launch:
    """A command's words, whether it may not have run, and whether its function is called.

    `wrapped` says that a function of the script's own is given the command, and runs it.
    """

    words: tuple[Expanded, ...]
    conditional: bool
    called: bool
    wrapped: bool = False

    def document(self, script: Script) -> Document:
        """Read the arguments of its program; a command that does not train says nothing."""
        name = script.name
        start = _program(self.words)
        if _does_not_train(self.words, start):
            return Document(name, Kind.SHELL, ())
        arguments = _Arguments(script, self.words[start + 1 :])
        entries = tuple(arguments.entries())
        gaps = [*arguments.gaps]
        file = _configuration(self.words[start + 1 :])
        if file is not None:
            gaps.append(builds_on(name, printable(file)[:200]))
        notes: list[str] = []
        line = self.words[start].line
        if self.wrapped:
            gaps.append(
                f"{name}:{line}: a function of the script's own runs the command, and may add to "
                "it: no defaults are used"
            )
        if not self.called:
            uncalled = Unresolved("it stands in a function that nothing here calls")
            entries = tuple(replace(entry, value=uncalled, rest=None) for entry in entries)
            gaps.append(f"{name}:{line}: {uncalled.reason}: no defaults are used")
        elif self.conditional:
            notes.append(
                f"{name}:{line}: the command stands under a condition or in a loop: it is read as "
                "if it ran"
            )
        return Document(
            name,
            Kind.SHELL,
            entries,
            _said(self.words, start),
            tuple(notes),
            tuple(gaps),
            line=line,
            called=self.called,
        )


def _program(words: Sequence[Expanded]) -> int:
    """Find the program that the arguments are for; what stands before it are its launchers'."""
    doubtful: int | None = None
    for position, word in enumerate(words):
        before = words[position - 1].text if position else ""
        if before in ("-m", "--module") and not word.text.startswith("-"):
            return position
        base = word.text.rpartition("/")[2]
        if base in _PROGRAMS or _SCRIPT.fullmatch(base):
            if not before.startswith("-"):
                return position
            doubtful = position if doubtful is None else doubtful
    return doubtful or 0


def _said(words: Sequence[Expanded], start: int) -> tuple[str, ...]:
    """Give the program and its subcommand; of an unknown one all words up to its flags."""
    texts = [word.text for word in words]
    stop = next((n for n in range(start + 1, len(texts)) if _ARGUMENT.match(texts[n])), len(texts))
    return tuple(text for text in texts[start : min(stop, start + 4)] if "\0" not in text)


def _does_not_train(words: Sequence[Expanded], start: int) -> bool:
    if not words:
        return True
    program = words[start].text
    base = program.rpartition("/")[2]
    if base in _PROGRAMS:
        following = words[start + 1].text if start + 1 < len(words) else ""
        return _NOT_TRAINING.fullmatch(following) is not None
    parts = base.removesuffix(".py").split(".")
    return any(_NOT_TRAINING.fullmatch(part) for part in parts)


def _configuration(words: Sequence[Expanded]) -> str | None:
    """Name the file that a command builds on, if it is not what the trainer brings."""
    before = ""
    named: str | None = None
    path, brought = "", False
    for position, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        flag = normalised_flag(flag)
        if not equals and position + 1 < len(words):
            value = words[position + 1].text
        value = value.strip("'\"")
        if flag in ("--config_name", "-cn"):
            brought = value.split(".")[0] in OWN_CONFIGURATIONS
            named = named if brought else value
        elif flag in ("--config_path", "-cp", "--config_dir", "-cd"):
            path = value
        elif flag in _CONFIG_FLAGS:
            named = value
        elif flag.startswith("-") and equals and _YAML.fullmatch(value):
            named = named if _FOREIGN.match(flag) else value
        elif _CONFIG_FILE.fullmatch(word.text) and not equals:
            positional = not before.startswith("-")
            suspect = _YAML.fullmatch(word.text) or re.search("conf|args|cfg", before)
            if positional or (suspect and not _FOREIGN.match(before)):
                named = word.text
        elif equals and ("@" in flag or re.fullmatch(r"\+{1,2}\w+", flag)):
            named = value or flag
        if not (flag.startswith("-") or equals) and before.startswith("-"):
            before = ""
            continue
        before = "" if equals else flag
    if named is None and path and (not brought or path.strip("./") != "config"):
        named = path
    return None if named is None else ("" if "\0" in named else named)


def normalised_flag(flag: str) -> str:
    """Spell a flag's name with `_`, its leading dashes kept."""
    bare = flag.lstrip("-")
    return flag[: len(flag) - len(bare)] + normalised(bare)


class _Arguments:
    """The arguments of one program."""

    def __init__(self, script: Script, words: Sequence[Expanded]) -> None:
        self._script = script
        self._words = words
        self.gaps: list[str] = []

    def entries(self) -> Iterator[Entry]:
        """Give flags and overrides in order; what may hold further ones becomes a gap."""
        position = 0
        while position < len(self._words):
            word = self._words[position]
            position += 1
            text = word.text
            named = NAMED_VALUE.match(text)
            if "\0" in (named[0] if named else text):
                self._gap(word)
            elif "\0" in text and named:
                yield _entry(named[1], self._unresolved(text), word.line)
            elif text.startswith("--") and len(text) > 2:
                flag, equals, value = text.partition("=")
                if equals:
                    yield _entry(flag, single(value), word.line)
                else:
                    count = self._values(position)
                    yield self._flag(flag, self._words[position : position + count], word.line)
                    position += count
            else:
                found = _OVERRIDE.match(text)
                if found:
                    yield _entry(found[1], single(text[found.end() :]), word.line)

    def _values(self, start: int) -> int:
        end = start
        while end < len(self._words) and not _ARGUMENT.match(self._words[end].text):
            end += 1
        return end - start

    def _flag(self, flag: str, words: Sequence[Expanded], line: int) -> Entry:
        """Read a flag's values; a doubtful word after the first value may be flags of its own."""
        rest: Unresolved | None = None
        texts: list[str] = []
        for number, word in enumerate(words):
            if "\0" not in word.text:
                texts.append(word.text)
                continue
            reason = self._script.reason(word.text)
            if number or (reason and reason[1]) or _SWITCH.match(normalised_flag(flag)):
                self._gap(word)
            if number:
                rest = self._unresolved(word.text)
                break
            return _entry(flag, self._unresolved(word.text), line)
        value: Value = True
        if len(texts) == 1:
            value = single(texts[0])
        elif texts:
            values: list[Json] = [*texts]
            value = values
        return _entry(flag, value, line, rest)

    def _unresolved(self, text: str) -> Unresolved:
        reason = self._script.reason(text)
        return Unresolved(reason[0] if reason else "it is not certain")

    def _gap(self, word: Expanded) -> None:
        reason = self._unresolved(word.text).reason
        self.gaps.append(
            f"{self._script.name}:{word.line}: a word may hold further arguments ({reason}): no "
            "defaults are used, and it may overrule what is stated"
        )


def single(text: str) -> Json:
    """Read a value as Hydra and argparse's JSON types do: lists in brackets, null, quotes."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        items = (item.strip().strip("'\"") for item in text[1:-1].split(","))
        values: list[Json] = [item for item in items if item]
        return values
    if text in ("None", "null", "Null", "NULL"):
        return None  # but `none` is a value of PEFT's `bias`
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _entry(name: str, value: Value, line: int, rest: Unresolved | None = None) -> Entry:
    shown = printable(name)
    return Entry(normalised(name.lstrip("-+~")), shown, value, line, line, loose=True, rest=rest)
