"""What every test shares: a cache of its own, short garbage collections; what runs first, and in which process."""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Files with long tests first, so that no process sits over one of them when the others have ended.
LONG = (
    "tests/browser/", "tests/test_installing.py", "tests/test_one_story.py", "tests/seams/", "tests/trainer/",
    "tests/dashboard/", "tests/analysis/test_absent.py", "tests/test_notebook.py", "tests/cases/",
)  # fmt: skip
# The one server of the browser's tests, from which the demo's is apart; the reports of one run and of two.
SHARED = (LONG[0], "tests/dashboard/report/")
DEMO = "tests/browser/test_demo.py"

# Other people's packages, where `make test` puts them: behind everything else, since some bring modules called tests.
sys.path.append(str(Path(sys.prefix) / "outside"))

# The same examples in every run, so that a failure is one of the change at hand. `--hypothesis-seed=N` looks for more.
# However slow the machine is: no test is about that.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Point RATIOSCOPE_CACHE to a folder of this session, so that no test reads what another session computed.

    Its processes share it: to read all sample runs takes each of them half a minute.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATIOSCOPE_CACHE", str(folder / "cache"))
        yield


# What Playwright says where something did not come in time; anything else that goes wrong in a browser is wrong.
NOT_IN_TIME = [r"^TimeoutError: .*Timeout \d+ms exceeded", r"^AssertionError: (?s:.*) with timeout \d+ms"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SHARED[0]):  # the second attempt counts; who needed it stands in the summary
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=NOT_IN_TIME))
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: [not item.nodeid.startswith(folder) for folder in LONG])


def pytest_collection() -> None:
    """Next to nothing of what is imported and collected is garbage, and to look for it takes a fifth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Streamlit collects garbage after every run of a script; as in the launcher, what was imported is left out.

    It is not looked through before: that takes a second of each process.
    """
    gc.enable()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What a file has imported and keeps is left out as well, or each run of a page in the last ones takes seconds.

    A report that was written in this process has put everything back, too.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """A thread that reads a run beside a page may be in DuckDB, where it aborts a Python that ends."""
    for thread in threading.enumerate():
        if thread.name in ("reading", "headlines"):
            thread.join(30)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than there are cores: much of what the tests of browsers and commands do is wait."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return OneMaking(config, log)


class OneMaking(LoadFileScheduling):
    """The tests of a file stay in one process, and those of folders that share what takes long to make."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((folder for folder in SHARED if file.startswith(folder) and file != DEMO), file)
