"""Pickles of other programs, read without running what they say.

A pickle is a program: loading it calls whatever it names. Three ways around that:

- `torch_file`: a `.pt` file of tensors and plain values, by Python's own unpickler, which looks up what rebuilds those
  and nothing else; of any other file torch's reader for tensors decides. Of one with other objects in it, the user has
  to allow unpickling.
- `plain`: a pickle of plain values (text, numbers, lists, dictionaries), by its operations. Nothing can be called.
- `allowed`: any pickle, once the user has allowed it. Even then no name in it is looked up, except for what rebuilds
  arrays and tensors: an object of any class is a `Stand`, which holds what it was made from, so that the program that
  wrote it need not be installed.
"""

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers.source import Reading
from ratioscope.errors import first_line
from ratioscope.storage import bounds

ALLOW = "--allow-pickle"
_MOST_REPEATED = 100_000_000


class Stand:
    """Stands for an object of a class that is not looked up: `made_from` are its arguments, `state` its attributes."""

    def __init__(self, *made_from: Any, **named: Any) -> None:
        self.made_from, self.state = made_from, named or None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.made_from = (*self.made_from, (key, value))

    def append(self, value: Any) -> None:
        self.made_from = (*self.made_from, value)


def torch_file(path: Path, reading: Reading, *, lazily: bool = False) -> Any:
    """What `torch.save` wrote, on the CPU; None where it is bad and bad files are left out.

    Args:
        lazily: tensors are read from the file when they are used.

    Raises:
        ImportProblem: it is damaged, or holds objects that only unpickling makes and that is not allowed.
    """
    import torch

    if what := _refused(path):
        return reading.bad(path, what)
    with suppress(Exception):  # of what is wrong torch's own reader tells, which takes twenty times as long
        if _is_of_tensors(path):
            return _loaded(path, _Known, mmap=lazily)
    try:
        with torch.serialization.safe_globals(_ARRAYS):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=lazily)
    except pickle.UnpicklingError:
        return _with_objects(path, reading)
    except Exception as error:  # noqa: BLE001 - a damaged or hostile file leads to anything, to no memory as well
        return reading.bad(path, f"no file of torch, or not whole ({_first_line(error)})")


def array(values: Any) -> NDArray[Any]:
    """A tensor, list or array as an array; numbers of formats that numpy lacks in float32.

    Raises:
        ValueError: it is enormous and its file is not: one stored number can be said to stand at any number of places.
    """
    if hasattr(values, "detach"):
        if values.numel() > max(_MOST_REPEATED, values.untyped_storage().nbytes()):
            raise ValueError(f"a tensor of {values.numel():,} values of which few are stored")
        values = values.detach()
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    return np.asarray(values)


def needs_leave(path: Path) -> str:
    """The classes that a `.pt` file needs to be unpickled for, by their names; "": none."""
    import torch

    try:
        with torch.serialization.safe_globals(_ARRAYS):
            return ", ".join(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(str(path))))
    except Exception:  # noqa: BLE001 - reading says what is wrong
        return ""


def _with_objects(path: Path, reading: Reading) -> Any:
    if not reading.unpickle:
        names = needs_leave(path) or "objects"
        return reading.bad(path, f"holds {names} beside tensors, which takes unpickling: allow it with {ALLOW}")
    try:
        return _loaded(path, _Inert)
    except Exception as error:  # noqa: BLE001 - whatever a hostile file leads to
        return reading.bad(path, f"cannot be unpickled ({_first_line(error)})")


def _loaded(path: Path, unpickler: type["_Inert"], *, mmap: bool = False) -> Any:
    """What is in a file of torch's, by an unpickler of ours."""
    import torch

    module = ModuleType("inert_pickle")
    module.Unpickler, module.load = unpickler, lambda file, **_: unpickler(file).load()  # type: ignore[attr-defined]
    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=module, mmap=mmap)


def _is_of_tensors(path: Path) -> bool:
    """Whether torch takes a file for an archive of tensors, as it does not of older files and of programs."""
    import torch

    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    return "constants.pkl" not in torch._C.PyTorchFileReader(str(path)).get_all_records()


def _refused(path: Path) -> str:
    """Why torch shall not see a file at all; "": it may.

    A program it would hand to its compiler, whatever the pickle module; what is packed it would unpack, however large.
    """
    try:
        bounds.check_kind(path)
    except OSError as error:
        return f"cannot be read ({first_line(error)})"
    with suppress(OSError, ValueError, NotImplementedError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.filename.endswith("constants.pkl") for entry in entries):
            return "a TorchScript program, no dump of tensors"
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            return "a compressed archive, which torch.save does not write"
    return ""


def allowed(data: bytes, path: Path, reading: Reading, why: str) -> Any:
    """What is in a pickle, with a `Stand` for every object; None where it is bad and bad files are left out.

    Args:
        path: where it comes from, for what is said.
        why: why unpickling is needed, without a full stop.

    Raises:
        ImportProblem: unpickling is not allowed, or the pickle is damaged.
    """
    if not reading.unpickle:
        return reading.bad(path, f"{why}: allow it with {ALLOW}")
    try:
        return _Inert(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001 - whatever a hostile file leads to
        return reading.bad(path, f"cannot be unpickled ({_first_line(error)})")


class _Kind:
    """A dtype of numbers, text or objects. Of its state the byte order is taken: numpy believes all of it.

    One that says it has objects in it and that they need no care turns stored numbers into addresses.
    """

    def __init__(self, name: str, *_: Any) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biufcSUO":
            raise pickle.UnpicklingError(f"an array of {name}")

    def __setstate__(self, state: Any) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that is filled with what is there: numpy takes a list of objects for as long as the array is."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_column, values = state
        is_of_objects = type(kind) is _Kind and kind.dtype.kind == "O"
        if type(kind) is not _Kind or type(values) is not (list if is_of_objects else bytes):
            raise pickle.UnpicklingError("an array of another form")
        if is_of_objects and (len(values) != math.prod(shape) or min(shape, default=0) < 0):
            raise pickle.UnpicklingError(f"an array of {len(values)} objects and of shape {shape}")
        super().__setstate__((1, shape, kind.dtype, by_column, values))


def _array(*_: Any) -> NDArray[Any]:
    """What an array's state is put into."""
    return np.ndarray.__new__(_Array, 0)


def _scalar(kind: Any, value: Any) -> Any:
    if type(kind) is not _Kind:
        raise pickle.UnpicklingError("a number of another form")
    return np.frombuffer(value, kind.dtype, 1)[0]


class _Inert(pickle.Unpickler):
    """Looks up what makes arrays and tensors, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if isinstance(known, FunctionType):
            return lambda *made_from: known(*made_from)  # a pickle may set attributes of what it is given
        if known is not None:
            return known
        if module.startswith("torch"):
            return _of_torch(module, name)
        return type(name, (Stand,), {})


class _Known(_Inert):
    """The same of files in which there is nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        is_a_file = (module, name) == _FILE_IN_A_PICKLE  # nobody has looked whether torch may see it
        if is_a_file or (isinstance(found, type) and issubclass(found, Stand)):
            raise pickle.UnpicklingError(f"{module}.{name}")
        return found


def _of_torch(module: str, name: str) -> Any:
    import torch

    rebuilds = {"_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter"}
    if module == "torch._utils" and name in rebuilds:
        rebuild = getattr(torch._utils, name)
        return lambda *made_from: rebuild(*made_from)
    if (module, name) == _FILE_IN_A_PICKLE:
        return lambda data: torch.load(io.BytesIO(data), weights_only=True)
    found = getattr(torch, name, None) if module == "torch" else None
    return found if found in (torch.Size, torch.device) or isinstance(found, torch.dtype) else type(name, (Stand,), {})


def plain(data: bytes) -> Any:
    """The value of a pickle of plain values, without unpickling: by a walk over its operations.

    Raises:
        ValueError: it names a class or a function, or is damaged.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    argument: Any
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name in _PLAIN:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name]())
            elif name == "MARK":
                marks.append(len(stack))
            elif name in ("TUPLE", "LIST"):
                items = since_mark()
                stack.append(tuple(items) if name == "TUPLE" else items)
            elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            elif name == "APPEND":
                last = stack.pop()
                stack[-1].append(last)
            elif name == "APPENDS":
                items = since_mark()
                stack[-1].extend(items)
            elif name in ("SETITEM", "SETITEMS", "DICT"):
                items = since_mark() if name != "SETITEM" else [stack.pop(-2), stack.pop()]
                if name == "DICT":
                    stack.append({})
                stack[-1].update(zip(items[::2], items[1::2], strict=True))
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
                memo[int(argument)] = stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                stack.append(memo[int(argument)])
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise ValueError(f"it holds more than plain values ({name})")
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is damaged") from error
    raise ValueError("it ends too early")


_PLAIN = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}

_FILE_IN_A_PICKLE = ("torch.storage", "_load_from_bytes")
"""Tensors in a pickle that torch did not write."""
_ARRAY_NAMES: dict[tuple[str, str], Any] = {
    (module, name): function
    for module in ("numpy._core.multiarray", "numpy.core.multiarray")
    for name, function in (("_reconstruct", _array), ("scalar", _scalar))
} | {("numpy", "ndarray"): object, ("numpy", "dtype"): _Kind}
_ARRAYS: list[Any] = [(function, f"{module}.{name}") for (module, name), function in _ARRAY_NAMES.items()] + [_Array]
_KNOWN: dict[tuple[str, str], Any] = _ARRAY_NAMES | {
    ("collections", "OrderedDict"): OrderedDict,
    ("_codecs", "encode"): lambda text, _: str.encode(text, "latin-1"),  # bytes, as older pickles have them
}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0].rstrip(".")[:200]
