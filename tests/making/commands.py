"""The console command inside this process."""

import sys
from dataclasses import dataclass

import pytest

from ratioscope.dashboard import cli


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def succeeded(self) -> str:
        """What it printed, after having made sure that it ended well."""
        assert self.code == 0, self.err
        return self.out

    def failed(self) -> str:
        """The one sentence that a user's mistake is answered with."""
        assert self.code == cli.USAGE_ERROR, (self.code, self.out, self.err)
        assert not self.out
        (sentence,) = self.err.splitlines()
        assert sentence.startswith("ratioscope: ")
        assert sentence.endswith((".", "?"))
        assert "Traceback" not in sentence
        return sentence


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run `ratioscope ARGUMENTS`."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["ratioscope", *map(str, arguments)])
    code = 0
    try:
        cli.main()
    except SystemExit as ending:
        code = int(ending.code or 0)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)
