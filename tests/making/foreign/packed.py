"""Folders that other programs made, packed: the script beside this that made one says how."""

import io
import tarfile
from pathlib import Path

STORED = Path(__file__).parent / "stored"


def unpack(name: str, folder: Path) -> Path:
    """A packed folder, unpacked below `folder`."""
    with tarfile.open(STORED / f"{name}.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    return folder / name


def pack(folder: Path, name: str) -> None:
    """Pack a folder; the same files make the same bytes."""
    with tarfile.open(STORED / f"{name}.tar.xz", "w:xz") as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            contents = file.read_bytes()
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
