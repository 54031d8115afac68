"""What an installation may lack: the package that is missing, and the one line that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

from ratioscope.errors import MissingPackageError


@contextmanager
def needing(what: str, install: str) -> Iterator[None]:
    """Run a block that imports; where a package is missing, say what to install.

    Args:
        what: what is wanted and missing, the subject of the sentence.
        install: what pip has to install for it.

    Raises:
        MissingPackageError: a package that is not part of ratioscope is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "ratioscope"):
            raise  # nothing that can be installed
        raise MissingPackageError(
            f'{what} needs the package {package}: pip install "{install}".', name=error.name
        ) from None
