"""Who leads: rows best first, sentences whose every part is tested, intervals within what is possible."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ratioscope.analysis.compare.grouping import Member, Setting, grouped_settings
from ratioscope.analysis.compare.sentences import StandingWords, rank_words, standing_words
from ratioscope.analysis.compare.standing import Rank, Standing, short_names, standing
from tests.making.members import member, setting

TASK = {"evaluation_prompts": 400}
WORDS = 25


def _told(groups: list[Setting], metric: str = "eval_accuracy") -> tuple[Standing, StandingWords]:
    return (found := standing(groups, metric)), standing_words(found)


def _of(ends: dict[str, list[float]], schedule: str = "on-policy", **fields: object) -> list[Setting]:
    task = fields.pop("task", TASK)
    return [replace(setting(name, values, task=task, **fields), schedule=schedule) for name, values in ends.items()]


def test_one_seed_each_is_judged_by_the_noise_of_the_runs_and_says_so_once() -> None:
    groups = _of({"a": [0.52], "b": [0.50], "c": [0.30], "d": [0.28], "e": [0.10]})
    found, told = _told(groups)
    assert told.sentences == (
        "Best: a (52%, 1 seed).", "Undecided: b (50%).", "Worse: c, d and e.",
    )  # fmt: skip
    assert told.caveat == "Not known: the effect of seeds (one each; run at least 3)."
    assert rank_words(found) == {0: "best", 1: "undecided", 2: "worse", 3: "worse", 4: "worse"}
    assert not found.by_seeds and told.basis == "95% by 400 evaluation prompts, not seeds"
    terms = "Tied: within 5 points of the best; worse: behind it; undecided: neither"
    assert told.terms == f"{terms} (95%, these seeds)."
    assert [row.name for row in found.rows] == list("abcde")
    assert [row.rank for row in found.rows] == [Rank.BEST, Rank.UNDECIDED, *[Rank.WORSE] * 3]
    assert [row.letters for row in found.rows] == ["a", "a", "b", "b", "c"]


def test_from_three_seeds_of_each_on_their_spread_decides() -> None:
    near = {"a": [0.50, 0.52, 0.51], "b": [0.40, 0.41, 0.41], "c": [0.49, 0.53, 0.50]}
    found, told = _told(_of(near))
    assert found.by_seeds and told.caveat == "Not known: the effect of starts (41%–51%)."
    assert told.sentences == ("Best: a (51%, 3 seeds), tied with c (51%).", "Worse: b (41%).")
    wide = near | {"d (epsilon 0.6)": [0.30, 0.66, 0.50]}
    _, told_apart = _told(_of(wide))
    assert told_apart.sentences == (
        "Best: a (51%, 3 seeds), tied with c (51%).",
        "Undecided: d (epsilon 0.6), 49%.",
        "Worse: b (41%).",
    )
    for row in found.rows:
        assert tuple(row.interval) == pytest.approx(stats.t.interval(0.95, 2, row.value, stats.sem(row.seeds)))
    found, told = _told(_of(near | {"c": [0.49, 0.53]}))
    assert not found.by_seeds
    assert told.caveat == "Not known: the effect of seeds (under 3 in some) and starts (41%–51%)."


def test_what_is_not_tested_is_never_called_tied() -> None:
    silent, known = _of({"a": [0.5]}, task={}), _of({"b": [0.49], "c": [0.1]})
    assert _told([*silent, *known])[1].sentences == ("Best: a (50%, 1 seed).", "Undecided: b and c.")
    found, nobody = _told(_of({"a": [0.5], "b": [0.1]}, task={}))
    assert nobody.sentences[1].startswith("Undecided whether the settings differ: a-seed0 does not say on how many")
    assert not any(row.letters or row.rank is not Rank.UNDECIDED for row in found.rows) and not nobody.terms


@pytest.mark.parametrize(("metric", "seeds"), [("eval_accuracy", 1), ("eval_accuracy", 4), ("s_k", 4)])
def test_settings_that_are_worse_by_the_margin_are_rarely_called_tied(metric: str, seeds: int) -> None:
    """By simulation: of four settings that are worse by just the margin, each in at most one of forty comparisons."""
    rng, wrong, found = np.random.default_rng(seeds), 0, 0
    times, prompts, lower = 40, 2_000, metric == "s_k"
    for _ in range(times):
        truths = np.array([0.80, *[0.88 if lower else 0.75] * 4, 0.80])
        drawn = rng.normal(truths, 0.004, (seeds, 6)) if seeds > 1 else rng.binomial(prompts, truths, (1, 6)) / prompts
        groups = [
            setting(f"{place}", drawn[:, place].tolist(), task={"evaluation_prompts": prompts}, metric=metric)
            for place in range(6)
        ]
        ranks = {row.name: row.rank for row in standing(groups, metric).rows}
        wrong += sum(ranks[str(place)] is Rank.TIED for place in range(1, 5))
        found += {ranks["0"], ranks["5"]} <= {Rank.BEST, Rank.TIED}
    assert wrong <= stats.binom.ppf(0.999, 4 * times, 0.025)
    assert found > times / 2


def test_each_schedule_has_its_best_and_what_has_no_rival_comes_last() -> None:
    groups = [
        *_of({"a": [0.5], "b": [0.1]}, "sync_interval = 20"), *_of({"a": [0.2], "b": [0.6]}, "offline"),
        *_of({"a": [0.9]}, "on-policy"),
    ]  # fmt: skip
    found, told = _told(groups)
    assert told.sentences == (
        "Best under sync_interval = 20: a (50%); worse: b (10%).", "Best offline: b (60%); worse: a (20%).",
    )  # fmt: skip
    assert [group.schedule for group in found.groups[:2]] == ["sync_interval = 20", "offline"]
    assert rank_words(found) == {0: "best", 1: "worse", 2: "worse", 3: "best"}
    more = _told([*groups, *_of({"a": [0.5], "b": [0.5]}, "sync_offset = 3")])[1]
    assert more.sentences == (
        "Best under sync_interval = 20: a (50%); worse: b (10%).",
        "Best offline: b (60%); worse: a (20%).",
        "Best under sync_offset = 3: a (50%); undecided: b (50%).",
    )  # fmt: skip
    many = _told([*groups, *(each for n in (3, 4, 5) for each in _of({"a": [0.5], "b": [0.5]}, f"sync_offset = {n}"))])[
        1
    ]
    assert many.sentences == (
        "Best: a (50%) under sync_interval = 20; b (60%) offline; a (50%) under sync_offset = 3; 2 more schedules "
        "below.",
    )
    assert [row.name for row in found.groups[2].rows] == ["a, on-policy"]
    assert found.groups[2].rows[0].rank is None


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_forty_settings_are_told_in_sentences_that_can_be_read(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    ends = {f"a_long_name_{n} (learning_rate {n}, top_p 0.{n})": list(rng.uniform(0, 1, seeds)) for n in range(40)}
    for groups in (_of(ends), [*_of(ends, "sync_interval = 20, mixture of 4 versions"), *_of(ends, "offline")]):
        found, told = _told(groups)
        assert len(found.rows) == len(groups)
        for sentence in (*told.sentences, told.terms, told.collapsed, told.caveat):
            assert len(sentence.split()) <= WORDS, sentence
        for row in found.rows:
            low, high = row.interval
            assert not low < 0 and not high > 1
            assert np.isnan(low) or low <= row.value <= high


def test_of_a_metric_without_a_better_way_the_highest_is_named() -> None:
    groups = [setting("a", [1.0, 1.1, 1.2], metric="entropy"), setting("b", [9.0, 9.1, 9.3], metric="entropy")]
    assert _told(groups, "entropy")[1].sentences == ("Highest: b (9.13, 3 seeds).", "Lower: a (1.1).")
    assert _told(groups, "entropy")[1].terms == "Lower: behind the highest (95% over seeds)."


def test_what_else_differs_between_rivals_is_said_with_the_best() -> None:
    """It stood below the charts alone, where a reader of the ranking does not look."""

    def at(name: str, rate: str, **more: object) -> Member:
        return member([0.5] * 8, algorithm=name, optimiser={"lr": rate}, task=TASK, **more)

    alike = grouped_settings([at("a", "1"), at("b", "1"), at("c", "2", schedule={"sync_interval": 4})])
    assert "lr" not in _told(alike)[1].caveat  # which has no rival
    rivals = grouped_settings([at("a", "1"), at("b", "1"), at("c", "2")])
    assert (
        _told(rivals)[1].caveat == "Not known: the effect of seeds (one each; run at least 3) and lr (1 unless named)."
    )
    sampled = [at("a", "1", sampler={"top_p": 1.0}), at("b", "2", sampler={"top_p": 0.9})]
    assert _told(grouped_settings(sampled))[1].caveat.endswith(", top_p and lr.")
    older = grouped_settings([at("a", "1", sampler={"top_p": 1.0}), at("b", "1")])
    assert "top_p" not in _told(older)[1].caveat


@pytest.mark.parametrize(("starts", "said"), [((0.42, 0.49), True), ((0.42, 0.45), False), ((0.42, 0.42), False)])
def test_settings_that_begin_further_apart_than_their_seeds_are_pointed_out(
    starts: tuple[float, float], said: bool
) -> None:
    """Readers of curves that began at 42% and 49% were left to wonder."""
    groups = [
        Setting(name, name, "on-policy", tuple(
            member([start + 0.01 * seed, *[0.9 - 0.1 * seed] * 8], seed, algorithm=name, task=TASK) for seed in seeds
        ))
        for name, start, seeds in zip("ab", starts, ((0, 1), (0,)), strict=True)
    ]  # fmt: skip
    assert _told(groups)[1].caveat.endswith(" and starts (42%–49%).") == said
    assert ("starts (" in _told(groups)[1].caveat) == said
    assert "starts (" not in _told([replace(each, members=each.members[:1]) for each in groups])[1].caveat


def test_names_are_what_differs() -> None:
    a, b = setting("grpo", [0.5]), setting("grpo", [0.4])
    rates = [replace(a, variant="grpo (lr 1)"), replace(b, variant="grpo (lr 2)")]
    assert short_names(rates) == ["lr 1", "lr 2"]
    assert short_names([a, replace(b, schedule="offline")]) == ["on-policy", "offline"]
    assert short_names([rates[0], replace(rates[1], schedule="offline")]) == ["lr 1, on-policy", "lr 2, offline"]
    assert short_names([a, setting("ppo", [0.4])]) == ["grpo", "ppo"]
    assert short_names([a]) == ["grpo"]


def test_the_baseline_is_the_best_that_sentences_name() -> None:
    groups = [setting("a", [0.2]), setting("best", [0.9]), setting("b", [0.1])]
    assert groups[standing(groups, "eval_accuracy").best].variant == "best"
