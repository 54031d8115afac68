"""Formulas of the catalogue as one line of text, for a terminal, where LaTeX is not drawn."""

import re

_TOKENS = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.")

# Space that the formula asks for; any other space of LaTeX is none.
_GAP = "\N{NO-BREAK SPACE}"

_SYMBOLS = {
    "Delta": "Δ", "Vert": "‖", "beta": "β", "cdot": "·", "chi": "χ", "ell": "ℓ", "epsilon": "ε", "equiv": "≡", "eta": "η",
    "gamma": "γ", "infty": "∞", "lVert": "‖", "langle": "⟨", "mid": "|", "nabla": "∇", "neq": "≠", "pi": "π", "rVert": "‖",
    "rangle": "⟩", "rho": "ρ", "sum": "Σ", "left": "", "right": "", "textstyle": "", ",": _GAP, ";": _GAP, " ": _GAP, "%": "%",
}  # fmt: skip
_WORDS = ("exp", "log", "max", "min")
_ACCENTS = {"hat": "\u0302", "overline": "\u0304"}
_LOW = str.maketrans("0123456789+-=()ehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
_HIGH = str.maketrans("0123456789+-=()γij", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵞⁱʲ")
# A sign has space around it where something that can be added to, or compared, stands before it.
_SIGN = re.compile(r"(?<=[\w)\]|‖⟩⁺\u0302\u0304])([-+=<>≠≡])")


_LETTER = re.compile(r"[A-Za-zα-ωℓ]")


def formula_text(latex: str) -> str:
    r"""Return a formula as text: `\tfrac12\,\mathrm{mean}\,|\rho_k-1|` is "½ mean |ρₖ − 1|".

    Args:
        latex: a formula of `Metric.formula`.

    Raises:
        ValueError: for a command that the catalogue does not use.
    """
    tokens = _TOKENS.findall(latex)
    text = _read(tokens)
    if tokens:
        raise ValueError(f"The formula {latex!r} closes a brace that it does not open.")
    return re.sub(r"\s+", " ", _SIGN.sub(r" \1 ", text)).replace("-", "−").strip()


def _read(tokens: list[str], spaces: bool = False) -> str:
    """Text of all tokens up to the end, or up to the brace that closes; only words keep the `spaces` between them."""
    text = ""
    while tokens and tokens[0] != "}":
        part = _next(tokens, spaces)
        # Words stand apart, and so does what follows a subscript without characters of its own: "log ρ", "Σ_g N_g".
        if _LETTER.match(part) and (part in _WORDS or re.search(r"(log|max|min|_\w+)$", text)) and text[-1:].isalnum():
            text += " "
        text += part
    return text


def _next(tokens: list[str], spaces: bool = False) -> str:
    """Text of one token with what belongs to it, taken off the front."""
    while tokens[0].isspace() and not spaces:
        tokens.pop(0)
    token = tokens.pop(0)
    if token == "{":
        text = _read(tokens, spaces)
        tokens.pop(0)
        return text
    if token in "_^":
        return _shifted(_next(tokens), token)
    if not token.startswith("\\"):
        return token
    command = token[1:]
    if command in ("frac", "tfrac"):
        over, under = _next(tokens), _next(tokens)
        return "½" if (over, under) == ("1", "2") else f"{_bracketed(over)}/{_bracketed(under)}"
    if command == "sqrt":
        return f"√{_bracketed(_next(tokens))}"
    if command in _ACCENTS:
        return _next(tokens) + _ACCENTS[command]
    if command in ("mathrm", "text"):
        return _next(tokens, spaces=True)
    if command == "mathbb":
        return {"E": "𝔼"}[_next(tokens)]
    if command in _WORDS:
        return command
    if command not in _SYMBOLS:
        raise ValueError(f"{token} has no text.")
    return _SYMBOLS[command]


def _shifted(text: str, mark: str) -> str:
    """A subscript or superscript, in characters of their own where all of them exist."""
    table = _LOW if mark == "_" else _HIGH
    if all(ord(letter) in table for letter in text) and (len(text) < 4 or (mark == "_" and not text.isalpha())):
        return text.translate(table)
    return mark + (text if text.isalnum() or len(text) == 1 else f"({text})")


def _bracketed(text: str) -> str:
    """The text as one factor of a fraction."""
    whole = re.fullmatch(r"[^\W\d_Σ][^\WΣ]*[\u0302\u0304]?|[\d.]+|[^\W_Σ]{1,3}[⁰-⁹²]?|\([^()]*\)[²]?|‖\w+‖²?", text)
    return text if whole else f"({text})"
