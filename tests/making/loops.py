"""Many cheap cases as one test: where a case costs less than pytest's own work around a test."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def in_one_loop(name: str, cases: Mapping[str, Any]) -> Callable[[Test], Test]:
    """Like parametrising `name`, in one test, which tries every case and reports each that fails."""

    def decorate(check: Test) -> Test:
        parameters = inspect.signature(check).parameters

        @wraps(check, updated=())  # what hypothesis has written on the inner function stays there
        def loop(**fixtures: Any) -> None:
            assert cases
            failures: list[BaseException] = []
            for label, case in cases.items():
                try:
                    check(**{name: case}, **fixtures)
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - is raised with the others
                    failure.add_note(f"{name} = {label}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(cases)} cases", failures)

        others = [parameter for parameter in parameters.values() if parameter.name != name]
        loop.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        loop.pytestmark = getattr(check, "pytestmark", [])  # type: ignore[attr-defined]
        return loop

    return decorate
