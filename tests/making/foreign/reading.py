"""Reading what an importer reads, for tests."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratioscope.analysis.importers import Importer, Reading, Step
from tests.making.foreign.truth import Known


def steps_of(importer: Importer, path: Path, **options: Any) -> list[Step]:
    """All steps of a source, which must be told as what it is and hold nothing bad."""
    assert importer.describe(path) is not None
    reading = Reading(**options)
    found = list(importer.read(path, reading))
    assert reading.problems == []
    return found


def column(step: Step, name: str, response: int) -> NDArray[Any]:
    """One column of the tokens of one response; nulls are NaN, so that a comparison with them fails."""
    assert step.tokens is not None
    values = step.tokens[name]
    mine = np.asarray(step.tokens["seq_id"]) == response
    return values[mine] if not isinstance(values, np.ma.MaskedArray) else values[mine].astype(float).filled(np.nan)


def assert_tokens(step: Step, known: list[Known], **columns: str) -> None:
    """Hold token columns of a step, by name, against attributes of the responses, at their sampled tokens."""
    assert step.tokens is not None
    for response, one in enumerate(known):
        assert column(step, "position", response).tolist() == list(range(int(one.mask.sum())))
        for name, attribute in columns.items():
            np.testing.assert_array_equal(column(step, name, response), one.sampled(getattr(one, attribute)), name)
