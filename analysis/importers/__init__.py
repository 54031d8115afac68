"""What other programs wrote, as runs."""

from ratioscope.analysis.importers import miles, skyrl, slime, trinity
from ratioscope.analysis.importers.source import Description, Importer, ImportProblem, Reading, Step

IMPORTERS: tuple[Importer, ...] = (
    slime.IMPORTER,
    miles.IMPORTER,
    skyrl.IMPORTER,
    trinity.IMPORTER,
)
"""Every format that is known, those that can be told most surely first."""

__all__ = ["IMPORTERS", "Description", "ImportProblem", "Importer", "Reading", "Step"]
