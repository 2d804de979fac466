"""Tell every distribution its commit: `reefkit/_commit.py`, in the build output only.

All else about the build is in pyproject.toml.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
GIT = ("git", "--no-optional-locks", f"--git-dir={ROOT / '.git'}", f"--work-tree={ROOT}")


def git(*arguments: str) -> str:
    """Ask git about this checkout, whatever the caller's environment points at."""
    return subprocess.run(
        [*GIT, *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def current_commit() -> str | None:
    """Name HEAD, with `-dirty` for a tree that differs, or None without git or a checkout.

    An unpacked source distribution brings its own `_commit.py`; a repository that happens to lie
    around it says nothing about this package.
    """
    if not (ROOT / ".git").exists():
        return None
    try:
        commit = git("rev-parse", "--verify", "HEAD")
        return f"{commit}-dirty" if git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def write_commit(folder: Path, commit: str | None) -> None:
    """Write the module, unless there is nothing to say."""
    if commit is not None:
        (folder / "_commit.py").write_text(f'COMMIT = "{commit}"\n', "utf-8")


class BuildPy(build_py):
    """Build the modules, and the commit beside them."""

    def run(self) -> None:
        """Leave an editable install alone: there the checkout itself is asked."""
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib, "reefkit"), current_commit())


class Sdist(sdist):
    """Make a source distribution whose wheel will know the commit, too."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Add the commit where the wheel's build will find it as a module."""
        commit = current_commit()  # before: the release tree lies in the checkout for a while
        super().make_release_tree(base_dir, files)  # pyright: ignore[reportUnknownMemberType]
        write_commit(Path(base_dir), commit)


# Named, because build_py packs every module beside `__init__.py` but the set-up script.
setup(script_name="setup.py", cmdclass={"build_py": BuildPy, "sdist": Sdist})
