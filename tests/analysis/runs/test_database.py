"""SQL templates: every placeholder has a value, and every value a placeholder."""

import pytest

from ratioscope.analysis.runs.database import filled


def test_a_template_is_filled_everywhere() -> None:
    text = filled("drift/certificate_tokens", log_gamma="-0.5")
    assert "position * -0.5::double" in text and "$" not in text


@pytest.mark.parametrize("values", [{}, {"gamma": "-0.5"}, {"log_gamma": "-0.5", "other": "1"}])
def test_placeholders_and_values_that_do_not_match_are_an_error(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"drift/certificate_tokens\.sql has the placeholders \['log_gamma'\]"):
        filled("drift/certificate_tokens", **values)
