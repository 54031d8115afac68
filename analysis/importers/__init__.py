"""What other programs wrote, as runs."""

from ratioscope.analysis.importers import (
    areal,
    completions,
    logging_board,
    miles,
    nemo_rl,
    open_instruct,
    prime_rl,
    roll_rollouts,
    skyrl,
    slime,
    tinker_capture,
    tinker_cookbook,
    trinity,
    verifiers,
    verl_rollouts,
)
from ratioscope.analysis.importers.source import Description, Importer, ImportProblem, Reading, Step

IMPORTERS: tuple[Importer, ...] = (
    slime.IMPORTER,
    miles.IMPORTER,
    skyrl.IMPORTER,
    trinity.IMPORTER,
    prime_rl.IMPORTER,
    verifiers.IMPORTER,
    verifiers.RESULTS,
    nemo_rl.IMPORTER,
    open_instruct.IMPORTER,
    tinker_cookbook.IMPORTER,
    tinker_capture.IMPORTER,
    completions.IMPORTER,
    verl_rollouts.IMPORTER,
    areal.IMPORTER,
    roll_rollouts.IMPORTER,
    logging_board.IMPORTER,
)
"""Every format that is known, those that can be told most surely first."""

__all__ = ["IMPORTERS", "Description", "ImportProblem", "Importer", "Reading", "Step"]
