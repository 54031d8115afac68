"""SQL templates: every placeholder has a value, and every value a placeholder."""

import pytest

from ratioscope.analysis.runs.database import filled


def test_a_template_is_filled_everywhere() -> None:
    text = filled("drift/certificate_steps", kept="12")
    assert "max(log_rho, 12)" in text and "$" not in text


@pytest.mark.parametrize("values", [{}, {"keep": "12"}, {"kept": "12", "other": "1"}])
def test_placeholders_and_values_that_do_not_match_are_an_error(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"drift/certificate_steps\.sql has the placeholders \['kept'\]"):
        filled("drift/certificate_steps", **values)
