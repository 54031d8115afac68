"""Parts and algorithms from a user's file: the page that teaches them, every mistake in one sentence, resuming."""

import hashlib
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from ratioscope import RatioscopeError
from ratioscope.trainer.algorithms.algorithm import PARTS, where_in_code
from ratioscope.trainer.algorithms.own import ARGUMENTS
from ratioscope.trainer.algorithms.parts import CHOICES, parts_table
from ratioscope.trainer.algorithms.rows import ALGORITHMS
from ratioscope.trainer.settings.load import load_settings
from ratioscope.trainer.training.loop import configuration_to_resume
from tests.making.training import Recorded, small, train
from tests.oracles.replay import steps_of

PAGE = Path(__file__).parents[3] / "docs" / "own_algorithm.md"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The page's file, and a run of its algorithm."""
    folder = tmp_path_factory.mktemp("taught")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (folder / "mine.py").write_text(code, encoding="utf-8")
    config = small(f"algorithm={folder / 'mine.py'}:careful", "power=1", "sync_interval=4", "learning_rate=0.01")
    return train(config, folder / "run", should_stop=iter([*[False] * 5, True]).__next__)


def test_the_example_of_the_page_trains_and_is_written_down(taught: Recorded) -> None:
    config, file = taught.config, taught.folder.parent / "mine.py"
    assert config.run_name() == "sync_interval4-careful_1-lr0.01-seed0"
    manifest = json.loads((taught.folder / "run.json").read_text(encoding="utf-8"))
    assert manifest["own_code"] == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    assert manifest["algorithm"]["name"] == "careful"
    assert manifest["algorithm"]["parts"] == ALGORITHMS["reinforce"].parts() | {
        "gate": "mine.py:brake", "sample_weight": "mine.py:rare",
    }  # fmt: skip
    assert manifest["algorithm"]["parameters"] == {"power": 1, "depth": 0.5, "epochs": 1, "minibatches": 1}
    tokens = steps_of(taught.folder)
    fallen = [((s["logp_current"] - s["logp_behavior"]) < -0.5) & (s["advantage"] < 0) for s in tokens]
    assert all((step["clipped"] == one).all() for step, one in zip(tokens, fallen, strict=True))
    assert any(one.any() for one in fallen)


def test_a_run_goes_on_with_the_file_that_it_began_with(taught: Recorded) -> None:
    file = taught.folder.parent / "mine.py"
    code = file.read_text(encoding="utf-8")
    assert configuration_to_resume(taught.folder, []) == taught.config
    try:
        file.write_text(code + "raise SystemExit('never run')\n", encoding="utf-8")
        with pytest.raises(RatioscopeError, match=r"mine.py has changed since this run began; restore it"):
            configuration_to_resume(taught.folder, [])
        file.unlink()
        with pytest.raises(RatioscopeError, match=r"mine.py cannot be read"):
            configuration_to_resume(taught.folder, [])
    finally:
        file.write_text(code, encoding="utf-8")


def test_the_commands_of_the_page_are_right(taught: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings load, and the table of arguments is the one that is checked."""
    monkeypatch.chdir(taught.folder.parent)
    page = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^    ratioscope (train|explain) (\S+) (.*=.*)$", page, flags=re.MULTILINE)
    assert len(lines) == 4
    for command, name, settings in lines:
        assert (
            load_settings(name, settings.split())
            if command == "train"
            else load_settings("on_policy", [f"algorithm={name}"])
        )
    rows = re.findall(r"^\| `(\w+)` \| (.*?):", page, flags=re.MULTILINE)
    table = {part: tuple(re.findall(r"`(\w+)`", arguments)) for part, arguments in rows}
    assert table == ARGUMENTS


MISTAKES = {
    "gate=mine.py:missing": "mine.py has nothing called 'missing'.",
    "gate=nowhere.py:missing": "nowhere.py cannot be read (No such file or directory).",
    "gate=broken.py:gate": "broken.py cannot be imported: SyntaxError in line 1: ",
    "gate=leaning.py:gate": "leaning.py imports helpers, which lies beside it and could change unseen; put what it",
    "gate=relative.py:gate": "relative.py imports .helpers, which lies beside it",
    "gate=mine.py:swapped": "mine.py:swapped takes (advantage, ratios); a gate takes (ratios, advantage)",
    "gate=mine.py:three": "mine.py:three must return a Gate, as ratioscope.rules.gates.hard(below, above) makes one.",
    "gate=mine.py:five": "mine.py:five is no function; a gate is a function of (ratios, advantage).",
    "gate=mine.py:double": "mine.py:double must return a gate between 0 and 1; what is larger is a weight.",
    "weight=mine.py:endless": "mine.py:endless returned values that are not finite; bound them, as with",
    "weight=mine.py:short": "mine.py:short must return one value for each entry of (8,), not (7,).",
    "weight=mine.py:failing": "mine.py:failing fails: ValueError: no luck.",
    "weight=mine.py:bare": "mine.py:bare: its parameter x needs a default that is a number: x: float = 1.0.",
    "selection=mine.py:floats": "mine.py:floats must return true or false for each response, not torch.float32.",
    "level=mine.py:three": "algorithm.level cannot come from a file; advantage, selection,",
    "algorithm=mine.py:three": "mine.py:three is a function: give it as the part that it is, for example gate=",
    "algorithm=mine.py:five": "mine.py:five is no Algorithm: mine.py:five.",
    "algorithm=mine.py:taken": "mine.py:taken needs a name of its own, one word; it is called 'grpo'.",
    "algorithm=mine.py:vague": "There is no gate 'nothing_like_it'; there are: none, one_side,",
    "weight=mine.py:fine depht=2": "grpo has no parameter 'depht'; it takes epsilon_low, epsilon_high, depth.",
}
FILE = """
from dataclasses import replace
import torch
from ratioscope.rules.gates import Gate
from ratioscope.trainer.algorithms.rows import ALGORITHMS

five = 5
taken = replace(ALGORITHMS["grpo"], gate="three")
vague = replace(taken, name="vague", gate="nothing_like_it")
def swapped(advantage, ratios): return 3
def three(ratios, advantage): return 3
def double(ratios, advantage): return Gate(torch.full_like(ratios.behavior, 2.0), torch.zeros_like(advantage))
def endless(ratios, advantage, sequence): return ratios.behavior / 0
def short(ratios, advantage, sequence): return ratios.behavior[1:]
def failing(ratios, advantage, sequence): raise ValueError("no luck.\\nnever")
def bare(ratios, advantage, sequence, *, x): return ratios.behavior
def floats(reward, generator): return reward
def fine(ratios, advantage, sequence, *, depth: float = 1): return ratios.behavior.clamp(max=depth).exp()
"""


@pytest.mark.parametrize("settings", MISTAKES)
def test_a_mistake_in_a_file_is_one_sentence(settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE, encoding="utf-8")
    Path("broken.py").write_text("def gate(:\n", encoding="utf-8")
    leaning = "import json, torch\ndef gate(ratios, advantage):\n    import helpers"
    Path("leaning.py").write_text(leaning, encoding="utf-8")
    Path("relative.py").write_text("from .helpers import gate", encoding="utf-8")
    for name in ("helpers.py", "json.py", "torch"):  # the last two are not what an import finds, and not refused
        Path(name).mkdir() if name == "torch" else Path(name).write_text("gate = 1", encoding="utf-8")
    with pytest.raises(RatioscopeError) as caught:
        load_settings("on_policy", settings.split())
    text = str(caught.value).replace(f"{tmp_path}/", "")
    assert MISTAKES[settings] in text
    assert "\n" not in text and text.endswith(".")


def test_every_part_is_listed_and_where_it_is_said_to_be() -> None:
    assert CHOICES.keys() == set(PARTS)
    assert "weight=truncated cap   " in parts_table() and "advantage=leave_one_out" in parts_table()
    assert len(parts_table().splitlines()) == sum(map(len, CHOICES.values()))
    for part, choices in CHOICES.items():
        for choice, function in choices.items():
            if place := where_in_code(part, choice):
                module, _, name = place.rpartition(".")
                found = getattr(import_module(module), name)
                assert found is function or place.endswith(
                    ("update.Learner", "filters._rejection", "filters._staleness_band")
                )
