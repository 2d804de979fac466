"""What could break an installed reefkit, its layers or its test runs, unseen by other tests."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import pytest

import reefkit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
NOT_PACKED = {"tests", "bench", "examples", "docs", "build", "dist", "setup.py"}
LAYERS = ["reefkit", "errors", "records", "recover", "provenance", "commands", "cli"]
TORCH = ["torch", "transformers", "peft"]
HEAVY = ["numpy", "regex", "rich", "safetensors", "yaml"]
NETWORK = ["socket", "ssl", "http", "urllib.request", "huggingface_hub", "requests", "httpx"]
# Numpy through and through: whoever needs one of these imports it late, as if it were numpy.
IMPORTED_LATE = {
    "reefkit.recover.adapter.config.floats",
    "reefkit.recover.adapter.config.merged_weights",
    "reefkit.recover.adapter.config.scaled_memory",
    "reefkit.recover.adapter.config.tied_head",
    "reefkit.recover.comparison.values",
    "reefkit.recover.validation.content.blocks",
}
# Distributions that are not called like the module they bring.
DISTRIBUTION = {"re2": "google-re2", "yaml": "pyyaml"}


class Import(NamedTuple):
    """One imported name, in full, and whether the source wrote it relative to its package."""

    where: str
    name: str
    relative: bool


def packed(path: Path) -> bool:
    return not any(part in NOT_PACKED or part.startswith(".") for part in path.parts)


FILES = sorted(filter(packed, (path.relative_to(ROOT) for path in ROOT.rglob("*.py"))))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def module_name(file: Path) -> str:
    return ".".join(["reefkit", *file.with_suffix("").parts]).removesuffix(".__init__")


def layer(module: str) -> int | None:
    name = module.split(".")[1] if "." in module else module
    return LAYERS.index(name) if name in LAYERS else None


def imports(file: Path) -> Iterator[Import]:
    """Find the imports at any depth of a file, those within functions too."""
    package = ["reefkit", *file.parts[:-1]]
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(f"{file}:{node.lineno}", alias.name, relative=False)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            for alias in node.names:
                name = ".".join([*base, alias.name])
                yield Import(f"{file}:{node.lineno}", name, relative=node.level > 0)


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_every_folder_with_modules_is_a_declared_package() -> None:
    folders = {".".join(["reefkit", *file.parts[:-1]]) for file in FILES}
    initialised = {module_name(file) for file in FILES if file.name == "__init__.py"}
    assert folders == initialised == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_root_holds_no_stray_module() -> None:
    modules = {file.name for file in ROOT.glob("*.py")}
    assert modules == {"__init__.py", "cli.py", "errors.py", "setup.py"}


def test_imports_point_one_way() -> None:
    upward: list[Import] = []
    for file in FILES:
        own = layer(module_name(file))
        assert own is not None, f"{file} belongs to no layer"
        for found in imports(file):
            target = layer(found.name) if found.name.startswith("reefkit") else None
            if target is not None and target > own:
                upward.append(found)
    assert upward == []


def test_the_package_imports_itself_relatively() -> None:
    found = [each for file in FILES for each in imports(file) if not each.relative]
    assert [each for each in found if each.name.split(".")[0] in LAYERS] == []


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    base = distributions(PROJECT["project"]["dependencies"])
    extras = PROJECT["project"]["optional-dependencies"]
    optional = {
        name for extra in extras.keys() - {"dev", "test"} for name in distributions(extras[extra])
    }
    third_party = {
        DISTRIBUTION.get(top, top.replace("_", "-")): each.where
        for file in FILES
        for each in imports(file)
        if not each.relative and (top := each.name.split(".")[0]) not in sys.stdlib_module_names
    }
    undeclared = {name: at for name, at in third_party.items() if name not in base | optional}
    assert undeclared == {}
    assert base - third_party.keys() == set()


@pytest.mark.parametrize(
    ("part", "banned"),
    [("reefkit", TORCH + HEAVY), ("reefkit.recover", TORCH + HEAVY + NETWORK)],
)
def test_importing_stays_cheap_and_offline(part: str, banned: list[str]) -> None:
    modules = {module_name(file) for file in FILES}
    assert modules >= IMPORTED_LATE
    program = (
        "import importlib, sys\n"
        "banned = set(sys.argv[1].split(',')) - set(sys.modules)\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    if loaded := banned & set(sys.modules):\n"
        "        sys.exit(f'{name} loads {sorted(loaded)}')\n"
    )
    chosen = sorted(name for name in modules - IMPORTED_LATE if f"{name}.".startswith(f"{part}."))
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(banned), *chosen], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", PROJECT["project"]["scripts"].values())
def test_a_script_names_a_function(script: str) -> None:
    assert callable(resolve_name(script))


def git(tree: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *identity, *arguments],
        cwd=tree,
        env={**environment, "GIT_CONFIG_GLOBAL": os.devnull},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def build(tree: Path, *options: str) -> zipfile.ZipFile:
    """Build with what is installed here: nothing is fetched."""
    out = tree.with_name(tree.name + "-dist")
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *options, tree],
        cwd=tree.parent,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean checkout of the tree as it is."""
    tree = tmp_path_factory.mktemp("packaging") / "my-clone"
    unwanted = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "dist", "node_modules"
    )
    shutil.copytree(ROOT, tree, ignore=unwanted)
    shutil.copy(ROOT / ".gitignore", tree)
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "everything")
    return tree


@pytest.fixture(scope="module")
def wheel(clone: Path) -> Iterator[zipfile.ZipFile]:
    """A wheel made by way of a source distribution, as a release is."""
    with build(clone) as archive:
        yield archive


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    modules = {f"reefkit/{file.as_posix()}" for file in FILES}
    information = f"reefkit-{reefkit.__version__}.dist-info/"
    packed = {name for name in wheel.namelist() if not name.startswith(information)}
    assert packed == modules | {"reefkit/py.typed", "reefkit/_commit.py"}
    assert f"{information}licenses/LICENSE" in wheel.namelist()


def test_the_wheel_states_the_version_that_the_package_has(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = BytesParser().parsebytes(wheel.read(name))
    assert metadata["Version"] == reefkit.__version__


def test_the_wheel_knows_its_commit(wheel: zipfile.ZipFile, clone: Path) -> None:
    commit = git(clone, "rev-parse", "HEAD")
    assert wheel.read("reefkit/_commit.py").decode() == f'COMMIT = "{commit}"\n'
    assert not (clone / "_commit.py").exists()


def test_a_wheel_of_a_changed_tree_says_so(wheel: zipfile.ZipFile, clone: Path) -> None:
    (clone / "notes.txt").touch()
    with build(clone, "--wheel") as changed:
        assert changed.read("reefkit/_commit.py").decode().endswith('-dirty"\n')


SKIPS = """
import pytest

@pytest.fixture
def tool():
    pytest.skip("no tool")

def test_in_the_body():
    pytest.skip("not here")

@pytest.mark.skip(reason="not now")
def test_by_mark():
    pass

def test_by_fixture(tool):
    pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False
"""
SKIPPED_MODULE = "import pytest\npytest.importorskip('no_such_module')\n"
SOAK = """
import pytest

@pytest.mark.soak
def test_long():
    pass

def test_quick():
    pass
"""


def run_pytest(folder: Path, modules: dict[str, str], *options: str, no_skip: bool = False) -> str:
    """Run test modules under this project's configuration and return what pytest prints."""
    (folder / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests/conftest.py", folder / "tests")
    for name, text in modules.items():
        (folder / f"tests/{name}.py").write_text(text)
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "REEFKIT_NO_SKIP": str(int(no_skip))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--continue-on-collection-errors", *options],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    ).stdout


def test_no_skip_turns_skips_into_failures_and_nothing_else(tmp_path: Path) -> None:
    modules = {"test_skips": SKIPS, "test_skipped": SKIPPED_MODULE}
    usual = run_pytest(tmp_path / "usual", modules)
    assert "= 4 skipped, 1 xfailed in" in usual
    strict = run_pytest(tmp_path / "strict", modules, no_skip=True)
    assert "= 1 failed, 1 xfailed, 3 errors in" in strict
    assert "REEFKIT_NO_SKIP=1 allows no skip, but: Skipped: no tool" in strict


@pytest.mark.parametrize(("options", "ran"), [([], "test_quick"), (["-m", "soak"], "test_long")])
def test_only_soak_selects_soak(tmp_path: Path, options: list[str], ran: str) -> None:
    output = run_pytest(tmp_path / "run", {"test_both": SOAK}, "-rp", *options)
    assert f"PASSED tests/test_both.py::{ran}" in output
    assert "= 1 passed, 1 deselected in" in output
