"""A mapping file to fill in, with the columns that are there and what their names look like."""

import re
from collections.abc import Iterator
from pathlib import Path

from ratioscope.analysis.importers.tables import SUFFIXES, columns_in
from ratioscope.errors import RatioscopeError

# How programs call what we call so; the first that fits. The user decides.
_NAMES: tuple[tuple[str, str, str], ...] = (
    ("tokens", "logp_behavior", r"(rollout|inference|generation|sampl\w*|vllm|behaviou?r)\w*log_?p\w*|^logprobs$"),
    ("tokens", "logp_reference", r"ref\w*_?log_?p\w*"),
    ("tokens", "logp_current", r"(old|prev|train\w*|actor|prox\w*|current)\w*log_?p\w*|^log_?probs?$"),
    ("tokens", "entropy", r"entrop"),
    ("tokens", "advantage", r"advantage"),
    ("tokens", "mask", r"mask"),
    ("tokens", "token_id", r"token_?ids?|(response|completion)_(ids|tokens)|^tokens$|output_ids"),
    ("tokens", "behavior_version", r"version"),
    ("tokens", "prompt_length", r"prompt_len\w*"),
    ("step", "step", r"^(global_|train\w*_)?steps?$|iteration|rollout_id"),
    ("tokens", "seq_id", r"^(seq|sequence|sample|response|traj\w*|rollout)_?(id|idx|index|uid)$"),
    ("sequences", "group_id", r"group|^uid$|prompt_i(d|dx)|task_id"),
    ("sequences", "reward", r"^(reward|score)s?$|total_reward"),
    ("sequences", "prompt", r"^(prompt|input|question)s?(_text)?$"),
    ("sequences", "response", r"^(response|completion|output|answer)s?(_text)?$"),
    ("sequences", "finish_reason", r"finish|stop_reason"),
)
_KINDS = {"mask": "tokens", "prompt_length": "tokens"}
# Files that are looked at, and names that are listed of each.
_MOST_FILES, _MOST_COLUMNS = 4, 200

_HEAD = """\
# What the files hold, for: ratioscope import {path} --mapping THIS_FILE.toml
# Left of "=" stand ratioscope's names (ratioscope explain format), on the right those of your files.
# Lines that begin with "#" are off. What your files do not have stays off: it is shown as not logged. Which column is
# which was guessed from the names: check each line that you turn on.
"""

_STEP = """
# --- Which update a row belongs to: a column, or a number in the name of the file -------------------------------------
{step}
# step_in_name = 'step_(\\d+)'
# step_offset = -1                    # ratioscope counts from 0
"""

_TOKENS = """
[tokens]
files = "{files}"
layout = "{layout}"                    # "lists": a row is a response with lists; "rows": a row is a token
# padding = "right"                   # "left" or "right" where lists are padded to one length; needs length or mask
# length = "..."                      # column with the number of tokens in a padded list
{prompt_length}
{mask}
# shifted = ["logp_current"]          # columns whose value at index i is about token i + 1

[tokens.columns]
{columns}

# [tokens.constants]
# behavior_version = 0
"""

_SEQUENCES = """
[sequences]
# files = "..."                       # where responses are in files of their own
[sequences.columns]
{columns}

# [sequences.rewards]                 # parts of the reward, by names of yours
# format = "rewards.format"           # a dot leads into an object

# [steps]                             # what is known of an update: of a step's rows the last value counts
# files = "metrics.jsonl"             # without it: the files of [tokens]
# [steps.columns]
# policy_version = "..."              # of the weights before the update, counted as behavior_version is
# loss = "..."
# grad_norm = "..."

# [run]                               # what is known of the run
# framework = "..."
# algorithm = {{ name = "grpo" }}
# seed = 0
"""


def template(path: Path | None) -> str:
    """The text of a mapping file; with a path, with the columns of the files there.

    Raises:
        RatioscopeError: there is nothing at the path that a mapping file could describe.
    """
    found = _columns(path) if path is not None else {}
    guesses: dict[str, dict[str, str]] = {}
    taken: set[str] = set()
    columns = {name: kind for file in found.values() for name, kind in file.items()}
    for table, ours, pattern in _NAMES:
        for theirs, kind in columns.items():
            short = theirs.rsplit(".", 1)[-1]
            if theirs not in taken and re.search(pattern, short, re.IGNORECASE) and ours not in guesses.get(table, {}):
                guesses.setdefault(table, {})[ours] = f'{ours} = "{_escaped(theirs)}"' + _kind_said(kind)
                taken.add(theirs)
    of_tokens = guesses.get("tokens", {})
    lists = any("list" in kind for kind in columns.values()) or not columns
    usual = ("token_id", "logp_behavior", "logp_current", "advantage")
    text = _HEAD.format(path=path if path is not None else "PATH")
    text += "".join(_listed(file, names) for file, names in found.items())
    text += _STEP.format(step="# " + guesses.get("step", {}).get("step", 'step = "step"'))
    text += _TOKENS.format(
        files=_escaped(_glob(path, next(iter(found), None))),
        layout="lists" if lists else "rows",
        prompt_length="# "
        + of_tokens.pop("prompt_length", 'prompt_length = "..."')
        + "  # tokens of the prompt in the lists",
        mask="# " + of_tokens.pop("mask", 'mask = "..."') + "  # true where the policy sampled the token",
        columns=_lines(of_tokens, usual if lists else ("seq_id", *usual)),
    )
    text += _SEQUENCES.format(
        columns=_lines(guesses.get("sequences", {}), ("group_id", "reward", "prompt", "response"))
    )
    return text.rstrip()


def _lines(guesses: dict[str, str], usual: tuple[str, ...]) -> str:
    return "\n".join("# " + guesses.get(ours, f'{ours} = "..."') for ours in dict.fromkeys([*usual, *guesses]))


def _listed(file: Path, names: dict[str, str]) -> str:
    shown = [f"#   {_comment(name)}: {_comment(kind)}\n" for name, kind in list(names.items())[:_MOST_COLUMNS]]
    more = f"#   and {len(names) - _MOST_COLUMNS} more\n" if len(names) > _MOST_COLUMNS else ""
    return f"#\n# {_comment(file.name)} has\n{''.join(shown)}{more}"


def _comment(text: str) -> str:
    """On one line: a name with a line break in it would end the comment."""
    return " ".join(text.split())


def _kind_said(kind: str) -> str:
    return f"   # {_comment(kind).replace('item: ', '').replace('element: ', '')}"


def _escaped(text: str) -> str:
    """As a basic string of TOML holds it."""
    return "".join(f"\\u{ord(sign):04x}" if ord(sign) < 32 or sign in '"\\\x7f' else sign for sign in text)


def _glob(path: Path | None, file: Path | None) -> str:
    if path is None or file is None or file == path:
        return "*.parquet" if file is None else file.name
    within = file.relative_to(path)
    return re.sub(r"\d+", "*", within.as_posix())


def _columns(path: Path) -> dict[Path, dict[str, str]]:
    """The columns of the first files of each kind of name."""
    if not path.exists():
        raise RatioscopeError(f"{path}: there is no such file or folder.")
    found: dict[str, Path] = {}
    for file in _files(path):
        found.setdefault(re.sub(r"\d+", "*", file.relative_to(path).as_posix() if file != path else file.name), file)
        if len(found) == _MOST_FILES:
            break
    if not found:
        endings = ", ".join(SUFFIXES)
        raise RatioscopeError(f"{path}: no file here that a mapping file can describe; their names end in {endings}.")
    return {file: columns_in(file) for file in found.values()}


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    yield from (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
