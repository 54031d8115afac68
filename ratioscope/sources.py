"""The documents that define the theory: their titles, where to read them, and how a citation of one is written out.

Code and tables cite by short names, "S0 4.6"; what a user reads has titles: `titled` in plain text, `linked` in
Markdown.
"""

import re
from typing import NamedTuple


class Source(NamedTuple):
    """A document."""

    title: str
    """In full, with authors and year."""
    short: str
    """Within a sentence."""
    address: str
    """Empty: it is not public."""


SOURCES = {
    "S0": Source(
        '"Off-Policy Training in Large Language Model Reinforcement Learning: From Theory to Practice" (2025)',
        "Off-Policy Training: Theory to Practice",
        "https://xihuai18.github.io/reinforcement-learning/2025/12/17/offpolicy-en.html",
    ),
    "S1": Source(
        'Yingru Li, Jiacai Liu: "Why Off-Policy Breaks RL: An SGA Analysis Framework" (2025)',
        "Why Off-Policy Breaks RL",
        "https://richardli.xyz/rl-collapse",
    ),
    "S3": Source(
        '"Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm" (2025)',
        "Group-Relative REINFORCE",
        "https://arxiv.org/abs/2509.24203",
    ),
    "S4": Source('"Reinforcement Learning for LLM Alignment" (draft)', "RL for LLM Alignment (draft)", ""),
}

_CITED = re.compile(rf"\b({'|'.join(SOURCES)})\b(?='s|[ ,.;:)]|$)")


def titled(text: str) -> str:
    """A text with titles for short names: "S0 4.6" becomes "Off-Policy Training: Theory to Practice 4.6"."""
    return _CITED.sub(lambda found: SOURCES[found[1]].short, text)


def linked(text: str) -> str:
    """The same as Markdown, each title a link where the document is public; the rest of the text stays as it is."""
    return _CITED.sub(lambda found: _link(SOURCES[found[1]]), text)


def _link(source: Source) -> str:
    return f"[{source.short}]({source.address})" if source.address else source.short
