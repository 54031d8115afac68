"""The version of a checkout, for the build: from the nearest tag, else from CHANGELOG.md.

A source distribution brings its own. Standard library only, and nothing of ratioscope: the build loads this file alone.
"""

import re
import subprocess
from pathlib import Path

_DESCRIBED = re.compile(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-g([0-9a-f]+)(-dirty)?")
_HEADING = re.compile(r"^## (\d+\.\d+\.\d+)\b", re.MULTILINE)


def version_of(root: Path) -> str:
    """PEP 440: 1.2.3 at the tag v1.2.3, 1.2.4.dev5+gHASH five commits later; without a tag, the last release's, marked.

    Without git, its history or its tags (a zip, a shallow clone) it is the newest release in the changelog with
    `+untagged`: later commits have the same.
    """
    if described := _describe(root):
        major, minor, patch, commits, commit, dirty = described
        if commits == "0" and not dirty:
            return f"{major}.{minor}.{patch}"
        return f"{major}.{minor}.{int(patch) + 1}.dev{commits}+g{commit}" + (".dirty" if dirty else "")
    try:
        heading = _HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    except OSError:
        heading = None
    return f"{heading[1] if heading else '0.0.0'}+untagged"


def _describe(root: Path) -> tuple[str, ...] | None:
    """What git says of the nearest tag; None where the folder is no checkout, or no tag of a release is known."""
    if not (root / ".git").exists():  # a folder inside of another repository is not to take that one's tags
        return None
    command = ["git", "-C", str(root), "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return None
    found = _DESCRIBED.fullmatch(said)
    return found.groups("") if found else None
