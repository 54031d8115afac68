"""Why sampler and trainer differ at one version: each cause on a log that was made with it, and none without."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from ratioscope.analysis.findings.cause import CAUSES, Family
from ratioscope.analysis.findings.finding import Finding, Outcome, Severity
from ratioscope.analysis.linter.place import places
from ratioscope.analysis.runs.store import open_run
from tests.analysis.linter.remarks import asked
from tests.cases.world import END, TENSORS, Call, Log, Shape, simulate, write
from tests.making.runs import plain_step, write_run

Array = NDArray[Any]
STEPS, GROUPS, PER, LENGTH, PROMPTS = 12, 10, 4, 40, 20
_RESPONSES = GROUPS * PER


def made(
    folder: Path,
    spread: Callable[[pd.DataFrame], Array],
    *,
    later: float = 0.05,
    new: bool = True,
    short: int = LENGTH,
    decimals: int | None = None,
    sampled: Callable[[pd.DataFrame], Array] | None = None,
    changes: bool = False,
    pack: int = 10,
    prompt_tokens: Callable[[pd.DataFrame], Array] = lambda first: first["absolute"].to_numpy(),
) -> Finding:
    """What is said of a log whose engines differ by a noise in the logits, of this standard deviation by token.

    Args:
        spread: of a frame with step, response, group, position, absolute, segment, prompt, visit, engine, environment,
            rank, length, number (of the response in its rank).
        later: by how much an update moves the logits.
        short: tokens of one in two responses.
        sampled: the sampler's values, of the same frame with the trainer's; None: the trainer's with the noise.
        changes: whether the version changes where `behind` is 0.
        pack: responses of a micro-batch.
        prompt_tokens: of the frame's first token of each response.
        decimals: that the log keeps of a log-probability, and says so; None: all.
    """
    rng, steps, seen = np.random.default_rng(3), [], np.zeros(PROMPTS, dtype=int)
    for number in range(STEPS):
        response, position = np.divmod(np.arange(_RESPONSES * LENGTH), LENGTH)
        length = np.where(np.random.default_rng(number).random(_RESPONSES) < 0.5, LENGTH, short)[response]
        response, position, length = (each[position < length] for each in (response, position, length))
        prompt = rng.permutation(PROMPTS)[:GROUPS]
        of = response // PER
        frame = pd.DataFrame(
            {"step": number, "response": response, "group": of, "position": position, "prompt": prompt[of],
             "absolute": position + (37 * response + 11 * number) % 89 + 3,
             "token": rng.integers(0, 500, len(of)),
             "behind": position - 8 - (5 * response + number) % 17,
             "segment": (position > (7 * response + number) % 31 + 4).astype(int),
             "visit": seen[prompt][of], "engine": response % 4, "environment": of // 2 % 2, "rank": of % 2,
             "length": length, "number": of // 2 * PER + response % PER}
        )  # fmt: skip
        seen[prompt] += 1
        sure = np.where(rng.random(len(frame)) < 0.6, 0.003, 0.4) * rng.exponential(1.0, len(frame)) + 1e-4
        trainer = -sure
        # A difference of logits moves a log-probability by 1 - p of it.
        moved = -np.expm1(trainer) * np.asarray(spread(frame)) * rng.standard_normal(len(frame))
        update = -np.expm1(trainer) * later * rng.standard_normal(len(frame))
        version = np.maximum(number - (frame["behind"] < 0), 0).to_numpy(np.int32)
        behavior = sampled(frame.assign(trainer=trainer)) if sampled else np.minimum(trainer - moved, -1e-7)
        step = plain_step(
            behavior, trainer, np.minimum(trainer + update, -1e-7) if new else None,
            number=number, sequence=response, group=of, logp_behavior_train=trainer.astype(np.float32),
            token_id=frame["token"].to_numpy(np.int32),
            segment_id=frame["segment"].to_numpy(np.int16),
            **({"behavior_version": version} if changes else {}),
        )  # fmt: skip
        first = frame.drop_duplicates("response")
        step.sequences.update(
            prompt_id=first["prompt"].to_numpy(np.int64), rank=first["rank"].to_numpy(np.int32),
            prompt_tokens=np.asarray(prompt_tokens(first)).astype(np.int32),
            micro_batch=(first["number"] // pack).to_numpy(np.int32),
            history_break=np.array(["compaction"] * _RESPONSES),
            engine=np.array([f"server-{each}" for each in first["engine"]]),
            environment=np.array(["text", "image"])[first["environment"]],
        )  # fmt: skip
        if decimals is not None:
            values = {name: each for name, each in step.tokens.items() if name.startswith("logp_")}
            step.tokens.update({name: np.round(each, decimals) for name, each in values.items()})
        steps.append(step)
    written = write_run(folder, steps, log_probability_decimals=decimals)
    return asked(open_run(written), "mismatch_cause")[0]


def at(column: str, value: int, size: float = 0.5) -> Callable[[pd.DataFrame], Array]:
    """A large difference in one level of a column, a usual one elsewhere."""
    return lambda frame: np.where(frame[column] == value, size, 0.03)


@pytest.mark.parametrize(
    ("spread", "cause", "words"),
    [
        (at("engine", 2), "one_server", "server-2"),
        (at("environment", 1), "one_environment", "environment image"),
        (at("rank", 1), "one_rank", "rank 1"),
        (lambda frame: np.where(frame["prompt"] < 4, 0.6, 0.03), "some_prompts", "4 of 20 prompts"),
        (
            lambda frame: np.where(frame["prompt"] < 4, 0.02 + 0.2 * np.minimum(frame["visit"], 3), 0.03),
            "kept_of_some_prompts",
            "4 of 20 prompts",
        ),
        (
            lambda frame: 0.02 + 0.12 * np.minimum(frame["visit"], 4) * np.exp(-frame["position"] / 6),
            "prefix_cache",
            "prompts that come again",
        ),
        (lambda frame: np.minimum(frame["step"], 4) * 0.05, "rounded_update", "in the second half of the run"),
        (lambda frame: 0.02 * frame["step"], "engines_drift_apart", "the last third of the run"),
        (lambda frame: np.where(frame["step"] < 3, 0.02, 0.5), "other_from_a_step", "from step 3 on"),
        (lambda frame: np.where(frame["token"] % 25 == 3, 0.9, 0.03), "some_tokens", "of 500 token ids"),
        (lambda frame: np.where(frame["step"].isin([5, 6]), 0.4, 0.03), "older_weights_for_some_steps", "steps 5–6"),
        (lambda frame: 0.01 + 0.006 * frame["position"], "long_contexts", "grows with the position"),
        (lambda frame: np.where(frame["position"] < 17, 0, 0.2), "kernel_boundary", "identical up to position 1"),
        (lambda frame: np.where(frame["absolute"] < 64, 0, 0.2), "kernel_boundary", "64 of prompt and response"),
    ],
)
def test_a_cause_is_named_with_its_place(
    tmp_path: Path, spread: Callable[[pd.DataFrame], Array], cause: str, words: str
) -> None:
    found = made(tmp_path / "run", spread)
    assert found.outcome is Outcome.FOUND and found.of_cause == cause, found.sentence
    assert words in found.sentence + found.why
    assert found.do.startswith(CAUSES[cause].do)


def test_a_jump_is_no_growth_and_a_growth_is_no_jump(tmp_path: Path) -> None:
    """A jump that updates could make, behind the first version's data, is left to the causes that begin there."""
    jump = made(tmp_path / "jump", lambda frame: np.where(frame["step"] < 3, 0.02, 0.5))
    assert "rounded" not in jump.sentence and "labels" not in jump.sentence, jump.sentence
    for begins in (1, 3):
        grown = made(
            tmp_path / f"{begins}", lambda frame, first=begins: np.clip(frame["step"] - first + 1, 0, 5) * 0.08
        )
        assert grown.of_cause == "rounded_update", grown.sentence


@pytest.mark.parametrize("by", [1, -1])
def test_values_that_are_late_from_one_token_on_are_named(tmp_path: Path, by: int) -> None:
    """In a fifth of the responses; values that are as far off, and no neighbour's, are not called so."""

    def late(values: pd.DataFrame) -> Array:
        trainer = values["trainer"].to_numpy()
        moved = (values["response"] % 5 == 0) & (values["position"] > 6 + values["response"] % 5)
        moved &= values["position"] < values["length"] - 1
        return np.where(moved, np.roll(trainer, by), trainer - 1e-4)

    def mixed(values: pd.DataFrame) -> Array:
        right, there = late(values), np.random.default_rng(1).permutation(values["trainer"].to_numpy())
        return np.where(right == values["trainer"] - 1e-4, right, there)

    found = made(tmp_path / "late", lambda frame: np.zeros(len(frame)), sampled=late, short=25)
    assert found.of_cause == "late_from_a_token_on", found.sentence
    assert f"the row {'before' if by == 1 else 'behind'}" in found.sentence
    found = made(tmp_path / "mixed", lambda frame: np.zeros(len(frame)), sampled=mixed, short=25)
    assert found.of_cause != "late_from_a_token_on", found.sentence


def test_tokens_behind_a_change_of_version_are_named(tmp_path: Path) -> None:
    def old(frame: pd.DataFrame) -> Array:
        behind = frame["behind"].to_numpy()
        return np.where(behind >= 0, 0.5 * np.exp(-np.maximum(behind, 0) / 3), 0.02)

    found = made(tmp_path / "run", old, changes=True)
    assert found.of_cause == "old_behind_a_change" and "behind a change of version: 0 to" in found.sentence
    alike = made(tmp_path / "alike", lambda frame: np.where(frame["behind"] >= 0, 0.5, 0.02), changes=True)
    assert alike.of_cause != "old_behind_a_change", alike.sentence


@pytest.mark.parametrize(("columns", "late"), [("all", 0.0), ("trl", 0.0), ("all", 0.5), ("all", 1.0)])
def test_tokens_of_a_part_of_the_new_weights_are_told_from_late_labels(
    tmp_path: Path, columns: str, late: float
) -> None:
    """Labels that change six tokens late, in all responses or in half of them, are of whole weights."""
    shape = Shape(9003, steps=14, lag=1, schedule="partial", drift=0.2, noise=0.003)

    def sampler(call: Call, logits: Array) -> Array:
        ahead = call.of("switch") - call.position
        arriving = (ahead > 0) & (ahead <= 6) & (call.of("switch") < shape.longest)
        older, newer = call.policy.weights[call.version], call.policy.weights[call.version + 1]
        if late:
            arriving &= call.of("seq_id") % 10 < 10 * late
            served = call.served(newer)
        else:
            served = call.served(np.where(np.arange(TENSORS) < TENSORS // 2, newer, older))
        return np.where(arriving[:, None], served + shape.noise * call.noise(), logits)

    (found, *_) = asked(open_run(write(simulate(shape, sampler=sampler), tmp_path / "run", columns)), "mismatch_cause")
    assert (found.of_cause == "drawn_while_weights_arrive") == (not late), found.sentence
    assert not late or "with a part" not in found.sentence


def test_a_boundary_is_told_from_a_growth_that_rounding_hides(tmp_path: Path) -> None:
    """With four decimals values are equal where they differ by less; a boundary begins at once, far above that."""
    found = made(tmp_path / "run", lambda frame: np.where(frame["position"] < 17, 0, 0.2), decimals=4)
    assert found.of_cause == "kernel_boundary" and "identical up to position 1" in found.sentence
    found = made(tmp_path / "grows", lambda frame: np.minimum(1e-6 * 1.5 ** frame["position"], 0.2), decimals=4)
    assert found.of_cause != "kernel_boundary", found.sentence


def test_a_mismatch_of_short_responses_is_named_at_the_same_positions(tmp_path: Path) -> None:
    found = made(tmp_path / "run", lambda frame: np.where(frame["length"] < LENGTH, 0.4, 0.03), short=12)
    assert found.of_cause == "padding" and "responses of 12 tokens or less" in found.sentence
    alike = made(tmp_path / "alike", lambda frame: np.full(len(frame), 0.2), short=12)
    assert alike.outcome is Outcome.PASSED, alike.sentence


def test_a_mismatch_of_short_prompts_is_named(tmp_path: Path) -> None:
    """One that grows with the prompt is none, and neither is one of all alike."""

    def length(frame: pd.DataFrame) -> Array:
        return np.asarray(10 + (7 * frame["group"] + frame["step"]) % 30)

    found = made(tmp_path / "short", lambda frame: 0.02 + 0.015 * (40 - length(frame)), prompt_tokens=length)
    assert found.of_cause == "padded_prompts" and "prompts of 16 tokens or less" in found.sentence, found.sentence
    for name, spread in (
        ("long", lambda frame: 0.02 + 0.015 * length(frame)),
        ("alike", lambda frame: 0.2 + 0 * frame["group"]),
    ):
        other = made(tmp_path / name, spread, prompt_tokens=length)
        assert other.of_cause != "padded_prompts", other.sentence


def test_other_weights_since_the_first_update_are_told_from_rounded_ones(tmp_path: Path) -> None:
    """By size, and by when it begins: rounding is a part of an update, and a growth takes more than one."""

    def since(frame: pd.DataFrame, size: float) -> Array:
        return np.where(frame["step"] < 1, 0.01, size)

    for size, cause in ((1.2, "other_from_the_first_update"), (0.1, "rounded_update")):
        found = made(tmp_path / cause, lambda frame, size=size: since(frame, size))
        assert found.of_cause == cause, found.sentence
    grown = made(tmp_path / "grown", lambda frame: np.minimum(frame["step"], 5) * 0.3)
    assert grown.of_cause != "other_from_the_first_update", grown.sentence


@pytest.mark.parametrize(
    ("spread", "words"),
    [
        (lambda frame: np.where(frame["absolute"] >= 64, 0.5, 0.03), "position with the prompt 64 to "),
        (lambda frame: np.where(frame["segment"] > 0, 0.5, 0.03), "segments: after the first (compaction)"),
    ],
)
def test_a_place_is_said_with_its_cause_or_without(
    tmp_path: Path, spread: Callable[[pd.DataFrame], Array], words: str
) -> None:
    found = made(tmp_path / "run", spread)
    assert words in found.why + found.sentence, (found.sentence, found.why)


def test_a_mismatch_of_prompts_that_are_cut_is_named(tmp_path: Path) -> None:
    """Where prompts of the largest length are many; as large a mismatch of prompts that are long is no cut."""

    def long(frame: pd.DataFrame) -> Array:
        return np.where(frame["prompt"] >= 12, 0.5, 0.03)

    found = made(tmp_path / "cut", long, prompt_tokens=lambda first: np.minimum(10 + 2 * first["prompt"], 34))
    assert found.of_cause == "prompts_cut" and "prompts of 34 tokens" in found.sentence, found.sentence
    found = made(tmp_path / "long", long, prompt_tokens=lambda first: 10 + 2 * first["prompt"])
    assert found.of_cause != "prompts_cut", found.sentence


@pytest.mark.parametrize(("column", "at"), [("position", 7), ("absolute", 0)])
def test_a_mismatch_at_one_position_of_every_block_is_named(tmp_path: Path, column: str, at: int) -> None:
    """Counted in the response or with the prompt; one position alone is no block."""
    found = made(tmp_path / "run", lambda frame: np.where(frame[column] % 8 == at, 0.9, 0.03))
    assert found.of_cause == "ends_of_blocks" and f"position {at} of every 8," in found.sentence, found.sentence
    alone = made(tmp_path / "alone", lambda frame: np.where(frame[column] == 24 + at, 0.9, 0.03))
    assert alone.of_cause != "ends_of_blocks", alone.sentence


def test_a_mismatch_that_fades_is_of_another_context_or_of_older_weights(tmp_path: Path) -> None:
    """By whether it is there ahead of any update; one that does not fade is neither."""

    def fading(frame: pd.DataFrame) -> Array:
        return np.asarray(0.02 + 0.5 * np.exp(-frame["position"] / 8))

    found = made(tmp_path / "context", fading)
    assert found.of_cause == "other_context" and "another context" in found.sentence, found.sentence
    found = made(tmp_path / "old", lambda frame: fading(frame) * np.where(frame["step"] == 0, 0.2, 1.0))
    assert found.of_cause == "first_tokens_older" and "version labels" in found.sentence, found.sentence
    grown = made(tmp_path / "alike", lambda frame: np.minimum(frame["step"], 4) * 0.05)
    assert grown.of_cause not in ("other_context", "first_tokens_older"), grown.sentence


def test_a_context_of_all_but_the_first_of_a_group_is_named(tmp_path: Path) -> None:
    """Where it fades with the position; one that does not has no prompt in it."""

    shape = Shape(9004, steps=14, lag=1)
    wrong = np.random.default_rng(9).standard_normal((shape.states, shape.vocabulary))
    for over in (18, 10_000):

        def cached(log: Log, _: str, logits: Array, over: int = over) -> Array:
            part = 0.4 * np.exp(-log.tokens["position"] / over) * (log.of_token("seq_id") % shape.responses > 0)
            return logits + part[:, None] * wrong[log.state]

        folder = write(simulate(shape, trainer=cached), tmp_path / f"{over}")
        (found, *_) = asked(open_run(folder), "mismatch_cause")
        assert (found.of_cause == "cached_prompt") == (over == 18), found.sentence
        assert over > 18 or "of the first" in found.sentence, found.sentence


@pytest.mark.parametrize(("columns", "prompts"), [("with reference", 0), ("all", 20), ("all", 0)])
def test_a_sampler_with_twice_the_updates_is_told_from_one_with_half_of_them(
    tmp_path: Path, columns: str, prompts: int
) -> None:
    """By the reference, by prompts that come again, or by the way that the first updates go."""
    for strength in (2.0, 0.5):
        log = simulate(
            Shape(9001, steps=12, lag=0, drift=0.04, prompts=prompts),
            sampler=lambda call, _, by=strength: call.served(by * call.policy.weights[call.version]),
        )
        (found, *_) = asked(open_run(write(log, tmp_path / f"{strength}", columns)), "mismatch_cause")
        assert (found.of_cause == "updates_twice") == (strength > 1), found.sentence
        assert "rounded" not in found.sentence, found.sentence


@pytest.mark.parametrize("size", [0.0, 0.03, 0.3])
def test_a_mismatch_that_is_everywhere_alike_has_no_cause_here(tmp_path: Path, size: float) -> None:
    found = made(tmp_path / "run", lambda frame: np.full(len(frame), size))
    assert found.outcome is Outcome.PASSED, found.sentence


def test_what_would_decide_is_named_where_two_causes_fit(tmp_path: Path) -> None:
    """Rounding and labels that are too young look alike until the next update is known."""
    found = made(tmp_path / "run", lambda frame: np.minimum(frame["step"], 4) * 0.05, new=False)
    assert found.sentence.startswith("Either ") and found.do.startswith("Log logp_new to decide.")


def test_a_small_mismatch_is_worth_a_notice_whatever_its_cause(tmp_path: Path) -> None:
    small = made(tmp_path / "small", at("engine", 2, 0.02))
    assert small.severity in (Severity.NONE, Severity.NOTICE)
    assert made(tmp_path / "large", at("engine", 2, 1.0)).severity is Severity.WARNING


def test_places_are_chance_on_noise() -> None:
    """Of 100 logs whose tokens differ alike, in every one of which seven dimensions are tried."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n = 4000
        frame = pd.DataFrame(
            {"step": np.repeat(np.arange(8), n // 8), "group_id": np.arange(n) // 50, "seq_id": np.arange(n) // 25,
             "position": np.arange(n) % 25, "last_position": 24, "turn": None, "token_id": rng.integers(0, 50, n),
             "routing_agreement": None, "segment_id": None, "history_break": None,
             "later_half": (np.arange(n) // 25 % 4 > 1).astype(object),
             "behind_change": (np.arange(n) % 25 - 9.0) * np.where(np.arange(n) % 25 < 9, np.nan, 1),
             "before_change": (8.0 - np.arange(n) % 25) * np.where(np.arange(n) % 25 < 9, 1, np.nan),
             "absolute": np.arange(n) % 25 + rng.integers(5, 200, n // 25).repeat(25),
             "engine": rng.integers(0, 6, n // 25).repeat(25), "rank": None,
             "environment": rng.integers(0, 2, n // 50).repeat(50), "adapter": None,
             "version_lag": rng.integers(0, 3, n // 50).repeat(50),
             "prompt_id": rng.integers(0, 20, n // 50).repeat(50), "visit": 0}
        )  # fmt: skip
        frame["logp_behavior"] = -rng.exponential(0.5, n)
        frame["fresh"] = -np.expm1(frame["logp_behavior"]) * 0.1 * rng.standard_normal(n)
        found += bool(places(frame))
    assert found <= 2


def test_every_cause_of_the_family_has_a_remedy_and_marks() -> None:
    for each in (each for each in CAUSES.values() if each.family is Family.MISMATCH):
        assert each.do.endswith(".") and each.requires, each.name


def test_responses_that_see_those_before_them_in_a_micro_batch_are_named(tmp_path: Path) -> None:
    """In micro-batches of one group each, the place is that in the group."""

    def later(pack: int) -> Callable[[pd.DataFrame], Array]:
        return lambda frame: 0.03 + 0.06 * (frame["number"] % pack).to_numpy()

    packed = made(tmp_path / "packed", later(10))
    assert packed.of_cause == "packed_together", packed.sentence
    assert "in micro-batches: later half of their responses" in packed.sentence
    assert made(tmp_path / "group", later(PER), pack=PER).of_cause != "packed_together"
    assert made(tmp_path / "members", later(PER)).of_cause != "packed_together"


@pytest.mark.parametrize("scored", [True, False])
def test_responses_under_other_prompts_are_told_by_what_they_earn(tmp_path: Path, *, scored: bool) -> None:
    """On two ranks the trainer's first tokens are of another context, and rewards are low, or as everywhere."""

    def gathered(log: Log, _: str, logits: Array) -> Array:
        there = (log.of_token("rank") > 1) * np.exp(-log.tokens["position"] / 10)
        return logits + 3 * there[:, None] * np.roll(log.policy.directions[0][log.state], 7, axis=1)

    def reward(log: Log) -> dict[str, Any]:
        low = (log.responses["rank"] > 1) & scored
        return {"reward": (log.rng.random(len(low)) < np.where(low, 0.05, 0.5)).astype(float)}

    log = simulate(Shape(43, lag=1, steps=16), trainer=gathered, reward=reward)
    found = asked(open_run(write(log, tmp_path / "run")), "mismatch_cause")[0]
    assert found.of_cause == ("rank_of_other_prompts" if scored else "one_rank"), found.sentence
    assert ("their mean reward is 0.0" in found.why) is scored


def whole_responses(folder: Path, sampler: Callable[[Call, Array], Array] | None, lag: int, noise: float) -> Finding:
    """What is said of a log in which whole responses have a version, and tokens none, nor a recomputation."""
    log = simulate(Shape(47, lag=lag, noise=noise, drift=0.05, steps=16), sampler=sampler)
    return asked(open_run(write(log, folder, "verl")), "mismatch_cause")[0]


def test_the_age_of_whole_responses_tells_the_engines_part(tmp_path: Path) -> None:
    """Of responses that are no older than the policy; where none are, the distance is the age's."""

    def rounded(call: Call, logits: Array) -> Array:
        base = call.policy.base[call.state]
        return base + np.round((logits - base) / 0.3) * 0.3

    found = whole_responses(tmp_path / "rounded", rounded, lag=0, noise=0.0)
    assert found.of_cause == "rounded_update", found.sentence
    assert whole_responses(tmp_path / "noise", None, lag=2, noise=0.01).outcome is Outcome.PASSED
    exact = whole_responses(tmp_path / "exact", None, lag=2, noise=0.0)
    assert "both engines agree to rounding" in exact.sentence, exact.sentence


def test_labels_that_say_nothing_of_the_weights_are_named(tmp_path: Path) -> None:
    """Labels of a sampler that follows, and rounds, are not called so, nor those that are one too young."""

    def frozen(call: Call, _: Array) -> Array:
        return call.served(call.policy.weights[0 * call.version])

    def rounded(call: Call, logits: Array) -> Array:
        base = call.policy.base[call.state]
        return base + np.round((logits - base) / 0.3) * 0.3

    def older(call: Call, _: Array) -> Array:
        return call.served(call.policy.weights[np.maximum(call.version - 1, 0)])

    found = whole_responses(tmp_path / "frozen", frozen, lag=1, noise=0.0)
    assert found.of_cause == "labels_without_weights" and "that are labelled older differ" in found.why, found.sentence
    for sampler in (rounded, older):
        found = whole_responses(tmp_path / sampler.__name__, sampler, lag=1, noise=0.0)
        assert found.of_cause != "labels_without_weights", found.sentence


@pytest.mark.parametrize(("until", "named"), [(31, True), (64, False)], ids=["a least length", "always"])
def test_a_sampler_that_may_not_end_early_is_named(until: int, named: bool, tmp_path: Path) -> None:
    def sampler(call: Call, logits: Array) -> Array:
        forbidden = END if named else 1  # that token may come at any length
        return np.where((np.arange(logits.shape[1]) == forbidden) & (call.position < until), -1e9, logits)

    run = open_run(write(simulate(Shape(1413, lag=1), sampler=sampler), tmp_path / "run", "all"))
    found = asked(run, "mismatch_cause")
    assert ("end_forbidden" in {each.of_cause for each in found}) is named
    if named:
        assert "no response ends before token 32" in found[0].sentence and found[0].is_problem
        assert not any(each.is_problem for each in asked(run, "zero_filled"))
