"""A select box over the catalogue: titles with their symbols, in their order."""

import re

import streamlit as st

from ratioscope.catalogue import CATALOGUE

METRICS = tuple(entry.key for entry in sorted(CATALOGUE.values(), key=lambda entry: entry.order) if entry.comparable)
"""Metrics that runs can be compared by."""

_SIGNS = {
    r"\hat\pi": "π̂", r"\hat k": "k̂", r"\overline{\rho}": "ρ̄", r"\overline{M}": "M̄", r"\overline{T}": "T̄",
    r"\overline T": "T̄ ", r"\overline{k-i}": "mean of k−i", r"\chi": "χ", r"\rho": "ρ", r"\pi": "π", r"\Delta": "Δ",
    r"\Vert": "‖", r"\lVert ": "‖", r"\rVert": "‖", r"\log": "log", r"\max": "max", r"\min": "min", r"\%": "%",
    "^2": "²", "^{+}": "⁺", r"^{\mathrm{version}}": ", version", r"^{\mathrm{engine}}": ", engine",
    r"^{\mathrm{exact}}": ", exact", r"\ell": "ℓ",
}  # fmt: skip


def symbol_text(symbol: str) -> str:
    """A symbol of the catalogue without LaTeX, for where none is set: `\\chi^2_{\\mathrm{seq}}` -> `χ²_seq`."""
    for sign in sorted(_SIGNS, key=len, reverse=True):
        symbol = symbol.replace(sign, _SIGNS[sign])
    plain = re.sub(r"\\(mathrm|overline)|[{}$]", "", symbol)
    return re.sub(r"\\([A-Za-z]*)", r"\1", plain)  # of any other command its name


def metric_label(key: str) -> str:
    """Title and symbol in plain text."""
    return f"{CATALOGUE[key].title} ({symbol_text(CATALOGUE[key].symbol)})"


def metric_choice(key: str) -> str:
    """A searchable select box, bound to the URL under this key; returns the chosen metric."""
    return st.selectbox(
        "Metric", METRICS, format_func=metric_label, key=key, bind="query-params", filter_mode="contains"
    )
