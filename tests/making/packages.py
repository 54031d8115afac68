"""The files that an installation is made from, built from this checkout without a network."""

import contextlib
import os
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """Paths of what was built."""

    source: Path
    wheel: Path
    wheel_from_source: Path
    editable: Path


def build_wheel(root: Path, folder: Path, version: str = "standard") -> Path:
    """The wheel of a checkout or of an unpacked source distribution; version: standard or editable."""
    (made,) = WheelBuilder(str(root)).build(directory=str(folder), versions=[version])
    return Path(made)


def build_all(folder: Path) -> Built:
    (made,) = SdistBuilder(str(ROOT)).build(directory=str(folder / "source"))
    with tarfile.open(made) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    with contextlib.chdir(unpacked):  # what is there, not what is in the working folder
        from_source = build_wheel(unpacked, folder / "from_source")
    return Built(
        source=Path(made),
        wheel=build_wheel(ROOT, folder / "wheel"),
        wheel_from_source=from_source,
        editable=build_wheel(ROOT, folder / "editable", "editable"),
    )


def names_in(archive: Path) -> set[str]:
    """The files in a wheel, or in a source distribution below its one folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as source:
        return {member.name.partition("/")[2] for member in source.getmembers() if member.isfile()}


def modules_below(folder: Path) -> set[str]:
    """The Python files that a folder on the import path offers, links followed, relative to it."""
    found = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found |= {Path(place, name).relative_to(folder).as_posix() for name in files if name.endswith(".py")}
    return found
