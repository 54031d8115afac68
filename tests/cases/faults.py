"""Faults that people who train language models with RL have met, each as a log of our own making.

A row says who reported it, what a perfect tool says, what must and what must not be said. The reports are named by
repository and number; a fault without one is of the list of causes that a run may have.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cases.case import Register
from tests.cases.world import (
    END,
    EVALUATION_PROMPTS,
    Array,
    Call,
    Columns,
    Draw,
    Log,
    Policy,
    Shape,
    apply_loss,
    compared,
    log_softmax,
    mixed,
    set_advantages,
    share,
    simulate,
)

FAULTS = Register()

# What is untrue where it is not the fault.
NEVER_ARRIVED = r"never arriv|does not follow the"
TEMPERATURE = r"drew at \d|\d × the temperature|which a temperature explains"
BROKEN = r"log is broken|cannot be trusted"
# Where some rows are wrong, that part of the log is.
WHOLLY_BROKEN = r"log is broken(?! in part)|cannot be trusted"
SAMPLER_COLUMN = r"logp_behavior is (exactly 0|not the|logged one)"
MISSING_RESPONSES = r"responses of these groups are missing|responses are missing"


# Sampler and trainer differ at one version ----------------------------------------------------------------------------


@FAULTS(
    "sampler",
    "Prompts that were sampled before are read from a cache of old weights: early positions, until the restart.",
    report="NeMo-RL #4018, #3152; prime-rl #1650, #2270",
    needs=("prompt & cache|sampled before|seen before|earlier visit|first visit|repeated prompt",),
    never=(NEVER_ARRIVED, BROKEN),
    columns=("all", "prime-rl"),
)
def prefix_cache() -> Log:
    restart = 15

    def setup(responses: Columns) -> None:
        first: dict[int, int] = {}
        found = []
        for step, prompt in zip(responses["step"].tolist(), responses["prompt_id"].tolist(), strict=True):
            key = prompt if step < restart else -prompt
            found.append(first.setdefault(key, step))
        responses["cached"] = np.array(found)

    def sampler(call: Call, logits: Array) -> Array:
        old = call.served(call.policy.weights[call.of("cached")])
        part = 0.85 * np.exp(-call.position / 15) * (call.of("cached") < call.of("step"))
        return (1 - part[:, None]) * logits + part[:, None] * old

    log = simulate(Shape(501, lag=0, prompts=20, drift=0.06), sampler=sampler, setup=setup)
    del log.responses["cached"]
    return log


@FAULTS(
    "weights",
    "The sampler gets each update rounded (an adapter merged in low precision): it follows in part.",
    report="NeMo-RL #3696; TRL #6688; miles_diffusion #129",
    needs=(
        r"dead zone|in part|part of (the|each|every) update|updates?.{0,60}(rounded|lost)"
        r"|(rounded|rounding|merged).{0,60}update",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
    columns=("all", "verl"),
)
def rounded_update() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        base = call.policy.base[call.state]
        return base + np.round((logits - base) / 0.3) * 0.3

    return simulate(Shape(502, lag=0, noise=0.0), sampler=sampler)


@FAULTS(
    "sampler",
    "Sampler and trainer are identical up to absolute position 64 and differ behind it: a kernel's boundary.",
    report="SGLang #25790; vLLM #54035",
    needs=(r"(identical|equal|same).{0,120}(position|64)",),
    never=(BROKEN, TEMPERATURE, r"grows with (the )?position|accumulat"),
    columns=("all", "verl"),
)
def kernel_boundary() -> Log:
    def setup(responses: Columns) -> None:
        length = 15 + (mixed(responses["prompt_id"], 8) % np.uint64(45)).astype(int)
        responses["prompt_tokens"] = length
        words = [" ".join(["Question", str(p), *["so"] * (n - 2)]) for p, n in zip(
            responses["prompt_id"].tolist(), length.tolist(), strict=True)]  # fmt: skip
        responses["prompt"] = np.array(words, dtype=object)

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.1 * (call.of("prompt_tokens") + call.position >= 64)[:, None] * call.noise()

    return simulate(Shape(503, lag=0, noise=0.0, longest=80, closing=0.03), sampler=sampler, setup=setup)


@FAULTS(
    "sampler",
    "The same 4 of 24 prompts hold nearly all of the mismatch, at every visit.",
    report="NeMo-RL #2100, #2141, #4243",
    needs=(r"\b(4|four)\b.{0,40}prompt|(few|same|particular|some).{0,20}prompts|prompts?.{0,60}hold",),
    never=(NEVER_ARRIVED, BROKEN, TEMPERATURE),
    columns=("all", "verl", "no versions"),
)
def particular_prompts() -> Log:
    bad = [1003, 1008, 1015, 1020]

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.9 * np.isin(call.of("prompt_id"), bad)[:, None] * call.noise()

    return simulate(Shape(504, prompts=24), sampler=sampler)


def elsewhere(call: Call, salt: int) -> Array:
    """Logits of the state that another context would have led to."""
    states = len(call.policy.base) - call.policy.n_closing
    other = call.policy.n_closing + mixed(call.state, call.of("prompt_id"), salt) % np.uint64(states)
    return call.policy.logits(call.policy.weights[call.version], other.astype(np.int64))


@FAULTS(
    "sampler",
    "Responses about images are scored in another context: their first tokens hold the mismatch.",
    report="TRL #6294, #6401; OpenRLHF #1220",
    needs=(r"\bimages?\b|environment & mismatch|engine|distance|differ|sits|hold",),
    never=(TEMPERATURE, BROKEN, r"exactly 0 \(probability 1\)"),
    columns=("all", "verl"),
)
def images_in_another_context() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        part = (0.7 * np.exp(-call.position / 14) * (call.of("environment") == "image"))[:, None]
        return (1 - part) * logits + part * elsewhere(call, 31)

    return simulate(Shape(505, environments=("text", "image", "text")), sampler=sampler)


@FAULTS(
    "sampler",
    "The sampler drew at temperature 0.7 and logged what it had before the temperature.",
    report="TRL #4159; tinker-feedback #148",
    needs=(r"temperature & raw|before|sharper|drew|0\.[67]",),
    never=(r"top-?p (of|was|is) ",),
    columns=("all", "verl"),
)
def raw_at_a_temperature() -> Log:
    return simulate(Shape(506), draw=drawn_at(0.7), logs_raw=True)


def drawn_at(temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> Draw:
    """What samplers do to the probabilities, in their order."""

    def draw(call: Call, logp: Array) -> Array:
        warm = log_softmax(logp / temperature)
        falling = -np.sort(-warm, axis=1)
        least = np.full(len(warm), -np.inf)
        if top_k:
            least = falling[:, top_k - 1]
        if top_p < 1:
            last = (np.cumsum(np.exp(falling), axis=1) < top_p).sum(axis=1).clip(max=warm.shape[1] - 1)
            least = np.maximum(least, falling[np.arange(len(warm)), last])
        return np.where(warm >= least[:, None] - 1e-12, warm, -1e9)

    return draw


@FAULTS(
    "sampler",
    "The sampler draws at top-p 0.9, the trainer's probabilities are over all tokens.",
    report="TRL #6789, #7269",
    needs=(r"top-?p|top-?k|truncat(es|ed|ion of) .{0,20}(support|tail)|kept mass|nucleus",),
    never=(TEMPERATURE, BROKEN),
    columns=("all", "verl", "no groups"),
)
def top_p() -> Log:
    return simulate(Shape(507), draw=drawn_at(top_p=0.9))


@FAULTS(
    "sampler",
    "The sampler draws among the 3 likeliest tokens, the trainer's probabilities are over all.",
    report="TRL #6789",
    needs=(r"top-?p|top-?k|truncat(es|ed|ion of) .{0,20}(support|tail)|kept mass|nucleus",),
    never=(TEMPERATURE, BROKEN),
    columns=("verl",),
)
def top_k() -> Log:
    return simulate(Shape(508), draw=drawn_at(top_k=3))


@FAULTS(
    "sampler",
    "Temperature 0.75 and top-p 0.92 together, on data two updates old.",
    report="TRL #4159, #6789, #7269; OpenRLHF #1319",
    needs=("temperature", r"top-?p|top-?k|kept mass|nucleus"),
    never=(r"which a temperature explains", BROKEN),
    columns=("verl",),
)
def temperature_and_top_p() -> Log:
    return simulate(Shape(509, schedule="offset"), draw=drawn_at(0.75, top_p=0.92))


@FAULTS(
    "log",
    "The logged entropy is that of the policy at temperature 0.6.",
    report="tinker-feedback #148; TRL #4159",
    needs=(
        r"entropy & temperature|other (policy|distribution)|not (the entropy )?of|does not agree|too small|too low",
    ),
    never=(r"not drawn with logp_behavior", BROKEN),
    columns=("all", "trl"),
)
def entropy_of_another_temperature() -> Log:
    return simulate(Shape(510), entropy_at=0.6)


@FAULTS(
    "sampler",
    "The sampler punishes tokens that it has written before (penalty 1.25); the trainer does not.",
    needs=(r"repetition|penalt|(written|sampled|occurred|drawn) (before|already)|already (written|sampled|occurred)",),
    never=(TEMPERATURE, BROKEN, NEVER_ARRIVED),
)
def penalty_on_repeats() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        seen = np.zeros(logits.shape, dtype=bool)
        for position in range(call.position):
            seen[np.arange(len(call.rows)), call.written[call.rows, position]] = True
        logits = log_softmax(logits)
        return np.where(seen, logits * 1.25, logits)

    return simulate(Shape(511, lag=0), sampler=sampler)


@FAULTS(
    "loss",
    "The clip is spent on numerics: the learning rate is 0 and the engine's difference fills the clip.",
    report="verl #6280; RLinf #1534; Trinity #426",
    needs=(r"clip & engine|numeric|noise|precision|same weights|learning rate",),
    never=(r"\bcop(y|ied)\b", NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def clip_spent_on_numerics() -> Log:
    log = simulate(Shape(512, lag=0, drift=0.0, bias=0.18, trend=0.0))
    log.steps["learning_rate"][:] = 0
    return log


@FAULTS(
    "weights",
    "server-2 has served the weights of step 5 ever since; the others are current.",
    needs=(r"server-2",),
    never=(r"^(?!.*server-2).*never arriv", TEMPERATURE, BROKEN),
    columns=("all", "prime-rl"),
)
def one_server_stale() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        old = call.served(call.policy.weights[np.minimum(call.version, 5)])
        return np.where((call.of("engine") == "server-2")[:, None], old, logits)

    return simulate(Shape(513, lag=1, drift=0.05), sampler=sampler)


@FAULTS(
    "sampler",
    "server-1 computes with other kernels than the rest.",
    needs=(r"server-1",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
)
def one_server_inexact() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.3 * (call.of("engine") == "server-1")[:, None] * call.noise()

    return simulate(Shape(514), sampler=sampler)


@FAULTS(
    "weights",
    "Responses of the adapter 'code' are sampled from the base model; the other adapters are applied.",
    report="vLLM #51594",
    needs=(r"adapter & \bcode\b",),
    never=(r"^(?!.*adapter).*never arriv", TEMPERATURE, BROKEN),
)
def one_adapter() -> Log:
    names = np.array(["chat", "code", "math"], dtype=object)

    def setup(responses: Columns) -> None:
        responses["adapter"] = names[(mixed(responses["group_id"], 3) % np.uint64(3)).astype(int)]

    def sampler(call: Call, logits: Array) -> Array:
        base = call.served(0 * call.policy.weights[call.version])
        return np.where((call.of("adapter") == "code")[:, None], base, logits)

    return simulate(Shape(515, lag=1, drift=0.05), sampler=sampler, setup=setup)


@FAULTS(
    "weights",
    "The weights never reach the sampler: it serves the initial policy and reports current versions.",
    report="verl #7495, #4248",
    needs=(r"never arriv|does not follow|frozen|initial (weights|policy)|first (weights|version)|not synced",),
    never=(TEMPERATURE, BROKEN),
    columns=("all", "verl", "no versions"),
)
def weights_never_arrive() -> Log:
    return simulate(
        Shape(516, lag=1, drift=0.05), sampler=lambda call, logits: call.served(call.policy.weights[0 * call.version])
    )


@FAULTS(
    "weights",
    "Two of four tensors are never sent: the sampler follows in part, and the difference grows.",
    needs=(r"in part|(part|some|half) of the (weights|tensors|update)|some (tensors|weights|parameters)",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
)
def some_tensors_not_sent() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return call.served(call.policy.weights[call.version] * np.array([0.0, 0.0, 1.0, 1.0]))

    return simulate(Shape(517, lag=0, drift=0.05), sampler=sampler)


@FAULTS(
    "weights",
    "After a failed sync the version counter starts again: versions go back, and ages below 0 appear.",
    report="slime #2104; miles #2244",
    needs=(r"version & newer|back|ahead|negative|future|falls|jump",),
    never=(TEMPERATURE,),
)
def counter_starts_again() -> Log:
    log = simulate(Shape(518))
    log.steps["policy_version"] = np.where(log.steps["step"] < 12, log.steps["step"], log.steps["step"] - 12)
    return log


@FAULTS(
    "weights",
    "The sampler was started from another checkpoint and gets no weights until the sync of step 6.",
    needs=(
        r"(initial|start|first|other|another|wrong|checkpoint).{0,80}(weights|checkpoint|sync)"
        r"|weights.{0,80}(start|until|before step|first steps)",
    ),
    never=(TEMPERATURE, BROKEN, r"never arriv"),
    columns=("all", "verl"),
)
def started_from_another_checkpoint() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        other = call.served(np.array([0.4, -0.4, 0.3, -0.2]) + 0 * call.policy.weights[call.version])
        return np.where((call.of("step") < 6)[:, None], other, logits)

    return simulate(Shape(574, lag=0), sampler=sampler)


@FAULTS(
    "weights",
    "At the restart in step 12 the sampler serves the initial weights for three steps.",
    needs=(r"(initial|reverted|older|old|late|first).{0,60}weights|weights.{0,60}(restart|older|reverted|late)",),
    never=(TEMPERATURE, BROKEN, r"never arriv"),
)
def reverted_at_a_restart() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        late = (call.of("step") >= 12) & (call.of("step") < 15)
        return np.where(late[:, None], call.served(call.policy.weights[0 * call.version]), logits)

    return simulate(Shape(519, lag=0, drift=0.05), sampler=sampler)


@FAULTS(
    "sampler",
    "The mismatch sits in the tokens whose experts sampler and trainer choose differently.",
    report="Megatron-LM #4168; NeMo-RL #2590; AReaL #1207, #1496; prime-rl #1661",
    needs=(r"expert|routing|router",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
)
def expert_routing() -> Log:
    def flips(row: NDArray[Any], position: Any) -> Array:
        return (share(row, np.broadcast_to(position, row.shape), 17) < 0.12).astype(float)

    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.7 * flips(call.rows, call.position)[:, None] * call.noise()

    log = simulate(Shape(520), sampler=sampler)
    flipped = flips(log.row, log.tokens["position"])
    log.tokens["routing_agreement"] = 1 - flipped * log.rng.uniform(0.05, 0.4, len(flipped))
    return log


@FAULTS(
    "sampler",
    "The sampler's log-probabilities are wrong in the last 8 positions before the length limit.",
    report="vLLM #38711, #53488",
    needs=(r"(length limit|maximum length|longest)|last \d+ (tokens|positions)|positions?.{0,30}\b(5[5-9]|6[0-4])\b",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
)
def wrong_near_the_limit() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return logits + 1.0 * (call.position >= 56) * call.noise()

    return simulate(Shape(521, closing=0.03), sampler=sampler)


@FAULTS(
    "sampler",
    "The first tokens of each turn but the first are scored in another context: history was tokenised again.",
    report="verl #6719, #3960; rllm #272",
    needs=(r"(first|start|begin).{0,40}turn|turn.{0,40}(start|begin|first|border)",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
    columns=("all", "prime-rl"),
)
def tokenised_again() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        if call.position < 14 or call.position % 14 > 1:
            return logits
        return 0.4 * logits + 0.6 * elsewhere(call, 41)

    return simulate(Shape(522, turns=14), sampler=sampler)


@FAULTS(
    "sampler",
    "The sampler's log-probabilities lie on the lattice of fp8 (3 bits); the difference is .01 and more.",
    needs=(r"fp8|float8|8.bit|e4m3|lattice|3 bits",),
    never=(r"bfloat16|float16|9\.7e-0?4", NEVER_ARRIVED),
    columns=("verl",),
)
def fp8_lattice() -> Log:
    log = simulate(Shape(523, lag=0))
    logged = log.tokens["logp_behavior"]
    parts, power = np.frexp(logged)
    log.tokens["logp_behavior"] = np.ldexp(np.round(parts * 16) / 16, power)
    return apply_loss(log)


@FAULTS(
    "log",
    "logp_behavior lies on a lattice of 1/32.",
    report="OpenRLHF #1165; maxtext #5231",
    needs=(r"lattice|grid|multiples? of|resolution|1/32|0?\.031",),
    never=(r"\bb?float16", NEVER_ARRIVED, TEMPERATURE),
    columns=("verl",),
)
def lattice_of_a_32nd() -> Log:
    log = simulate(Shape(524))
    log.tokens["logp_behavior"] = np.round(log.tokens["logp_behavior"] * 32) / 32
    return apply_loss(log)


@FAULTS(
    "sampler",
    "The mismatch grows with training, from nothing to S = .02.",
    report="verl #6780, #7519",
    needs=(
        r"(mismatch|engine|differ|distance).{0,100}(grow|grew|rise|rose|increas)|(grow|grew|rose).{0,60}(mismatch|engine)",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
)
def mismatch_grows_with_training() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.012 * call.of("step")[:, None] * call.noise()

    return simulate(Shape(525, lag=0), sampler=sampler)


@FAULTS(
    "sampler",
    "The mismatch grows with the position in the response.",
    report="Megatron-LM #76",
    needs=(r"position.{0,80}(grow|later|increas|ris|larger|behind)|(grow|increas|ris)\w*.{0,40}position",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
    columns=("verl",),
)
def mismatch_grows_with_position() -> Log:
    def sampler(call: Call, logits: Array) -> Array:
        return logits + 0.003 * call.position * call.noise()

    return simulate(Shape(526, lag=0, longest=200, closing=0.015, steps=16, groups=6, responses=4), sampler=sampler)


@FAULTS(
    "sampler",
    "The sampler computes in another number format: a difference of .035 in S, everywhere alike.",
    report="OpenRLHF #1155; prime-rl #2438; open-instruct #1387",
    needs=(r"precision|number format|float32|bfloat16|kernels",),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN, r"server-\d|environment '"),
    columns=("all", "no versions"),
)
def other_number_format() -> Log:
    return simulate(Shape(572, lag=0, bias=0.3, noise=0.02))


@FAULTS(
    "sampler",
    "The token that ends a response has a placeholder, -0.01, in the sampler's column.",
    needs=(r"(last|end|final|stop).{0,60}(token|response|position)|\beos\b|token (id )?0\b|placeholder",),
    never=(NEVER_ARRIVED, TEMPERATURE, r"number format|float16", BROKEN),
    columns=("all", "verl"),
)
def placeholder_at_the_stop() -> Log:
    log = simulate(Shape(573))
    log.tokens["logp_behavior"][log.tokens["token_id"] == END] = -0.01
    return apply_loss(log)


# Versions -------------------------------------------------------------------------------------------------------------


@FAULTS(
    "weights",
    "The data is six updates old and labelled with the step that trains on it: labels are too young.",
    report="AReaL #1736; verl #7568, #7569; miles #3334",
    needs=(r"version|label|lag|age & too young|older than|younger|does not explain|more than .{0,40}explain|wrong",),
    never=(r"never arriv", TEMPERATURE, BROKEN),
    columns=("prime-rl",),
)
def labels_too_young() -> Log:
    log = simulate(Shape(527, lag=6, schedule="offset", drift=0.05))
    log.tokens["behavior_version"] = log.tokens["step"].copy()
    for name in ("behavior_version_min", "behavior_version_max"):
        log.responses[name] = log.responses["step"].copy()
    return log


@FAULTS(
    "weights",
    "Versions of partial rollouts are one token late: each response begins with the version of another one.",
    report="AReaL #1736; verl #7568, #7569; miles #3334",
    needs=(r"version|label & one (token|position)|position|shift|first token",),
    never=(TEMPERATURE, BROKEN),
)
def labels_one_token_late() -> Log:
    log = simulate(Shape(528, lag=3, schedule="partial", drift=0.05))
    log.tokens["behavior_version"][1:] = log.tokens["behavior_version"][:-1].copy()
    return log


@FAULTS(
    "weights",
    "40% of the tokens have no version: their age is unknown, not 0.",
    report="AReaL #1736; verl #7568, #7569; miles #3334",
    needs=(r"version & 4\d(\.\d+)? ?%|missing|\bnull|not logged|unknown|without",),
    never=(TEMPERATURE, BROKEN),
)
def labels_missing() -> Log:
    log = simulate(Shape(529, schedule="groups", lag=3))
    lost = share(log.responses["group_id"], 12)[log.row] < 0.42
    log.tokens["behavior_version"] = np.ma.masked_array(log.tokens["behavior_version"], lost)
    for name in ("behavior_version_min", "behavior_version_max"):
        log.responses[name] = np.ma.masked_array(log.responses[name], share(log.responses["group_id"], 12) < 0.42)
    return log


# The log --------------------------------------------------------------------------------------------------------------

_TRAINER_COLUMNS = ("logp_behavior_train", "logp_current", "logp_new")


@FAULTS(
    "log",
    "The trainer's values of rank 2 belong to other tokens of the rank (packing).",
    report="AReno #511",
    needs=(r"rank\D{0,12}2\b",),
    never=(SAMPLER_COLUMN, NEVER_ARRIVED, TEMPERATURE),
    columns=("all", "verl"),
)
def rank_with_values_of_others() -> Log:
    log = simulate(Shape(530))
    rank = log.of_token("rank")
    for step in log.steps["step"]:
        rows = np.flatnonzero((log.tokens["step"] == step) & (rank == 2))
        other = log.rng.permutation(rows)
        for name in _TRAINER_COLUMNS:
            log.tokens[name][rows] = log.tokens[name][other]
    return apply_loss(log)


@FAULTS(
    "log",
    "The first token of packed responses is scored behind the end of the response before, by the trainer.",
    report="AReno #511",
    needs=(r"(first (token|position)|position 0|begin).{0,140}(pack|other|trainer|logp_current|response)",),
    never=(SAMPLER_COLUMN, NEVER_ARRIVED, TEMPERATURE, BROKEN),
    columns=("all", "verl"),
)
def packed_without_a_border() -> Log:
    log = simulate(Shape(580))
    wrong = (log.tokens["position"] == 0) & (log.of_token("seq_id") % 12 != 0)
    for name in _TRAINER_COLUMNS:
        log.tokens[name][wrong] = -3 - 5 * share(log.row[wrong], 24)
    return apply_loss(log)


@FAULTS(
    "log",
    "The trainer's columns are one token late, and the sampler drew at temperature 0.75.",
    report="ms-swift #8196, #8427; AReaL #1728",
    needs=(r"one (token|position)|shift", "temperature"),
    never=(r"logp_behavior is logged one", r"entropy is logged one", r"drew at 0\.[0-5]"),
    columns=("verl",),
)
def late_and_at_a_temperature() -> Log:
    log = simulate(Shape(531, lag=1), draw=drawn_at(0.75))
    inside = log.tokens["position"] > 0
    for name in _TRAINER_COLUMNS:
        log.tokens[name] = np.where(inside, np.roll(log.tokens[name], 1), log.tokens[name])
    return apply_loss(log)


@FAULTS(
    "log",
    "A few responses are NaN from token 5 on: leave them out and judge the rest.",
    report="OpenRLHF #1165; maxtext #5231",
    needs=(r"\bnan\b",),
    never=(WHOLLY_BROKEN, NEVER_ARRIVED, TEMPERATURE),
    columns=("verl",),
)
def nan_behind_a_token() -> Log:
    log = simulate(Shape(532))
    bad = (share(np.arange(len(log.responses["step"])), 14) < 0.05)[log.row] & (log.tokens["position"] >= 5)
    log.tokens["token_id"][bad] = 1
    log.tokens["logp_behavior"][bad] = np.nan
    for name in _TRAINER_COLUMNS:
        log.tokens[name][bad] = -16 - 3 * share(log.state[bad], log.tokens["position"][bad])
    return apply_loss(log)


@FAULTS(
    "log",
    "4% of the sampler's log-probabilities are above 0.",
    report="OpenRLHF #1165; maxtext #5231",
    needs=(r"above (0|zero)|positive|larger than (0|zero|1)|beyond 0",),
    never=(WHOLLY_BROKEN, NEVER_ARRIVED, TEMPERATURE),
    columns=("verl",),
)
def values_above_zero() -> Log:
    log = simulate(Shape(533))
    log.tokens["logp_behavior"] += np.where(log.rng.random(len(log.row)) < 0.04, 0.5, 0.0)
    return apply_loss(log)


@FAULTS(
    "log",
    "The token that begins each response (BOS) is logged as if it had been sampled.",
    needs=(r"\bbos\b|begin.of|(first|position 0).{0,80}(prompt|not sampled|not drawn|same token|one token)",),
    never=(NEVER_ARRIVED, TEMPERATURE, r"(current|train|new) is not the log-probability"),
    columns=("all", "verl"),
)
def bos_logged() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        return _certain(np.full(len(logp), 5), logp) if call.position == 0 else logp

    return simulate(Shape(534), draw=draw)


def _certain(token: NDArray[Any], logp: Array) -> Array:
    """All probability on one token of each row."""
    return np.where(np.arange(logp.shape[1]) == token[:, None], 0.0, np.full(logp.shape, -1e9))


@FAULTS(
    "log",
    "40% of logp_behavior is one constant, -1: a placeholder.",
    needs=(r"constant|same value|one value|placeholder|-1(\.0+)?\b.{0,40}(in|of) ",),
    never=(r"number format|float16", NEVER_ARRIVED, TEMPERATURE),
    columns=("all", "verl"),
)
def forty_percent_constant() -> Log:
    log = simulate(Shape(535))
    log.tokens["logp_behavior"][log.rng.random(len(log.row)) < 0.4] = -1.0
    return apply_loss(log)


@FAULTS(
    "log",
    "Missing values of the sampler are filled with 0: probability 1.",
    report="NeMo-RL #4218; tinker-cookbook #396",
    needs=(r"exactly 0|zero|placeholder|filled",),
    never=(NEVER_ARRIVED, TEMPERATURE),
    columns=("verl",),
)
def filled_with_zeros() -> Log:
    log = simulate(Shape(536))
    log.tokens["logp_behavior"][log.rng.random(len(log.row)) < 0.15] = 0.0
    return apply_loss(log)


@FAULTS(
    "log",
    "The responses of two of four ranks are not in the log: half of each group.",
    needs=(r"rank|responses? .{0,40}missing|missing .{0,40}responses?|half of",),
    never=(TEMPERATURE, NEVER_ARRIVED),
    columns=("all", "verl"),
)
def half_of_the_ranks_missing() -> Log:
    def setup(responses: Columns) -> None:
        responses["rank"] = responses["seq_id"] % 4

    log = simulate(Shape(537), setup=setup)
    there = log.responses["rank"] < 2
    return log.keep(there[log.row], there)


@FAULTS(
    "log",
    "Answers of tools are in the loss: the sampler did not draw these tokens.",
    report="verl #2368, #6392",
    needs=(r"tool|not sampled|did(n't| not) (draw|sample)|\bmask",),
    never=(NEVER_ARRIVED, TEMPERATURE),
    columns=("all", "verl"),
)
def tool_tokens_in_the_loss() -> Log:
    def draw(call: Call, logp: Array) -> Array:
        if call.position % 18 < 12:
            return logp
        said = 1 + mixed(call.of("prompt_id"), call.position, 15) % np.uint64(logp.shape[1] - 1)
        return _certain(said.astype(int), logp)

    return simulate(Shape(538), draw=draw)


@FAULTS(
    "log",
    "Responses at the length limit are logged as ended by themselves: the truncation flag is false.",
    report="NeMo-RL #4042; TRL #4976",
    needs=(r"(truncat|finish_reason|length limit|cut off).{0,120}(flag|false|stop|says|not marked|unmarked)",),
    never=(TEMPERATURE, NEVER_ARRIVED),
)
def truncation_not_flagged() -> Log:
    log = simulate(Shape(539, closing=0.03))
    log.responses["truncated"][:] = False
    log.responses["finish_reason"][:] = "stop"
    return log


# Advantages -----------------------------------------------------------------------------------------------------------


def _uneven(log: Log) -> Columns:
    """Rewards of prompts of which many are always or never solved."""
    ease = log.rng.beta(0.5, 0.5, int(log.responses["prompt_id"].max()) + 1)[log.responses["prompt_id"]]
    return {"reward": (log.rng.random(len(ease)) < ease).astype(float)}


_EQUAL = r"prompt|other group|merged|two groups|equal reward|same reward|no difference"


@FAULTS(
    "advantage",
    "Two groups share the baseline of their prompt: groups of equal reward have advantages.",
    report="NeMo-RL #3882; slime #1918; miles #1325; rllm #776",
    needs=(rf"advantage|baseline & {_EQUAL}",),
    never=(MISSING_RESPONSES, BROKEN),
    columns=("all", "verl"),
)
def two_groups_one_baseline() -> Log:
    def setup(responses: Columns) -> None:
        responses["prompt_id"] = 1000 + responses["group_id"] // 2

    log = simulate(Shape(540), setup=setup, reward=_uneven)
    each = np.random.default_rng(540).beta(0.6, 0.6, log.responses["group_id"].max() + 1)[log.responses["group_id"]]
    log.responses["reward"] = (log.rng.random(len(each)) < each).astype(float)
    return set_advantages(log, compared(log.responses["reward"], log.responses["prompt_id"]))


@FAULTS(
    "advantage",
    "One baseline for the whole step: groups of equal reward have advantages.",
    report="NeMo-RL #3882; slime #1918; miles #1325; rllm #776",
    needs=(rf"advantage|baseline & whole|(batch|step)('s)? (mean|baseline)|global|{_EQUAL}",),
    never=(MISSING_RESPONSES, BROKEN),
    columns=("all", "verl"),
)
def one_baseline_for_the_step() -> Log:
    log = simulate(Shape(541), reward=_uneven)
    return set_advantages(log, compared(log.responses["reward"], log.responses["step"]))


@FAULTS(
    "advantage",
    "Every response is a group of its own: there is no baseline.",
    report="NeMo-RL #3882; slime #1918; miles #1325; rllm #776",
    needs=(r"baseline|groups? of (one|1)\b|is the reward|single response|one response",),
    never=(r"too easy|too hard", "dynamic sampling", BROKEN),
    columns=("verl",),
)
def groups_of_one() -> Log:
    log = simulate(Shape(542))
    log.responses["group_id"] = np.arange(len(log.responses["step"]))
    log.tokens["group_id"] = log.row.copy()
    return set_advantages(log, log.responses["reward"])


@FAULTS(
    "advantage",
    "Advantages belong to other responses of the step: the batch was sampled again before the loss.",
    report="verl #7956",
    needs=(r"advantage & other (responses|rows)|do(es)? not follow|unrelated|permut|belong",),
    never=(TEMPERATURE,),
    columns=("all", "verl"),
)
def advantages_of_other_responses() -> Log:
    log = simulate(Shape(543))
    advantage = compared(log.responses["reward"], log.responses["group_id"])
    step = log.responses["step"]
    order = np.concatenate([log.rng.permutation(np.flatnonzero(step == one)) for one in log.steps["step"]])
    return set_advantages(log, advantage[order])


@FAULTS(
    "advantage",
    "Advantages are those of the response one row before, in each rank.",
    report="verl #7956",
    needs=(r"advantage & other (responses|rows)|do(es)? not follow|neighbou?r|one row|row before|previous|belong",),
    never=(TEMPERATURE,),
    columns=("verl",),
)
def advantages_of_the_row_before() -> Log:
    log = simulate(Shape(544))
    advantage = compared(log.responses["reward"], log.responses["group_id"]).reshape(-1, 12)
    return set_advantages(log, np.roll(advantage, 1, axis=1).ravel())


@FAULTS(
    "advantage",
    "Only the last turn gets an advantage: credit does not reach the turns before a tool call.",
    report="verl #6376; SkyRL #1492; slime #1370",
    needs=(r"advantage|credit & turn",),
    never=(r"shifted by one row|other responses",),
    columns=("all", "prime-rl"),
)
def credit_for_the_last_turn() -> Log:
    log = simulate(Shape(545, turns=12))
    last = (log.lengths()[log.row] - 1) // 12 * 12
    return set_advantages(log, np.where(log.tokens["position"] >= last, log.tokens["advantage"], 0.0))


@FAULTS(
    "advantage",
    "Advantages grow with the turn: those of the turns before are added on.",
    report="verl #6376; SkyRL #1492; slime #1370",
    needs=(r"advantage|credit & turn",),
    never=(r"shifted by one row|other responses",),
    columns=("all", "prime-rl"),
)
def advantages_grow_with_the_turn() -> Log:
    log = simulate(Shape(575, turns=12))
    return set_advantages(log, log.tokens["advantage"] + 0.3 * (log.tokens["turn"] // 2))


@FAULTS(
    "advantage",
    "Advantages are taken over the wrong axis: among the responses of one place in all groups.",
    needs=(
        r"advantage|baseline & axis|other (groups|prompts)|across groups|not (of|in) (its|their) group"
        r"|equal reward|same reward",
    ),
    never=(MISSING_RESPONSES, BROKEN),
    columns=("all", "verl"),
)
def advantages_over_the_batch_axis() -> Log:
    log = simulate(Shape(546), reward=_uneven)
    place = log.responses["seq_id"] % log.shape.responses
    return set_advantages(log, compared(log.responses["reward"], log.responses["step"] * 100 + place))


@FAULTS(
    "advantage",
    "The bare reward is the advantage: no baseline is subtracted.",
    needs=(r"baseline|is the reward|bare reward|equals? the reward",),
    never=(MISSING_RESPONSES, BROKEN),
    columns=("all", "verl"),
)
def bare_reward() -> Log:
    log = simulate(Shape(547))
    return set_advantages(log, log.responses["reward"])


@FAULTS(
    "advantage",
    "The KL to the reference is inside of the reward that advantages are made of, not of the logged one.",
    needs=(r"\bkl\b.{0,100}(in(side)? (of )?the reward|advantage)|reward.{0,60}\bkl\b",),
    never=(MISSING_RESPONSES, r"other responses|belong to", BROKEN),
    columns=("with reference",),
)
def kl_inside_the_reward() -> Log:
    log = simulate(Shape(548, drift=0.08))
    moved = np.bincount(log.row, log.tokens["logp_current"] - log.tokens["logp_reference"])
    return set_advantages(log, compared(log.responses["reward"] - 0.15 * moved, log.responses["group_id"]))


@FAULTS(
    "advantage",
    "An own function of advantages has the wrong sign: the better response has the smaller one, and the reward falls.",
    needs=(r"advantage.{0,100}(sign|flipped|opposite|negativ|revers|smaller|worse|lower)",),
    never=(BROKEN, r"staleness (is|as) the (likely )?cause"),
)
def flipped_advantages() -> Log:
    log = simulate(Shape(549, trend=-0.8, drift=0.08))
    log.manifest["algorithm"]["parts"]["advantage"] = "our_own"
    return set_advantages(log, -compared(log.responses["reward"], log.responses["group_id"], "group_mean"))


@FAULTS(
    "advantage",
    "One response has an advantage of −2,075: a standard deviation cancelled.",
    report="NeMo-RL #4158",
    needs=(r"advantage.{0,80}(2[,.]?0\d\d|largest|extreme|huge|giant|outlier|one response|times the median)",),
    never=(BROKEN, TEMPERATURE),
)
def one_giant_advantage() -> Log:
    def jump(policy: Policy) -> None:
        policy.weights[16:] += 1.5

    chance = changing(16, 0.5, 0.1)
    log = simulate(Shape(550, trend=0.0), prepare=jump, reward=rewards_by(chance))
    advantage = compared(log.responses["reward"], log.responses["group_id"])
    advantage[np.flatnonzero(log.responses["step"] == 15)[7]] = -2075.0
    log.steps["grad_norm"][15] *= 400
    evaluated(log, chance(log.steps["step"]))
    return set_advantages(log, advantage)


@FAULTS(
    "selection",
    "10% of the responses have no token: they count in the baseline and not in the loss.",
    needs=(r"empty|length 0|zero.length|\b0 tokens|no tokens?\b|without (a |any )?tokens? & response",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "verl"),
)
def responses_without_tokens() -> Log:
    log = simulate(Shape(551))
    empty = share(np.arange(len(log.responses["step"])), 16) < 0.1
    log.responses["n_tokens"][empty] = 0
    log.responses["reward"][empty] = 0.0
    log.responses["response"][empty] = ""
    log.keep(~empty[log.row])
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@FAULTS(
    "advantage",
    "Most of the advantages come from the length part of the reward, in groups whose task rewards are equal.",
    report="NeMo-RL #2431; verl-recipe #125; OpenRLHF #1270",
    needs=(r"length & task|no (difference|signal)|part of the reward|shaped|reward_length|equal",),
    never=(r"staleness (is|as) the (likely )?cause", BROKEN),
    columns=("all", "verl"),
)
def length_part_dominates() -> Log:
    def reward(log: Log) -> Columns:
        step = log.responses["step"]
        solvable = share(log.responses["prompt_id"], 18) < 0.35
        chance = np.where(solvable, 0.55, 0.0) * np.clip(1 - (step - 12) / 12, 0.1, 1)
        task = (log.rng.random(len(step)) < chance).astype(float)
        length = -0.04 * log.responses["n_tokens"] / log.shape.longest
        return {"reward": task + length, "reward_task": task, "reward_length": length}

    log = simulate(Shape(552, drift=0.05), reward=reward, closing=lambda responses: 0.04 + 0.012 * responses["step"])
    chance = 0.2 * np.clip(1 - (log.steps["step"] - 12) / 12, 0.1, 1)
    log.steps["eval_accuracy"] = log.rng.binomial(EVALUATION_PROMPTS, chance) / EVALUATION_PROMPTS
    return log


@FAULTS(
    "selection",
    "Responses that failed in the environment are scored 0 and trained on: a quarter of one environment.",
    report="NeMo-Gym #2552; rllm #710; open-instruct #1887",
    needs=(r"fail|error|time.?out",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def failures_scored_zero() -> Log:
    log = simulate(Shape(553, environments=("math", "shell")))
    slow = log.responses["environment"] == "shell"
    failed = slow & (log.rng.random(len(slow)) < 0.45)
    log.responses["finish_reason"][failed] = "error"
    log.responses["reward"][failed] = 0.0
    return set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))


@FAULTS(
    "selection",
    "Responses that the reward function cannot score count as 0 beside the others of their group: 15%.",
    report="NeMo-Gym #2552; rllm #710; open-instruct #1887",
    needs=(r"(reward|scor).{0,80}(nan|missing|not scored|unscored|cannot be scored|no number|counted as 0)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def unscored_counted_as_zero() -> Log:
    log = simulate(Shape(576))
    lost = log.rng.random(len(log.responses["step"])) < 0.15
    counted = np.where(lost, 0.0, log.responses["reward"])
    log.responses["reward"] = np.where(lost, np.nan, log.responses["reward"])
    return set_advantages(log, compared(counted, log.responses["group_id"]))


@FAULTS(
    "selection",
    "Responses that take longer than a minute are dropped: long ones, which score lower.",
    needs=(r"(dropped|left out|discard|slow|time.?out).{0,140}(\blong|length|short|reward|slow)",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
)
def slow_ones_dropped() -> Log:
    def reward(log: Log) -> Columns:
        chance = 0.75 - 0.6 * log.responses["n_tokens"] / log.shape.longest
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    log = simulate(Shape(577, closing=0.035, trend=0.0), reward=reward)
    seconds = log.responses["n_tokens"] * log.rng.gamma(8.0, 1 / 6.0, len(log.responses["step"]))
    log.responses["seconds_generating"] = seconds
    log.responses["dropped"] = np.where(seconds > 60, "time out", None)
    return apply_loss(log.keep((seconds <= 60)[log.row]))


@FAULTS(
    "selection",
    "Masked responses are in the baseline and not in the loss: their groups' advantages do not balance.",
    report="NeMo-RL #4029",
    needs=(r"baseline & reject|mask|dropped|left out|not in the loss",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("trl",),
)
def masked_in_the_baseline() -> Log:
    log = simulate(Shape(554))
    masked = (log.responses["truncated"] & (log.rng.random(len(log.responses["step"])) < 0.9))[log.row]
    log.responses["reward"][log.responses["truncated"]] = 0.0
    set_advantages(log, compared(log.responses["reward"], log.responses["group_id"]))
    log.tokens["rejected"] = np.where(masked, "truncated completion", None)
    log.tokens["gradient_weight"][masked] = 0.0
    return log


# The loss -------------------------------------------------------------------------------------------------------------


def unclipped(log: Log) -> Log:
    """A loss that multiplied the advantage by 1 and clipped nothing."""
    log.tokens["clipped"][:] = False
    log.tokens["clip_side"][:] = 0
    log.tokens["gradient_weight"] = log.tokens["advantage"] / np.bincount(log.tokens["step"])[log.tokens["step"]]
    return log


@FAULTS(
    "loss",
    "The clip looks at the ratio of the current policy to itself on old data: fraction 0 is no health.",
    report="SkyRL #1315; miles #1829; verl #7196",
    needs=(r"clip & never|no token|\b0 ?%|something else|anchor|to itself|gate|current policy",),
    never=(r"clip.{0,60}\bhealthy", BROKEN),
    columns=("all", "trl", "no groups"),
)
def clip_against_itself() -> Log:
    log = unclipped(simulate(Shape(555, lag=5, schedule="offset", drift=0.1)))
    log.tokens["logp_gate"] = log.tokens["logp_current"].copy()
    return log


@FAULTS(
    "log",
    "logp_current is a copy of the sampler's column (bypass mode): no ratio can be seen.",
    report="verl #7196",
    needs=(r"\bcop(y|ied)\b|equals? logp_(behavior|current)|identical|bypass",),
    never=(r"clip.{0,60}\bhealthy", TEMPERATURE),
    columns=("verl",),
)
def copied_in_bypass_mode() -> Log:
    log = simulate(Shape(556, lag=5, schedule="offset", drift=0.1))
    log.tokens["logp_current"] = log.tokens["logp_behavior"].copy()
    return log


@FAULTS(
    "selection",
    "A mask by the response's ratio leaves out most of the long responses: what is learned from is short.",
    report="NeMo-RL #4243; TRL #7120, #6369, #6095",
    needs=(
        r"(reject|mask|dropped|left out).{0,140}(\blong|length)"
        r"|(\blong|length).{0,140}(reject|mask|dropped|left out)",
    ),
    never=(NEVER_ARRIVED, TEMPERATURE, BROKEN),
    columns=("all", "trl"),
)
def mask_by_length() -> Log:
    log = simulate(Shape(557, lag=0, bias=0.3, steps=16, groups=6, shortest=20, longest=260, closing=0.012))
    ratio = np.bincount(log.row, log.tokens["logp_current"] - log.tokens["logp_behavior"])
    out = (np.abs(ratio) > np.log(2.2))[log.row]
    log.tokens["rejected"] = np.where(out, "sequence ratio", None)
    log.tokens["gradient_weight"][out] = 0.0
    return log


@FAULTS(
    "loss",
    "The configured weight, a truncated ratio, did not run: gradient_weight is the advantage alone.",
    report="Liger-Kernel #1088",
    needs=(r"weight.{0,140}(not applied|advantage alone|not agree|is the advantage|configured|did not run)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def weight_did_not_run() -> Log:
    log = unclipped(simulate(Shape(558, lag=5, schedule="offset", drift=0.08)))
    log.manifest["algorithm"]["parts"] |= {"weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 2.0}
    return log


@FAULTS(
    "loss",
    "Products of ratios, capped at 1, starve the gradient of long responses: their tokens keep a tenth of the weight.",
    report="TRL #4772, #5814, #6945; NeMo-RL #2269",
    needs=(
        r"(\blong|length).{0,80}(gradient|starv)|(gradient|starv).{0,80}(\blong|length)"
        r"|gradient_weight.{0,120}(cap|product)",
    ),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
    columns=("all", "trl"),
)
def products_starve_the_gradient() -> Log:
    log = simulate(Shape(578, lag=1, bias=0.35, steps=16, groups=6, shortest=20, longest=220, closing=0.014))
    product = np.exp(np.bincount(log.row, log.tokens["logp_current"] - log.tokens["logp_behavior"]))
    log.manifest["algorithm"]["parts"] |= {"level": "sequence", "weight": "truncated", "gate": "none"}
    log.manifest["algorithm"]["parameters"] = {"cap": 1.0}
    unclipped(log)
    log.tokens["gradient_weight"] *= np.minimum(product, 1.0)[log.row]
    return log


@FAULTS(
    "loss",
    "The clip runs at .05, the manifest says .2: tokens inside of the configured range are clipped.",
    needs=(r"clip.{0,140}(configured|inside|0\.05|manifest|agree)",),
    never=(TEMPERATURE, NEVER_ARRIVED, BROKEN),
)
def clip_at_another_range() -> Log:
    log = simulate(Shape(559, lag=4, drift=0.08))
    ratio = np.exp(log.tokens["logp_current"] - log.tokens["logp_behavior"])
    above = (log.tokens["advantage"] > 0) & (ratio > 1.05)
    below = (log.tokens["advantage"] < 0) & (ratio < 0.95)
    log.tokens["clipped"], log.tokens["clip_side"] = above | below, above.astype(int) - below.astype(int)
    log.tokens["gradient_weight"] = np.where(above | below, 0.0, log.tokens["gradient_weight"])
    return log


REINFORCE = {
    "name": "reinforce",
    "parts": {"advantage": "group_normalised", "level": "token", "weight": "none", "gate": "none"},
}


# The run fell, or does not learn --------------------------------------------------------------------------------------


def evaluated(log: Log, chance: Array) -> Log:
    """Accuracies with these chances, by step."""
    right = log.rng.binomial(EVALUATION_PROMPTS, np.clip(chance, 0, 1))
    log.steps["eval_accuracy"] = right / EVALUATION_PROMPTS
    return log


def changing(step: int, before: float, after: float, over: int = 1) -> Any:
    """A number by step: one before a step, another one `over` steps later, a line between."""
    return lambda steps: before + (after - before) * np.clip((steps - step + 1) / over, 0, 1)


def rewards_by(chance: Any) -> Any:
    """Rewards with a chance by step."""

    def reward(log: Log) -> Columns:
        return {"reward": (log.rng.random(len(log.responses["step"])) < chance(log.responses["step"])).astype(float)}

    return reward


@FAULTS(
    "update",
    "REINFORCE without a clip on data up to 11 updates old: the smallest ratio falls first, then the reward.",
    report="verl #2738, #3894; TRL #2980",
    needs=(
        r"without a (clip|bound)|no clip|neither clips|unclipped|unbounded",
        r"smallest ratio|lost a factor|\bpush(es|ed)",
    ),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"does not show what changed first"),
    columns=("all", "verl"),
)
def old_data_without_a_clip() -> Log:
    def run_away(policy: Policy) -> None:
        step = np.arange(len(policy.weights))
        policy.weights *= (1 + np.clip(step - 8, 0, None) ** 1.5 * 0.2)[:, None]

    chance = changing(14, 0.65, 0.02, over=8)
    log = simulate(Shape(560, lag=11, schedule="sync", drift=0.05, advantage="group_mean"), prepare=run_away,
                   reward=rewards_by(chance))  # fmt: skip
    log.manifest["algorithm"] = dict(REINFORCE)
    return evaluated(unclipped(log), chance(log.steps["step"]))


def sharper(by: Any) -> Any:
    """The policy becomes sharper with its versions."""

    def prepare(policy: Policy) -> None:
        policy.directions[0] = policy.base
        policy.weights[:, 0] = by(np.arange(len(policy.weights)))

    return prepare


@FAULTS(
    "update",
    "Entropy goes first, from step 6 on; groups then have equal rewards, and the reward falls from step 14.",
    report="verl #2738, #5953",
    needs=(r"entropy & fell|falls?|gone|lost|collaps|drop|before|first|→",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"does not show what changed first"),
    columns=("all", "verl"),
)
def entropy_goes_first() -> Log:
    chance = changing(14, 0.6, 0.15, over=5)
    log = simulate(Shape(561, lag=1), prepare=sharper(changing(6, 0.0, 5.0, over=10)), reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@FAULTS(
    "update",
    "Over-optimisation: the reward rises, accuracy falls, and the KL to the reference climbs to nats a response.",
    report="LightRFT #53",
    needs=(r"\bkl\b & reference|initial|over-?optimi",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"does not show what changed first"),
    columns=("with reference",),
)
def over_optimisation() -> Log:
    chance = changing(9, 0.55, 0.15, over=12)

    direction = np.array([0.16, -0.16, 0.16, 0.1])

    def away(policy: Policy) -> None:
        policy.weights += np.clip(np.arange(len(policy.weights)) - 3, 0, None)[:, None] * direction

    log = simulate(Shape(562, lag=0), prepare=away, reward=rewards_by(changing(1, 0.4, 0.85, over=20)))
    moved = log.tokens["logp_reference"] - log.tokens["logp_current"]
    k3 = np.expm1(moved) - moved
    log.steps["kl_to_initial"] = np.bincount(log.tokens["step"], k3) / np.bincount(log.tokens["step"])
    return evaluated(log, chance(log.steps["step"]))


@FAULTS(
    "update",
    "The update of step 12 is far too large (gradient norm 30 times the usual), and the reward falls behind it.",
    needs=(r"(update|gradient).{0,120}step 12|step 12.{0,120}(update|gradient)",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"does not show what changed first"),
)
def one_update_too_large() -> Log:
    def jump(policy: Policy) -> None:
        policy.weights[13:] += np.array([2.0, -2.0, 2.0, -2.0])

    chance = changing(13, 0.6, 0.1)
    log = simulate(Shape(563, lag=1), prepare=jump, reward=rewards_by(chance))
    log.steps["grad_norm"][12] *= 30
    return evaluated(log, chance(log.steps["step"]))


@FAULTS(
    "selection",
    "Responses grow to the length limit: the truncated share rises from 10 to 90%, and these score 0.",
    needs=(r"truncat.{0,80}(ris|rose|grow|grew|from|→|%)|length limit",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"does not show what changed first"),
    columns=("all", "verl", "no groups"),
)
def truncation_rises() -> Log:
    def reward(log: Log) -> Columns:
        right = log.rng.random(len(log.responses["step"])) < 0.65
        return {"reward": (right & ~log.responses["truncated"]).astype(float)}

    def closing(responses: Columns) -> Array:
        return 0.09 * np.exp(-np.clip(responses["step"] - 7, 0, None) / 3.5)

    log = simulate(Shape(564, drift=0.05), reward=reward, closing=closing)
    cut = np.bincount(log.responses["step"], log.responses["truncated"]) / np.bincount(log.responses["step"])
    return evaluated(log, 0.65 * (1 - cut))


@FAULTS(
    "update",
    "Reward and accuracy fall at step 14 by far more than the updates can have done: the scorer changed.",
    needs=(r"scorer|reward function|evaluation changed|than (the|these|all) updates? (can|could)|not the policy",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"update (is|was|are) too large"),
)
def scorer_breaks() -> Log:
    chance = changing(14, 0.8, 0.03)
    log = simulate(Shape(565, drift=0.004, noise=0.002), reward=rewards_by(chance))
    return evaluated(log, chance(log.steps["step"]))


@FAULTS(
    "update",
    "Accuracy falls at step 12 and the training reward does not: the evaluation set changed.",
    needs=(
        r"evaluation (set |prompts )?(has )?changed|other (set|evaluation|prompts)|scorer"
        r"|than (the|these|all) updates? (can|could)",
    ),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
)
def evaluation_set_changes() -> Log:
    log = simulate(Shape(566, drift=0.004, noise=0.002))
    return evaluated(log, changing(12, 0.62, 0.24)(log.steps["step"]))


@FAULTS(
    "selection",
    "From step 12 on most prompts are of the hard environment: the reward falls with the mixture.",
    needs=(r"(mixture|environment|prompts).{0,80}(changed|share|mixture|from \d+ ?%|→|hard)",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
)
def mixture_changes() -> Log:
    def setup(responses: Columns) -> None:
        hard = np.where(responses["step"] < 12, 0.2, 0.9)
        responses["environment"] = np.where(share(responses["prompt_id"], 19) < hard, "hard", "easy").astype(object)

    def reward(log: Log) -> Columns:
        chance = np.where(log.responses["environment"] == "hard", 0.12, 0.8)
        return {"reward": (log.rng.random(len(chance)) < chance).astype(float)}

    return simulate(Shape(567, trend=0.0), setup=setup, reward=reward)


@FAULTS(
    "selection",
    "From step 9 on nearly all prompts are always solved: groups of equal reward give no gradient.",
    needs=(r"zero.signal|no (signal|gradient)|too easy|all responses|every advantage 0",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
    columns=("all", "verl"),
)
def prompts_too_easy() -> Log:
    return simulate(Shape(568), reward=rewards_by(changing(9, 0.5, 0.995)))


@FAULTS(
    "selection",
    "Nearly all prompts are too hard: groups of equal reward 0 give no gradient, and nothing is learned.",
    needs=(r"zero.signal|no (signal|gradient)|too hard|every advantage 0",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"too easy"),
    columns=("all", "no versions"),
)
def prompts_too_hard() -> Log:
    log = simulate(Shape(579, trend=0.0), reward=rewards_by(lambda step: 0.02 + 0 * step))
    return evaluated(log, np.full(log.shape.steps, 0.03))


@FAULTS(
    "selection",
    "Half of the tokens is dropped as stale, those of long responses: what is learned from is short.",
    report="tinker-cookbook #822; marin #8936, #8955",
    needs=(r"(dropped|left out|discard).{0,140}(\blong|length|short)|\blong.{0,140}(dropped|left out|discard)",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
)
def stale_ones_dropped() -> Log:
    log = simulate(Shape(569, closing=0.035))
    chance = np.clip((log.responses["n_tokens"] - 30) / 40, 0, 0.8)
    dropped = log.rng.random(len(chance)) < chance
    count = np.bincount(log.responses["step"], log.responses["n_tokens"] * dropped, log.shape.steps)
    log.responses["dropped"] = np.where(dropped, "stale", None)
    log.steps["tokens_dropped_stale"] = count.astype(int)
    return apply_loss(log.keep(~dropped[log.row]))


@FAULTS(
    "update",
    "The learning rate is 0 from step 8 on: the policy stands still, and so does the reward.",
    needs=(r"learning.rate",),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED, r"\bcop(y|ied)\b"),
)
def learning_rate_gone() -> Log:
    def stop(policy: Policy) -> None:
        policy.weights[9:] = policy.weights[8]

    log = simulate(Shape(570, trend=0.0), prepare=stop)
    log.steps["learning_rate"][8:] = 0.0
    return log


@FAULTS(
    "selection",
    "The training reward rises and accuracy does not: the reward is won some other way.",
    report="OpenRLHF #1263",
    needs=(
        r"reward.{0,120}(accuracy|evaluation).{0,60}(not|apart|gap|flat|stays|stayed)"
        r"|gap.{0,60}(reward|evaluation|accuracy)",
    ),
    never=(BROKEN, TEMPERATURE, NEVER_ARRIVED),
)
def reward_without_accuracy() -> Log:
    log = simulate(Shape(571, drift=0.06), reward=rewards_by(changing(4, 0.35, 0.92, over=16)))
    return evaluated(log, np.full(log.shape.steps, 0.42))
