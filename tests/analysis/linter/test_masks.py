"""A log without the tokens that end responses is told from one that has them, and from strings that stop a text."""

from pathlib import Path

import numpy as np

from ratioscope.analysis.findings.cause import CAUSES
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.masks import no_token_ends_responses
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import open_run
from tests.making.runs import plain_step, write_run


def present(folder: Path, last: int | None, finish: str = "stop", share: float = 1.0) -> bool:
    """Whether the mark is seen where a token is the last one of some responses; None: any token is."""
    rng, steps = np.random.default_rng(0), []
    for number in range(4):
        sequence = np.repeat(np.arange(80), rng.integers(5, 20, 80))
        token = rng.integers(1, 60, len(sequence))
        ends = np.append(np.flatnonzero(np.diff(sequence)), len(sequence) - 1)
        if last is not None:
            token[ends[: int(share * 80)]] = last
        logp = -rng.exponential(1.0, len(sequence)) - 0.01
        step = plain_step(logp, logp, number=number, sequence=sequence, token_id=token.astype(np.int32))
        steps.append(step.with_sequences(finish_reason=np.array([finish] * 80, dtype=object)))
    run = open_run(write_run(folder, steps))
    with relations(run) as connection:
        return no_token_ends_responses(LogEvidence(run, connection)).present


def test_a_missing_end_token_is_seen(tmp_path: Path) -> None:
    assert present(tmp_path / "stripped", None)
    assert CAUSES["end_token_missing"].requires == (no_token_ends_responses,)
    assert not present(tmp_path / "end token", 0)
    assert not present(tmp_path / "a string that stops, which is elsewhere, too", 7, share=0.5)
    assert not present(tmp_path / "all at the limit", None, finish="length")
