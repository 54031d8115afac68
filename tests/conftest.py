"""What every test shares: a cache folder of its own, so that no test reads what another session computed."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point RATIOSCOPE_CACHE to a folder of this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIOSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What one process keeps together: the tests of a file, which share what they have trained, and those of the
    browser, which share a server; they take longest, so they come first."""
    for item in items:
        file = item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group("browser" if file.startswith("tests/browser/") else file))
    items.sort(key=lambda item: not item.nodeid.startswith("tests/browser/"))
