"""Padded, jagged and listed responses become the same columns, whichever side is padded."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from ratioscope.adapters.tensors import counts, group_numbers, null_where, sampling_versions, token_columns, totals
from ratioscope.errors import RatioscopeError

# Two responses of three and five places; a tool wrote the third and the fourth place of the second one.
MASKS = [[1, 1, 1], [1, 1, 0, 0, 1]]
LOGPS = [[-0.1, -0.2, -0.3], [-0.4, -0.5, 0.0, 0.0, -0.6]]
ROWS = {"seq_id": [0, 0, 0, 1, 1, 1], "position": [0, 1, 2, 0, 1, 2]}
EXPECTED = [-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]


def padded(rows: list[list[float]], side: str) -> torch.Tensor:
    blank = [[0.0] * (5 - len(row)) for row in rows]
    pairs = zip(rows, blank, strict=True)
    return torch.tensor([row + zeros if side == "right" else zeros + row for row, zeros in pairs])


def jagged(rows: list[list[float]]) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


SHAPES = {
    "padded on the right": lambda rows: padded(rows, "right"),
    "padded on the left": lambda rows: padded(rows, "left"),
    "jagged": jagged,
    "strided nested": lambda rows: torch.nested.nested_tensor([torch.tensor(row) for row in rows]),
    "lists": lambda rows: rows,
    "arrays": lambda rows: [np.array(row) for row in rows],
    "bfloat16": lambda rows: padded(rows, "right").to(torch.bfloat16),
    "needs a gradient": lambda rows: padded(rows, "left").float().requires_grad_(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_the_same_rows(shape: str) -> None:
    found = token_columns(SHAPES[shape](MASKS), {"logp_behavior": SHAPES[shape](LOGPS), "logp_new": None})
    assert {name: list(found[name]) for name in ROWS} == ROWS
    np.testing.assert_allclose(found["logp_behavior"], EXPECTED, rtol=5e-3 if shape == "bfloat16" else 1e-6)
    assert set(found) == {*ROWS, "logp_behavior"}
    assert counts(SHAPES[shape](MASKS)).tolist() == [3, 3]


def test_padding_read_from_the_other_side_would_differ() -> None:
    """The trap: right-aligned responses cut by their length from the left."""
    wrong = padded(LOGPS, "left")[0, :3].tolist()
    found = token_columns(padded(MASKS, "left"), {"logp_behavior": padded(LOGPS, "left")})["logp_behavior"][:3]
    assert wrong == pytest.approx([0, 0, -0.1])
    assert found.tolist() == pytest.approx(LOGPS[0])


def test_the_placeholder_on_a_tool_token_would_be_a_probability_of_one() -> None:
    found = token_columns(jagged(MASKS), {"logp_behavior": jagged(LOGPS)})["logp_behavior"]
    assert max(found) < 0 == max(LOGPS[1])


@pytest.mark.parametrize("advantages", [torch.tensor([1.0, -1.0]), torch.tensor([[1.0], [-1.0]]), [1.0, -1.0]])
def test_one_value_a_response_is_spread_over_its_tokens(advantages: Any) -> None:
    found = token_columns(jagged(MASKS), {"advantage": advantages}, seq_id=[7, 8])
    assert found["advantage"].tolist() == [1, 1, 1, -1, -1, -1]
    assert found["seq_id"].tolist() == [7, 7, 7, 8, 8, 8]


def test_rejected_tokens_stay_rows_and_say_why() -> None:
    kept = [[1, 1, 1], [0, 0, 0, 0, 1]]
    found = token_columns(jagged(MASKS), {}, kept=jagged(kept), reason="ratio out of bounds")
    assert found["rejected"].to_pylist() == [None, None, None, "ratio out of bounds", "ratio out of bounds", None]
    overwritten = token_columns(jagged(kept), {})  # the trap: the mask as rejection leaves it
    assert len(overwritten["position"]) == 4 < len(found["position"])


def test_versions_that_change_inside_a_response_are_known_for_the_response_alone() -> None:
    versions = sampling_versions([3, "4", None, ""], [3, 5, None, 6])
    assert versions["behavior_version"].to_pylist() == [3, None, None, None]
    assert versions["behavior_version_min"].to_pylist() == [3, 4, None, None]
    assert versions["behavior_version_max"].to_pylist() == [3, 5, None, 6]
    spread = token_columns([[1, 1], [1], [1], [1]], {"behavior_version": versions["behavior_version"]})
    assert spread["behavior_version"].to_pylist() == [3, 3, None, None, None]


def test_groups_are_numbered_as_they_come() -> None:
    assert group_numbers(np.array(["b", "a", "b"], dtype=object)).tolist() == [0, 1, 0]
    assert group_numbers(torch.tensor([5, 9, 5])).tolist() == [5, 9, 5]
    assert group_numbers([]).dtype == np.int64


def test_sums_and_nulls() -> None:
    assert totals(padded([[0, 0, 2], [0, 0, 0, 0, -1]], "right")).tolist() == [2, -1]
    assert null_where(torch.tensor([1.0, 2.0]), [False, True]).equals(pa.array([1.0, None], pa.float32()))


def test_an_empty_batch_has_no_rows() -> None:
    assert len(token_columns([], {})["seq_id"]) == 0
    assert len(token_columns(torch.zeros(2, 0), {"logp_new": torch.zeros(2, 0)})["logp_new"]) == 0


def test_a_column_of_another_shape_is_named() -> None:
    with pytest.raises(RatioscopeError, match="logp_new has 2 responses of 3 to 4 places, the mask 2 of 3 to 5"):
        token_columns(jagged(MASKS), {"logp_new": jagged([[0, 0, 0], [0, 0, 0, 0]])})
    with pytest.raises(RatioscopeError, match=r"shape \(2, 5, 1\)"):
        token_columns(torch.zeros(2, 5, 1), {})
