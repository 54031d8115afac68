"""What other programs wrote, as runs."""

from ratioscope.analysis.importers.source import Description, Importer, ImportProblem, Reading, Step

__all__ = ["Description", "ImportProblem", "Importer", "Reading", "Step"]
