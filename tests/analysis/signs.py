"""Words that name a cause, each with the sign of a log without which no `why` and no `do` may say it."""

import re
from collections.abc import Callable, Iterable

from ratioscope.analysis.findings.finding import Finding, Outcome
from ratioscope.analysis.findings.setup import unusual
from ratioscope.analysis.runs.store import Run

Sign = Callable[[Run | None, Iterable[Finding]], bool]


def _found(*checks: str) -> Sign:
    return lambda _, remarks: any(each.rule in checks and each.outcome is Outcome.FOUND for each in remarks)


def _stated(*settings: str) -> Sign:
    usual = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "dtype": "float32"}
    return lambda run, _: run is not None and bool(unusual(run.manifest.sampler, {key: usual[key] for key in settings}))


def _temperatures(run: Run | None, _: Iterable[Finding]) -> bool:
    """The responses say that they were sampled at several."""
    sequences = run.read("sequences") if run is not None else None
    return sequences is not None and "temperature" in sequences and sequences["temperature"].nunique() > 1


def _floor(run: Run | None, _: Iterable[Finding]) -> bool:
    return run is not None and "noise_floor_dtype" in run.steps and bool(run.steps["noise_floor_dtype"].notna().any())


def _never(run: Run | None, _: Iterable[Finding]) -> bool:
    """What no sign of a log shows, but a declared cause with its marks."""
    return False


SIGNS: dict[str, tuple[Sign, ...]] = {
    r"(?<!raise the )(?<!at that )\btemperature\b": (
        _stated("temperature"), _found("temperature"), _temperatures,
    ),
    r"\btop.?[pk]\b": (_stated("top_p", "top_k"), _found("truncated_support")),
    r"without truncation|leaves tokens out|excludes tokens": (
        _stated("temperature", "top_p", "top_k"), _found("truncated_support"),
    ),
    r"number format|\bkernels?\b|\bdtype\b|decoding transforms": (_stated("dtype"), _found("precision"), _floor),
    r"\bpack(?:ed|ing)\b|\bborders?\b": (_found("own_token"),),
    r"never arriv|stopped arriving|another version's weights|version is wrong": (_found("versions", "recomputed"),),
    r"\bcache\b|\brendered\b|\btemplate\b|\bretry\b|\bgreedy\b|seeded alike|\bBOS\b|\bresumed run\b": (_never,),
    r"\bframework\b.*\bbug\b|\bor something else\b|\bsuch as\b|\bas with\b": (_never,),
}  # fmt: skip
"""Patterns, and signs of which one is enough."""
# What names the column or the setting that would decide, or says that it is open, claims nothing.
_OPEN = re.compile(r"^(?:Log|State|Name)\b|\bis (?:open|unknown)\b")


def unfounded(findings: Iterable[Finding], run: Run | None = None, remarks: Iterable[Finding] = ()) -> list[str]:
    """Return what is said of causes without their signs, as "rule: words in sentence".

    Findings that name a known cause rest on the marks that it declares.
    """
    remarks, wrong = list(remarks), []
    for each in findings:
        if each.of_cause or each.outcome is not Outcome.FOUND:
            continue
        for sentence in re.split(r"(?<=\.) ", f"{each.why} {each.do}"):
            if _OPEN.search(sentence.strip()):
                continue
            wrong += [
                f"{each.rule}: {match.group(0)!r} in {sentence!r}"
                for pattern, signs in SIGNS.items()
                if (match := re.search(pattern, sentence)) and not any(sign(run, remarks) for sign in signs)
            ]
    return wrong
