"""A base model on the Hub: its config.json, and the headers of its files, read by range.

No file is downloaded whole, and nothing is written to the cache.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import repeat

from ...errors import HeaderError, Unusable
from ...records.names import printable
from ...records.strict_json import Json, parse_object
from ..checkpoint import Index
from ..checkpoint_files import index_from, stays_inside
from ..formats.safetensors import Header, read_header
from ..json_files import CONFIG_LIMIT, INDEX_LIMIT
from .hub_requests import Repository, Unreachable

_FIRST_BYTES = 100_000  # most headers fit
_AT_ONCE = 8
_MOST_SHARDS = 10_000
_INFORMATION_LIMIT = 32 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class RemoteShard:
    """One file of a repository: its size where told, and its header or the rule it breaks."""

    name: str
    size: int | None
    header: Header | None
    fault: HeaderError | None = None


@dataclass(frozen=True)
class RemoteFiles:
    """What the repository holds at one commit; `absent` are shards that only its index names."""

    identity: str
    commit: str
    config: dict[str, Json] | None
    index: Index | None
    shards: tuple[RemoteShard, ...]
    absent: tuple[str, ...]
    problems: tuple[str, ...]


def fetch(identity: str, revision: str | None) -> RemoteFiles:
    """Read what the Hub says of a repository at a revision, `main` if None.

    Raises Unreachable, NotPermitted for a gated or private repository, Unusable.
    """
    from concurrent.futures import ThreadPoolExecutor

    repository = Repository(identity, revision or "main")
    commit, names = _look(repository)
    # Whatever is pushed meanwhile, all files are of one commit.
    repository.revision = commit
    config = None
    if "config.json" in names:
        config = parse_object(_whole(repository, "config.json", CONFIG_LIMIT), "config.json")
    shards, index, problems = _choose(repository, names)
    there = [name for name in shards if name in names]
    if len(there) > _MOST_SHARDS:
        raise Unusable(f"{repository.label} has {len(there):,} shards.", remedy="Name another.")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = tuple(pool.map(_shard, repeat(repository), there))
    absent = tuple(name for name in shards if name not in names)
    return RemoteFiles(identity, commit, config, index, read, absent, tuple(problems))


def _look(repository: Repository) -> tuple[str, frozenset[str]]:
    """Give the commit and the names of its files."""
    label = f"What the Hub says of {repository.label}"
    information = parse_object(repository.information(_INFORMATION_LIMIT).data, label)
    commit, files = information.get("sha"), information.get("siblings")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(files, list):
        raise Unreachable(f"{label} tells neither commit nor files.", remedy="Check HF_ENDPOINT.")
    names = (each.get("rfilename") for each in files if isinstance(each, dict))
    return commit, frozenset(name for name in names if isinstance(name, str))


def _whole(repository: Repository, name: str, limit: int) -> bytes:
    answer = repository.file(name, limit)
    if not answer.complete:
        raise Unusable(
            f"{printable(name)} of {repository.label} has more than {limit:,} bytes.",
            remedy="Name a config.json of the base.",
        )
    return answer.data


def _shard(repository: Repository, name: str) -> RemoteShard:
    """Read the header of a file, and little more than it."""
    first = repository.file(name, _FIRST_BYTES, 0)

    def read(offset: int, length: int) -> bytes:
        if offset < len(first.data):
            return first.data[offset : offset + length]
        return repository.file(name, length, offset).data

    try:
        return RemoteShard(name, first.size, read_header(read, first.size))
    except HeaderError as fault:
        return RemoteShard(name, first.size, None, fault)


def _choose(
    repository: Repository, names: frozenset[str]
) -> tuple[list[str], Index | None, list[str]]:
    """Choose the files in the order in which transformers looks for them."""
    for stem in ("model", "diffusion_pytorch_model"):
        name = f"{stem}{_SUFFIX}.index.json"
        if stem + _SUFFIX in names:
            return [stem + _SUFFIX], None, []
        if name in names:
            document = parse_object(_whole(repository, name, INDEX_LIMIT), name)
            index, problems = index_from(document, name)
            listed = sorted(set(index.weight_map.values()))
            problems += [
                f"{name} names the shard `{printable(shard[:200])}`, which is not in its folder."
                for shard in listed
                if not stays_inside(shard)
            ]
            return [shard for shard in listed if stays_inside(shard)], index, problems
    if "adapter_config.json" in names:
        raise Unusable(
            f"{repository.label} is an adapter, not a base model.",
            remedy="Name the model that it was trained on.",
        )
    others = [name for name in names if name.endswith(_SUFFIX) and "/" not in name]
    return (others if len(others) == 1 else []), None, []
