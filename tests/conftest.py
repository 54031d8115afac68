"""What every test shares: a cache folder of its own, so that no test reads what another session computed."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point RATIOSCOPE_CACHE to a folder of this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIOSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
