"""No setting and no preset is without its words: in the help of `train`, in docs/training.md, in `explain`."""

import re
import subprocess
import sys

import pytest

from ratioscope.dashboard.cli.runs import explanation
from ratioscope.errors import RatioscopeError
from ratioscope.trainer.settings.load import build
from ratioscope.trainer.settings.table import TrainerSetting, presets, settings
from tests.making import docs
from tests.making.commands import command
from tests.making.loops import in_one_loop

SETTINGS, PRESETS = settings(), presets()
WORDS = {row.name: row.words for row in SETTINGS.values()} | PRESETS


def test_every_setting_and_preset_has_words_of_one_line() -> None:
    short = [name for name, words in WORDS.items() if not 8 < len(words) < 160 or "\n" in words]
    assert short == []
    assert [row.path for row in SETTINGS.values() if not row.allowed or not row.default] == []
    assert len({row.name for row in SETTINGS.values()}) == len(SETTINGS)


def test_all_of_them_stand_in_the_help_of_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = "".join(command(monkeypatch, capsys, "train", "--help").succeeded().split())  # wherever lines are broken
    told = [f"{row.name}={row.default}{row.words}({row.allowed})" for row in SETTINGS.values()]
    told += [f"{name}{words}" for name, words in PRESETS.items()]
    assert [line for line in told if "".join(line.split()) not in shown] == []


def test_all_of_them_stand_in_the_docs() -> None:
    text = docs.made((docs.FOLDER / "training.md").read_text(encoding="utf-8")).replace("\\|", "|")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    named = {name: [row for row in rows if row.startswith(f"| `{name}` |")] for name in WORDS}
    assert [name for name, of in named.items() if not any(WORDS[name] in row for row in of)] == []


@in_one_loop("name", {name: name for name in WORDS})
def test_all_of_them_are_explained(name: str) -> None:
    assert WORDS[name] in explanation(name)


def test_an_explanation_names_path_presets_and_algorithms() -> None:
    assert all(explanation(row.path).startswith(row.path) for row in SETTINGS.values() if "." in row.path)
    assert "presets   demo (40), mixture (5)" in explanation("sync_interval")
    assert "taken by  ppo (0.2), grpo (0.2)" in explanation("epsilon_low")


@in_one_loop("row", SETTINGS)
def test_the_name_of_a_setting_leads_to_its_path(row: TrainerSetting) -> None:
    """A value that no setting takes is answered with the path that was meant."""
    with pytest.raises(RatioscopeError, match=rf"^{re.escape(row.path)}(\.|: )|'{re.escape(row.path)}"):
        build({}, [f"{row.name}={{ nothing = [] }}"])


def test_a_slip_is_answered_without_torch() -> None:
    """It takes seconds to import, and a slip is to be answered in one."""
    code = (
        "import sys\nfrom ratioscope.errors import RatioscopeError\n"
        "from ratioscope.trainer.settings.load import load_settings\n"
        "for words in (['on_polcy'], ['on_policy', 'updatez=3']):\n"
        "    try:\n        load_settings(words[0], words[1:])\n"
        "    except RatioscopeError as error:\n        print(error)\n"
        "print({'torch', 'transformers'} & sys.modules.keys())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "did you mean 'on_policy'?" in said[0] and "did you mean 'updates'?" in said[1] and said[2] == "set()"
