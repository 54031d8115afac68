"""Citations: short names in the code, titles and links on the screen."""

import pytest

from ratioscope.catalogue import ENTRIES
from ratioscope.sources import SOURCES, linked, titled


def test_a_citation_becomes_a_title_and_a_link() -> None:
    assert titled("S0 4.6, 7.2; S3 figure 3") == (
        "Off-Policy Training: Theory to Practice 4.6, 7.2; Group-Relative REINFORCE figure 3"
    )
    assert linked("S1 2, 3.1").startswith("[Why Off-Policy Breaks RL](https://") and linked("S1 2").endswith(") 2")
    assert linked("S4 eq. 97") == "RL for LLM Alignment (draft) eq. 97"


@pytest.mark.parametrize("text", ["$S_0$", "S05", "XS1 2", "S2 3", "usual"])
def test_what_is_no_citation_stays(text: str) -> None:
    assert linked(text) == titled(text) == text


def test_no_short_name_is_left_in_any_source() -> None:
    for entry in ENTRIES.values():
        assert not set(titled(entry.source).replace(",", " ").split()) & set(SOURCES), entry.key
