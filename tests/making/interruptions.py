"""Ctrl-C at any moment of a command: `python -m tests.making.interruptions TIMES RUN OTHER` prints a tally for each.

It kills nothing but the processes that it starts; what a command writes goes into a folder of its own.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LINE = "ratioscope: interrupted.\n"
# Seconds that Python takes before any code of ours runs.
FIRST = 0.15


def commands(run: Path, other: Path, scratch: Path) -> dict[str, list[str]]:
    """Every command that takes long, on this run, and on another one where it takes two."""
    folder = str(run)
    return {
        "summarize": ["summarize", folder, "--json"],
        "diagnose": ["diagnose", folder],
        "check": ["check", folder],
        "compare": ["compare", folder, str(other)],
        "report": ["report", folder, "--full", "-o", str(scratch / "report.html")],
        "watch": ["watch", folder, "--every", "0.1"],
        "partials": ["partials", folder, "--cache", str(scratch / "partials")],
    }


def heard() -> None:
    """Ctrl-C is not ignored, as it is in what a shell starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(arguments: list[str], after: float, environment: dict[str, str]) -> tuple[int, str, float]:
    """The exit code, what was said on stderr, and the seconds from the signal to the end."""
    command = [sys.executable, "-P", "-m", "ratioscope", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=heard
    ) as process:
        time.sleep(after)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, said, time.monotonic() - began


def lasts(arguments: list[str], environment: dict[str, str]) -> float:
    """Seconds of the command when it is left alone."""
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "ratioscope", *arguments]
    subprocess.run(command, capture_output=True, env=environment, check=False)
    return time.monotonic() - began


def main() -> None:
    times, run, other = int(sys.argv[1]), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    chosen = sys.argv[4:]
    moments = random.Random(0)
    for name in commands(run, other, Path()):
        if chosen and name not in chosen:
            continue
        outcomes: Counter[str] = Counter()
        slowest = 0.0
        with tempfile.TemporaryDirectory() as scratch:
            arguments = commands(run, other, Path(scratch))[name]

            def environment(number: int, scratch: str = scratch) -> dict[str, str]:
                return os.environ | {"RATIOSCOPE_CACHE": f"{scratch}/cache{number}"}  # nothing is known yet

            whole = lasts(arguments, environment(-1))
            for number in range(times):
                after = moments.uniform(FIRST, max(whole, 2 * FIRST))
                code, said, seconds = interrupted(arguments, after, environment(number))
                left = [path.name for path in Path(scratch).glob("*tmp-*")]
                if code == 130 and said == LINE and not left:
                    outcomes["130 and one line"] += 1
                    slowest = max(slowest, seconds)
                elif code in (0, 1) and "Traceback" not in said and not left:
                    outcomes["had ended before"] += 1
                else:
                    outcomes[f"{code} after {after:.2f} s: {said[-400:]!r} {left}"] += 1
        print(f"{name} ({whole:.1f} s), slowest end {slowest:.1f} s: {dict(outcomes)}", flush=True)


if __name__ == "__main__":
    main()
