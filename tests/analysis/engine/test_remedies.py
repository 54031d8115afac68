"""What to set: every framework has something, and the packages that are installed know the names."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ratioscope.analysis.frameworks.remedies import OWN, REMEDIES, Like, Purpose, framework_of, remedies, to_log
from ratioscope.analysis.frameworks.sources import FRAMEWORKS
from ratioscope.run_format.manifest import Manifest

PACKAGES = {"trl": "trl", "verl": "verl", "areal": "areal", "openrlhf": "openrlhf", "skyrl": "skyrl"}
# Of vLLM's command line and of samplers, not of the package.
_OTHERS = {"vllm", "serve", "logprobs", "mode", "processed_logprobs", "top_p", "top_k", "temperature", "token", "clip"}


def test_every_framework_has_a_setting_and_its_own_words() -> None:
    assert set(REMEDIES) == {OWN, *FRAMEWORKS}
    assert all(any(one.purpose is Purpose.CORRECT for one in of) for of in REMEDIES.values())
    assert to_log("verl").endswith("calculate_log_probs=True")
    assert remedies("trl", Like.TEMPERATURE)[0].against is Like.TEMPERATURE
    assert all(one.against in (None, Like.TRUNCATION) for one in remedies(OWN, Like.TRUNCATION))
    for framework, key in (("NeMo-RL", "nemo_rl"), ("TRL", "trl"), ("unheard of", "")):
        assert framework_of(Manifest(name="x", source={"framework": framework})) == key


@pytest.mark.parametrize("framework", PACKAGES)
def test_installed_packages_know_the_names(framework: str) -> None:
    spec = find_spec(PACKAGES[framework])
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{framework} is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    text = "\n".join(
        file.read_text(encoding="utf-8", errors="replace")
        for pattern in ("**/*config*.py", "**/cli*/*.py", "**/cli_args.py", "**/config/**/*.yaml", "**/*_generation.py")
        for file in folder.glob(pattern)
    )
    names = {name for one in REMEDIES[framework] for name in re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+", one.setting)}
    assert len(names) > 2
    assert {name for name in names - _OTHERS if name not in text} == set()
