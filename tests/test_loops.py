"""A loop over cases fails where one of them does, tries the others all the same, and names each that fails."""

import pytest

from tests.making.loops import in_one_loop


def test_every_case_is_tried_and_each_failure_named() -> None:
    tried = []

    @in_one_loop("case", {"small": 1, "large": 9, "odd": 3})
    def check(case: int, limit: int) -> None:
        tried.append(case)
        assert case <= limit
        with pytest.raises(ZeroDivisionError):
            _ = 1 / (case - 3)

    with pytest.raises(BaseExceptionGroup) as failed:
        check(limit=5)
    assert tried == [1, 9, 3]
    assert [failure.__notes__ for failure in failed.value.exceptions] == [["case = small"], ["case = large"]]


@in_one_loop("case", {"one": 1, "two": 2})
@pytest.mark.parametrize("more", [1, 2])
def test_marks_and_fixtures_of_the_inner_function_are_kept(
    case: int, more: int, request: pytest.FixtureRequest
) -> None:
    assert request.node.callspec.params == {"more": more}


def test_no_case_is_a_failure() -> None:
    with pytest.raises(AssertionError):
        in_one_loop("case", {})(lambda case: None)()
