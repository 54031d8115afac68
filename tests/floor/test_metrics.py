"""Batch metrics: known answers, padded against flat, what is left out and why, and no waiting on the way."""

import json
import pickle
from collections.abc import Callable
from math import exp, inf, log, nan
from typing import Any

import mpmath as mp
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ratioscope import terms
from ratioscope.catalogue import CATALOGUE
from ratioscope.errors import RatioscopeError
from ratioscope.metrics import BatchMetrics, batch_metrics, unreliable
from ratioscope.notes import Kind, Note
from ratioscope.terms import Term

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
COUNTS = ("n_tokens", "n_sequences", "n_groups", "n_invalid", "n_undefined")
ROWS, LENGTH = 12, 30
NEEDED = {
    "logp_new": {"u_k", "u_k_bounded", "tv_new_behavior", "tv_new_behavior_bounded", "khat_token_new"},
    "logp_behavior_train": {"s_k_version", "s_k_engine", "s_k_version_bounded", "s_k_engine_bounded"},
    "logp_reference": {"kl_to_reference"},
    "logp_teacher": {"kl_to_teacher"},
    "entropy": {"entropy"},
    "clip_side": {"clip_fraction_low", "clip_fraction_high"},
    "gate": {"gate_mean", "effective_token_fraction"},
    "advantage": {
        "clip_fraction_positive", "clip_fraction_negative", "effective_token_fraction", "zero_advantage_group_fraction",
    },
}  # fmt: skip


def padded(seed: int = 0) -> dict[str, Tensor]:
    """What a trainer has at hand: [batch, length] log-probabilities, one advantage and one group a response."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(ROWS, LENGTH, generator=generator)

    behavior = -1.5 + normal(0.3)
    current = behavior + normal(0.2)
    side = torch.randint(-1, 2, (ROWS, LENGTH), generator=generator)
    advantage = torch.randn(ROWS, generator=generator)
    advantage[:3] = 0
    return {
        "logp_behavior": behavior,
        "logp_current": current,
        "logp_new": current + normal(0.1),
        "logp_behavior_train": behavior + normal(0.02),
        "logp_reference": behavior + normal(0.3),
        "logp_teacher": behavior + normal(0.3),
        "advantage": advantage,
        "group": torch.arange(ROWS) // 3,
        "mask": torch.arange(LENGTH) < torch.randint(5, LENGTH, (ROWS, 1), generator=generator),
        "clip_side": side,
        "clipped": side != 0,
        "gate": (side == 0).float(),
        "entropy": torch.rand(ROWS, LENGTH, generator=generator),
    }


def flat(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tokens under the mask, in one row."""
    given = given | {"sequence": torch.arange(ROWS)}
    mask = given.pop("mask")
    return {
        name: (tensor if tensor.dim() == 2 else tensor.unsqueeze(1).expand(mask.shape))[mask]
        for name, tensor in given.items()
    }


def assert_same(found: BatchMetrics, expected: BatchMetrics) -> None:
    assert set(found) == set(expected) and found.notes == expected.notes
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-12, abs=1e-15), key


@pytest.mark.parametrize("device", DEVICES)
def test_known_answers_of_three_actions(device: str) -> None:
    """Actions as often as the behavior policy takes them: b = (.5, .3, .2), c = (.4, .4, .2), n = (.3, .45, .25)."""
    often = torch.tensor([5, 3, 2])
    b, c, n = (
        torch.tensor(policy, dtype=torch.float64).log().repeat_interleave(often).to(device)
        for policy in ((0.5, 0.3, 0.2), (0.4, 0.4, 0.2), (0.3, 0.45, 0.25))
    )
    found = batch_metrics(b, c, logp_new=n, logp_reference=n, sequence=torch.arange(10, device=device))
    expected = {
        "s_k": 0.1, "u_k": 0.1, "tv_new_behavior": 0.2, "s_k_bounded": 0.1, "tv_new_behavior_bounded": 0.2,
        "u_k_bounded": 0.1,
        "ratio_mean": 1.0, "chi2_token": 0.0533333333, "chi2_token_raw": 0.0533333333, "chi2_seq": 0.0533333333,
        "kl_k1": 0.0252671539, "kl_k3": 0.0252671539, "kl_reverse": 0.0258154085, "kl_to_reference": 0.0233309045,
        "ess_token": 1 / 1.0533333333, "ratio_min": 0.8, "ratio_max": 4 / 3, "n_tokens": 10, "n_groups": 10,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-8)


def test_padded_rows_are_the_flat_tokens_under_the_mask() -> None:
    given = padded()
    found = batch_metrics(**given)
    assert found["n_tokens"] == given["mask"].sum() and (found["n_sequences"], found["n_groups"]) == (ROWS, 4)
    assert found["zero_advantage_group_fraction"] == 0.25
    assert_same(found, batch_metrics(**flat(given)))


@pytest.mark.parametrize("junk", [nan, inf, -inf, 0.0, 3.0])
def test_padding_may_hold_anything(junk: float) -> None:
    given = padded()
    spoilt = {
        name: torch.where(given["mask"], tensor, junk) if tensor.is_floating_point() and tensor.dim() == 2 else tensor
        for name, tensor in given.items()
    }
    assert_same(batch_metrics(**spoilt), batch_metrics(**given))


def test_ids_are_any_integers_in_any_order() -> None:
    given = flat(padded())
    order = torch.randperm(len(given["sequence"]), generator=torch.Generator().manual_seed(1))
    renamed = given | {"sequence": 10**12 - 7 * given["sequence"], "group": -5 * given["group"]}
    assert_same(batch_metrics(**{name: tensor[order] for name, tensor in renamed.items()}), batch_metrics(**given))


def test_without_groups_every_sequence_is_its_own() -> None:
    given = padded()
    del given["group"]
    assert_same(batch_metrics(**given), batch_metrics(**given, group=torch.arange(ROWS)))
    assert batch_metrics(**given)["n_groups"] == ROWS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_on_policy_data_are_exactly_on_policy(dtype: torch.dtype) -> None:
    logp = padded()["logp_behavior"].to(dtype)
    found = batch_metrics(logp, logp, logp_new=logp, logp_behavior_train=logp, logp_reference=logp)
    zero = [key for key in found if key.startswith(("s_k", "u_k", "tv_", "chi2_", "kl_", "log1p_"))]
    assert len(zero) == 21 and {found[key] for key in zero} == {0.0}
    one = [key for key in found if key.startswith(("ess_", "ratio_"))]
    assert len(one) == 10 and {found[key] for key in one} == {1.0}
    assert "ratio_mean_z" not in found and "standard error" in found.notes["ratio_mean_z"].text
    assert found.notes["khat_token"].kind is Kind.NO_TAIL
    assert all("seq" in key for key in unreliable(found))  # a dozen responses are too few to know


def test_the_predicted_chi_square_of_responses_is_finite_where_that_of_tokens_is_not() -> None:
    """One ratio of e^400 among ten tokens of two responses: of its square only the logarithm is a number."""
    b = torch.full((2, 5), -450.0)
    c = b.clone()
    c[0, 0] += 400
    found = batch_metrics(b, c)
    assert found["chi2_token"] == inf and found["chi2_seq"] == inf
    assert found["log1p_chi2_seq_predicted"] == pytest.approx(5 * (800 - log(10)), rel=1e-12)
    assert found["log1p_chi2_seq"] == pytest.approx(800 - log(2), rel=1e-12)


def test_perplexities_are_those_of_the_tokens() -> None:
    """Uniform over 8 and over 5 tokens; of unlike ones the geometric mean over all tokens, whatever their response."""
    b, c = torch.full((3, 4), 1 / 8).log(), torch.full((3, 4), 1 / 5).log()
    found = batch_metrics(b, c)
    assert found["ppl_behavior"] == pytest.approx(8, rel=1e-6) and found["ppl_current"] == pytest.approx(5, rel=1e-6)
    assert found["ppl_current"] / found["ppl_behavior"] == pytest.approx(exp(found["kl_k1"]), rel=1e-12)
    uneven = torch.tensor([[0.5, 0.5, 0.5], [0.1, 1.0, 1.0]]).log()
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert batch_metrics(uneven, uneven, mask=mask)["ppl_current"] == pytest.approx((8 * 10) ** 0.25, rel=1e-6)


def test_differences_are_taken_in_double_precision() -> None:
    b, c = torch.tensor([[-20.123456, -0.1]]), torch.tensor([[-20.123455, -0.1000001]])
    logs = c.double() - b.double()
    found = batch_metrics(b, c)
    assert found["s_k"] == pytest.approx(float(torch.expm1(logs).abs().mean()) / 2, rel=1e-12)
    assert found["kl_k3"] == pytest.approx(float((logs**2 / 2).mean()), rel=1e-5)


def test_the_result_is_plain_and_leaves_its_inputs_alone() -> None:
    given = padded()
    given["logp_new"].requires_grad_()
    before = {name: tensor.detach().clone() for name, tensor in given.items()}
    found = batch_metrics(**given)
    assert {type(value) for value in found.values()} == {float}
    assert json.loads(json.dumps(found)) == found
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.notes == found.notes
    assert all(torch.equal(given[name].detach(), before[name]) for name in given)


@pytest.mark.parametrize(
    ("column", "value", "cause"),
    [
        ("logp_behavior", nan, "nan"), ("logp_behavior", -inf, "infinite"), ("logp_behavior", 0.01, "positive"),
        ("logp_current", nan, "nan"), ("logp_current", inf, "infinite"), ("logp_current", 0.01, "positive"),
        ("logp_new", nan, "nan"), ("logp_new", inf, "infinite"), ("logp_new", 0.01, "positive"),
        ("advantage", nan, "advantage"), ("advantage", inf, "advantage"),
    ],
)  # fmt: skip
def test_an_unusable_token_is_left_out_and_counted_and_its_sequence_has_no_weight(
    column: str, value: float, cause: str
) -> None:
    good = padded()
    good["advantage"] = good["advantage"].unsqueeze(1).repeat(1, LENGTH)
    bad = good | {column: good[column].clone()}
    bad[column][4, 2] = value
    without = good | {"mask": good["mask"].clone()}
    without["mask"][4, 2] = False
    found, expected = batch_metrics(**bad), batch_metrics(**without)
    assert {key: n for key, n in found.items() if key.startswith("n_invalid") and n} == {
        "n_invalid": 1, f"n_invalid_{cause}": 1,
    }  # fmt: skip
    assert (found["n_tokens"], found["n_sequences"], found["n_undefined"]) == (expected["n_tokens"], ROWS, 1)
    assert all(found[key] == expected[key] for key in ("s_k", "u_k", "ratio_p50", "ess_token", "khat_token"))
    without["mask"][4] = False
    assert found["chi2_seq"] == pytest.approx(batch_metrics(**without)["chi2_seq"], rel=1e-12)


def test_an_impossible_action_is_a_ratio_of_zero() -> None:
    given = padded()
    given["logp_current"][0, 0] = given["logp_new"][1, 0] = -inf
    found = batch_metrics(**given)
    assert (found["n_invalid"], found["n_undefined"], found["ratio_min"]) == (0, 0, 0)
    assert found["kl_k1"] == found["kl_k3"] == inf and found.notes["kl_k3"].kind is Kind.INFINITE
    assert all(0 < found[key] < 10 for key in ("u_k", "s_k", "kl_reverse", "kl_to_reference", "chi2_seq"))


@pytest.mark.parametrize("nats", [1000.0, -1000.0])
def test_weights_beyond_the_floating_point_range_stay_finite_in_log_space(nats: float) -> None:
    b = torch.full((8, 5), -1500.0)
    c = b.clone()
    c[3, 1] += nats
    found = batch_metrics(b, c, logp_reference=b)
    heavy = nats > 0
    assert found["log1p_chi2_seq"] == pytest.approx(2 * nats - mp.log(8) if heavy else mp.log(9 / 8), rel=1e-12)
    assert found["ess_token"] == pytest.approx(1 / 40 if heavy else 39 / 40, rel=1e-12)
    assert found["kl_to_reference"] == (inf if heavy else pytest.approx(1 / 40))
    assert (found["chi2_token"] == inf) == heavy == ("chi2_token" in unreliable(found))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_an_empty_batch_has_counts_of_zero_and_no_numbers(shape: tuple[int, ...]) -> None:
    nothing = torch.zeros(shape)
    found = batch_metrics(nothing, nothing, logp_new=nothing, sequence=nothing.long(), advantage=nothing)
    assert set(found.values()) == {0.0} and all(key.startswith("n_") for key in found)
    assert str(found.notes["s_k"]) == str(found.notes["u_k"]) == "no usable token in this batch"


def test_a_batch_of_padding_is_as_empty() -> None:
    given = padded()
    given["mask"] = torch.zeros_like(given["mask"])
    found = batch_metrics(**given)
    assert set(found.values()) == {0.0} and set(COUNTS) <= set(found)
    assert {key for key in found.notes if "no usable token" not in found.notes[key].text} <= {
        "khat_token", "khat_token_new", "khat_seq",
    }  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_what_was_not_given_has_no_key_and_a_reason(name: str) -> None:
    everything = batch_metrics(**padded())
    assert not [key for key, note in everything.notes.items() if note.kind is Kind.NOT_LOGGED]
    given = padded()
    del given[name]
    found = batch_metrics(**given)
    assert set(everything) - set(found) == NEEDED[name]
    assert all(name in found.notes[key].text and found.notes[key].kind is Kind.NOT_LOGGED for key in NEEDED[name])


@pytest.mark.parametrize(
    ("name", "value", "key", "reason"),
    [
        ("logp_current", -inf, "ess_token", "every ratio is 0"),
        ("entropy", nan, "entropy", "no finite entropy"),
        ("advantage", 1.0, "clip_fraction_negative", "no token with negative advantage"),
    ],
)
def test_what_is_undefined_says_why(name: str, value: float, key: str, reason: str) -> None:
    given = padded()
    found = batch_metrics(**given | {name: torch.full_like(given[name], value)})
    assert key not in found and found.notes[key] == Note(Kind.UNDEFINED, reason)


def test_either_clip_tensor_gives_the_clip_fraction() -> None:
    expected = batch_metrics(**padded())["clip_fraction"]
    for name in ("clipped", "clip_side"):
        given = padded()
        del given[name]
        assert batch_metrics(**given)["clip_fraction"] == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logp_current": torch.zeros(3)}, r"logp_current has shape \(3,\), it must be .* \(12, 30\)\.$"),
        ({"logp_new": torch.zeros(ROWS)}, r"logp_new has shape \(12,\)"),
        ({"advantage": torch.zeros(LENGTH)}, r"advantage has shape \(30,\).* or one value a row, \(12,\)\."),
        ({"mask": torch.ones(ROWS, LENGTH + 1)}, r"mask has shape \(12, 31\)"),
        ({"logp_behavior": torch.zeros(2, 3, 4)}, r"it must be \[tokens\] or \[batch, length\]"),
    ],
)
def test_a_tensor_of_another_shape_is_refused(changed: dict[str, Tensor], message: str) -> None:
    with pytest.raises(RatioscopeError, match=message):
        batch_metrics(**padded() | changed)


def test_flat_tokens_need_their_sequences() -> None:
    with pytest.raises(RatioscopeError, match="need `sequence`"):
        batch_metrics(torch.zeros(4), torch.zeros(4))


def test_a_second_moment_is_judged_by_the_largest_of_its_own_weights() -> None:
    values = dict.fromkeys(CATALOGUE, 0.5) | {"reliance_token": 0.1, "reliance_seq": 0.1}

    def doubted(metrics: dict[str, float]) -> dict[str, Note]:
        return unreliable(BatchMetrics(metrics, {}))

    assert doubted(values) == {}
    second = {"chi2_token", "chi2_token_raw", "ess_token", "log1p_chi2_seq_predicted", "kl_reverse"}
    assert doubted(values | {"reliance_token": 0.31}).keys() == second
    assert doubted(values | {"reliance_seq": 0.31}).keys() == {"chi2_seq", "chi2_seq_raw", "log1p_chi2_seq", "ess_seq"}
    del values["reliance_token"]  # no standard error
    assert doubted(values).keys() == second


class Recorded(TorchDispatchMode):
    """Which operations ran."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.name())
        masks = [index for index in args[1] if index is not None] if func.name() == "aten::index.Tensor" else []
        if any(index.dtype == torch.bool for index in masks):
            self.seen.add("aten::nonzero")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("given", [padded(), flat(padded())], ids=["padded", "flat"])
def test_nothing_waits_for_the_device_on_the_way(given: dict[str, Tensor]) -> None:
    """No operation whose result, or whose size, the host has to know before the final transfer."""
    with Recorded() as recorded:
        batch_metrics(**given)
    waiting = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "equal", "item", "is_nonzero")
    assert recorded.seen and not [name for name in recorded.seen if name.split("::")[1].startswith(waiting)]


LOGS = [0.0, 1e-12, -1e-9, 3e-5, -9.9e-3, 1.01e-2, 0.3, -2.0, 29.0, 31.0, -40.0, 300.0, -800.0]


def of(term: Callable[..., Term], *values: Tensor) -> Tensor:
    """A term of tensors."""
    names = [f"x{number}" for number in range(len(values))]
    found: Tensor = terms.evaluate_term(term(*map(terms.column, names)), dict(zip(names, values, strict=True)), torch)
    return found


def compared(found: Tensor, exact: list[Any]) -> None:
    assert found.tolist() == pytest.approx([float(value) for value in exact], rel=1e-12)


def test_terms_keep_their_digits_at_every_size() -> None:
    x = torch.tensor(LOGS, dtype=torch.float64)
    with mp.workdps(700):
        logs = [mp.mpf(value) for value in LOGS]
        compared(of(terms.expm1_minus, x), [mp.expm1(v) - v for v in logs])
        compared(of(terms.reverse_kl, x), [v * mp.exp(v) - mp.expm1(v) for v in logs])
        compared(of(terms.log_abs_expm1, x)[1:], [mp.log(abs(mp.expm1(v))) for v in logs[1:]])
        y, exact = x.roll(1), [*logs[-1:], *logs[:-1]]
        compared(of(terms.ratio_distance, y, x), [abs(mp.exp(v) - mp.exp(u)) for v, u in zip(exact, logs, strict=True)])
        rho = [mp.exp(v) for v in logs]
        compared(
            of(terms.weighted_reference, x, y),
            [w * (mp.expm1(v - u) - (v - u)) for w, v, u in zip(rho, exact, logs, strict=True)],
        )


def test_terms_at_a_ratio_of_zero_are_their_limits() -> None:
    zero, other = torch.tensor([-inf], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)
    assert of(terms.expm1_minus, zero).item() == inf and of(terms.reverse_kl, zero).item() == 1
    assert of(terms.log_abs_expm1, zero).item() == 0 and of(terms.log_abs_expm1, torch.zeros_like(zero)).item() == -inf
    assert of(terms.ratio_distance, zero, zero).item() == 0
    assert of(terms.ratio_distance, zero, other).item() == of(terms.ratio_distance, other, zero).item()
    assert of(terms.weighted_reference, zero, other).item() == pytest.approx(float(mp.exp(0.5)))
