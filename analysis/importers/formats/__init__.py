"""Every format that is known: whatever importer a module of this folder declares."""

from importlib import import_module
from pkgutil import iter_modules

from ratioscope.analysis.importers.source import Importer

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
_DECLARED = [value for module in _MODULES for value in vars(module).values() if isinstance(value, Importer)]

IMPORTERS: tuple[Importer, ...] = tuple(
    sorted(_DECLARED, key=lambda importer: (not all(sign.says_enough for sign in importer.signs), importer.name))
)
"""Those whose names nobody else gives to files first."""
