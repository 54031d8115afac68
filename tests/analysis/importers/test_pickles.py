"""Pickles of others: read without running what they say (trap 15)."""

import io
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from ratioscope.analysis.importers import ImportProblem, Reading
from ratioscope.analysis.importers.pickles import Stand, allowed, array, needs_leave, plain, torch_file


class Trap:
    """Its unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


@dataclass
class Adapter:
    name: str


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    """One that goes off when it is read as pickles are usually read."""
    one = Trap(tmp_path / "gone off")
    pickle.loads(pickle.dumps(one)).close()
    assert one.path.exists()
    one.path.unlink()
    return one


def test_tensors_and_plain_values_need_no_leave(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    held = {"tensor": torch.ones(3), "list": [1, "a", None, (2.5,)], "array": np.arange(3), "number": np.float32(2)}
    torch.save(held, path)
    assert needs_leave(path) == ""
    for lazily in (False, True):
        found = torch_file(path, Reading(), lazily=lazily)
        assert found["list"] == held["list"] and found["number"] == 2
        assert found["tensor"].tolist() == [1, 1, 1] and found["array"].tolist() == [0, 1, 2]


def test_a_torch_file_with_a_trap_never_goes_off(tmp_path: Path, trap: Trap) -> None:
    path = tmp_path / "a.pt"
    torch.save({"tensor": torch.ones(2), "other": trap}, path)
    assert needs_leave(path) == "io.open"
    with pytest.raises(ImportProblem, match=r"a\.pt: holds io\.open beside tensors, .*--allow-pickle\.$"):
        torch_file(path, Reading())
    found = torch_file(path, Reading(unpickle=True))  # even then no name in it is looked up
    assert found["tensor"].tolist() == [1, 1]
    assert isinstance(found["other"], Stand) and found["other"].made_from == (str(trap.path), "w")
    assert not trap.path.exists()


def test_a_pickle_with_a_trap_never_goes_off(tmp_path: Path, trap: Trap) -> None:
    data = pickle.dumps({"text": "a", "array": np.arange(2), "adapter": Adapter("mine"), "other": trap})
    with pytest.raises(ImportProblem, match="it is a pickle: allow it with --allow-pickle"):
        allowed(data, tmp_path, Reading(), "it is a pickle")
    found = allowed(data, tmp_path, Reading(unpickle=True), "it is a pickle")
    assert found["text"] == "a" and found["array"].tolist() == [0, 1]
    assert found["adapter"].state == {"name": "mine"}
    with pytest.raises(ValueError, match="more than plain values"):
        plain(data)
    assert not trap.path.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_every_protocol(protocol: int) -> None:
    shared = ["a"]
    value = {
        "numbers": [0, 1, -1, 300, 70_000, 1 << 80, 0.5, True, False, None],
        "texts": ["", "é" * 300, "long " * 20_000],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "nested": {"list": [[]], "dictionary": {}, 3: "three"},
        "shared": [shared, shared],
    }
    assert plain(pickle.dumps(value, protocol=protocol)) == value


@pytest.mark.parametrize("data", [b"", b"\x80\x05", pickle.dumps([1, 2])[:-3], b"\x80\x05e.", b"\x80\x05K\x01a."])
def test_damaged_pickles_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        plain(data)
    with pytest.raises(ImportProblem, match="cannot be unpickled"):
        allowed(data, tmp_path, Reading(unpickle=True), "")


def test_programs_of_torch_are_not_loaded(tmp_path: Path) -> None:
    """Torch takes a file with these names for TorchScript, and hands it to its compiler."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        for name in ("a/data.pkl", "a/constants.pkl", "a/version"):
            archive.writestr(name, b"")
    for reading in (Reading(), Reading(unpickle=True)):
        with pytest.raises(ImportProblem, match=r"a\.pt: a TorchScript program"):
            torch_file(tmp_path / "a.pt", reading)


def test_nothing_of_torchs_is_changed_by_a_pickle(tmp_path: Path) -> None:
    """A pickle may set attributes of whatever it can name."""
    torch.save({"tensor": torch.ones(2)}, tmp_path / "whole.pt")
    program = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x08\x00\x00\x00__name__X\x01\x00\x00\x00as\x86b."
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, program if name.endswith("data.pkl") else whole.read(name))
    torch_file(tmp_path / "a.pt", Reading(skip_bad=True))
    assert torch._utils._rebuild_tensor_v2.__name__ == "_rebuild_tensor_v2"


@dataclass
class ForgedKind:
    """A dtype of objects as numpy pickles it, of other flags."""

    flags: int

    def __reduce__(self) -> tuple[object, ...]:
        return np.dtype, ("O", False, True), (3, "|", None, None, None, -1, -1, self.flags)


@dataclass
class Forged:
    """An array of that dtype."""

    shape: tuple[int, ...]
    flags: int
    values: object

    def __reduce__(self) -> tuple[object, ...]:
        state = (1, self.shape, ForgedKind(self.flags), False, self.values)
        return np.array(0).__reduce__()[0], (np.ndarray, (0,), b"b"), state


@pytest.mark.parametrize("forged", [Forged((1,), 0, b"AAAAAAAA"), Forged((4_000,), 63, [1]), Forged((-1, -1), 63, [1])])
def test_numbers_do_not_become_addresses_of_objects(tmp_path: Path, forged: Forged) -> None:
    """Numpy believes what a pickle says of its dtypes: that stored bytes are objects that need no care."""
    torch.save({"array": forged}, tmp_path / "a.pt")
    for reading in (Reading(), Reading(unpickle=True)):
        with pytest.raises(ImportProblem):
            torch_file(tmp_path / "a.pt", reading)
    with pytest.raises(ImportProblem, match="an array of"):
        allowed(pickle.dumps(forged), tmp_path, Reading(unpickle=True), "")


@pytest.mark.parametrize(("protocol", "older"), [(2, False), (2, True), (4, False)])
def test_arrays_of_all_kinds_are_read(tmp_path: Path, protocol: int, older: bool) -> None:
    kinds = ("?", "i1", "<u2", ">i4", "<f2", ">f8", "c16")
    written = [np.arange(6).astype(kind).reshape(2, 3) for kind in kinds]
    written += [np.array(["a", "é", "long"]), np.array([b"a", b"bc"]), np.array([1, "a", None], dtype=object)]
    written += [np.asfortranarray(written[3]), np.arange(10_000.0)]
    torch.save(written, tmp_path / "a.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=not older)
    for found in (
        torch_file(tmp_path / "a.pt", Reading()),
        allowed(pickle.dumps(written, protocol=protocol), tmp_path, Reading(unpickle=True), ""),
    ):
        for one, other in zip(found, written, strict=True):
            assert array(one).dtype == other.dtype.newbyteorder("=") and array(one).shape == other.shape
            assert array(one).tolist() == other.tolist()


def test_a_file_of_torch_within_a_pickle_takes_leave(tmp_path: Path) -> None:
    """Nobody has looked whether it is a program, or packed."""
    inner = io.BytesIO()
    torch.save(torch.ones(2), inner)

    class Within:
        def __reduce__(self) -> tuple[object, ...]:
            return torch.storage._load_from_bytes, (inner.getvalue(),)

    torch.save({"tensor": Within()}, tmp_path / "a.pt")
    with pytest.raises(ImportProblem, match=r"holds torch\.storage\._load_from_bytes beside tensors"):
        torch_file(tmp_path / "a.pt", Reading())
    assert torch_file(tmp_path / "a.pt", Reading(unpickle=True))["tensor"].tolist() == [1, 1]


def test_small_files_of_enormous_tensors_are_not_made_room_for(tmp_path: Path) -> None:
    path, packed = tmp_path / "a.pt", tmp_path / "packed.pt"
    torch.save({"tensor": torch.ones(1).expand(1 << 40)}, path)
    with pytest.raises(ValueError, match="1,099,511,627,776 values"):
        array(torch_file(path, Reading())["tensor"])
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in whole.namelist():
            archive.writestr(name, bytes(1 << 20))
    with pytest.raises(ImportProblem, match=r"packed\.pt: a compressed archive"):
        torch_file(packed, Reading())


def test_what_is_no_torch_file_is_said(tmp_path: Path) -> None:
    whole = tmp_path / "whole.pt"
    torch.save({"tensor": torch.ones(1000)}, whole)
    for name, contents in (("half.pt", whole.read_bytes()[:500]), ("text.pt", b"hello"), ("empty.pt", b"")):
        (tmp_path / name).write_bytes(contents)
        reading = Reading(skip_bad=True)
        assert torch_file(tmp_path / name, reading) is None
        assert len(reading.problems) == 1 and name in reading.problems[0], reading.problems
