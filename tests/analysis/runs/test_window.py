"""Windows: which steps they are, and that they tell the states of a run apart."""

from pathlib import Path

import numpy as np
import pandas as pd

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.runs.window import Window, window_of
from tests.making.runs import plain_step, write_run

SIZES = pd.Series([5.0, 5.0, 5.0], index=[3, 4, 8])


def _run(folder: Path, steps: int) -> Path:
    tokens = np.full(4, -1.0)
    return write_run(folder, [plain_step(tokens, tokens, number=step) for step in range(steps)])


def test_the_latest_steps_hold_at_most_so_many_tokens() -> None:
    whole = Window(Path("runs/x"), "state", 0, 9)
    assert [whole.latest(SIZES, tokens).steps for tokens in (11, 1, 99)] == [(4, 8), (8, 8), (3, 8)]
    assert Window(Path("runs/x"), "state", 0, 5).latest(SIZES, 9) == Window(Path("runs/x"), "state", 4, 4)


def test_chosen_steps_are_looked_at_and_else_the_latest(tmp_path: Path) -> None:
    run = open_run(_run(tmp_path / "run", 3))
    assert window_of(run, SIZES, (2, 7), 1) == Window.of(run, 2, 7)
    assert window_of(run, SIZES, (None, None), 11).steps == (4, 8)
    assert Window.of(run).steps == (0, 2)
    assert Window.of(run).run() == run


def test_a_window_is_a_key_that_changes_with_the_run(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", 1)
    before = Window.of(open_run(folder), 0, 0)
    assert before == Window.of(open_run(folder), 0, 0) and len({before, Window.of(open_run(folder), 0, 0)}) == 1
    (folder / "tokens" / "other").touch()
    assert before != Window.of(open_run(folder), 0, 0)
