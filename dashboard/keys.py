"""The keys of the app, declared once: buttons take theirs from here, and `?` lists them (`components.palette`)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """A key and what it does."""

    press: str
    """As Streamlit takes a shortcut, where a button has it."""
    does: str
    where: str = "Everywhere"


SHORTCUTS = {
    "palette": Key("Ctrl+K", "Go to a page, run, view, finding, metric or step"),
    "keys": Key("?", "List these keys"),
    "close": Key("Esc", "Close what is open"),
    "open": Key("Alt+O", "Open the selected run", "Runs"),
    "compare": Key("Alt+P", "Compare the selected runs", "Runs"),
    "along": Key("← →", "From step to step", "A chart that has the focus"),
    "step": Key("Enter", "Open the step", "A chart that has the focus"),
    "wrong": Key("Alt+W", "Next wrong answer, or low reward", "Tokens"),
    "right": Key("Alt+G", "Next right answer, or high reward", "Tokens"),
    "extreme": Key("n p", "Next and previous extreme token", "A response that has the focus"),
    "token": Key("← → ↑ ↓", "From token to token", "A response that has the focus"),
}
