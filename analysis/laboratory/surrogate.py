"""A surrogate that promises a gain where the truth collapses, and how little of it is safe (S4 4.1.1, 4.4, 4.5).

From the first state a way leads to a second one, which the old policy hardly visits; there the new policy loses M.
"""

from ratioscope.analysis.laboratory.experiment import Experiment, Guess, Layer, Meter, Picture, Ruler, Slider, Values
from ratioscope.analysis.laboratory.tools import geometric_steps, show

WRONG = 1e-3
"""η₂, how often the old policy does the wrong thing in the second state."""
ITERATIONS = 10_000
FLOOR = -1.0
"""The lowest share of a promise that is drawn."""


def terms(there: float, wrong: float, to: float, worse: float, M: float, gamma: float) -> list[float]:
    """J of a policy, and of a candidate g and ε of S4 eq. 58.

    Args:
        there: how often the policy goes to the second state.
        wrong: how often it does the wrong thing there.
        to: the same of the candidate, as `there`.
        worse: the same of the candidate, as `wrong`.
    """
    value = 1 - wrong * (1 + M)
    first = (to - there) * gamma * value
    second = (wrong - worse) * (1 + M)
    return [there * gamma * value, first + gamma * there * second, max(abs(first), abs(second))]


def step(g: float, largest: float, gamma: float) -> float:
    """α* of S4 eq. 61, the share of the candidate at which the bound is largest."""
    return min(1.0, (1 - gamma) ** 2 / (4 * gamma) * g / largest) if g > 0 else 0.0


def course(eta: float, M: float, gamma: float, trap: bool) -> list[list[float]]:
    """Iterations of CPI that are drawn, and J after each; the candidate is π′ or the best one by the advantages."""
    there = eta
    wrong = WRONG
    drawn = []
    found = []
    due = 1.0
    for k in range(1, ITERATIONS + 1):
        to = 1.0 if trap or wrong * (1 + M) < 1 else 0.0
        worse = 1.0 if trap else 0.0
        _, g, largest = terms(there, wrong, to, worse, M, gamma)
        share = step(g, largest, gamma)
        there = there + share * (to - there)
        wrong = wrong + share * (worse - wrong)
        if k >= due:
            drawn.append(float(k))
            found.append(there * gamma * (1 - wrong * (1 + M)))
            due = due * 1.1
    return [drawn, found]


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + show(value)


def compute(alpha: float, eta: float, M: float, gamma: float) -> Values:
    """Promise, truth and bound of a share of π′, and where repeated safe steps lead."""
    before, g, largest = terms(eta, WRONG, 1.0, 1.0, M, gamma)
    actual = gamma * (1 - eta) * largest
    feared = 2 * gamma / (1 - gamma) ** 2 * largest
    apart = (1 - gamma) * (1 - eta + gamma * eta * (1 - WRONG))
    mean = feared * apart
    promised = alpha * g
    gained = promised - actual * alpha * alpha
    bound = promised - feared * alpha * alpha
    shares = geometric_steps(1e-7, 1.0, 120)
    inside = [at for at in shares if g > 0 and 1 - at * actual / g > 2 * FLOOR]
    feasible = [at for at in shares if g > 0 and 1 - at * feared / g > 2 * FLOOR]
    milder = [at for at in shares if g > 0 and 1 - at * mean / g > 2 * FLOOR]
    kept = gained / promised if g > 0 else 0.0
    iterations, trapped = course(eta, M, gamma, True)
    _, best = course(eta, M, gamma, False)
    if g <= 0:
        says = (
            f"The surrogate promises no gain of π′ (g = {show(g)}): the old policy visits the second state often "
            + "enough to see the loss. CPI takes no step."
        )
    else:
        says = f"At α = {show(alpha)} the surrogate promises {_signed(promised)}; the truth is {_signed(gained)}. "
        if gained < 0:
            says = says + f"Beyond α = {show(g / actual)} a step loses; the bound allows less than {show(g / feared)}."
        elif bound > 0:
            says = says + f"The bound guarantees {_signed(bound)}."
        else:
            says = (
                says + f"The bound guarantees nothing here: its penalty is {show(feared / actual)} times the true one."
            )
    return {
        "before": before,
        "after": before + gained,
        "promised": promised,
        "gained": gained,
        "ignored": gained - promised,
        "bound": bound,
        "g": g,
        "largest": largest,
        "alpha_bound": step(g, largest, gamma),
        "alpha_best": min(1.0, g / (2 * actual)) if g > 0 else 0.0,
        "careful": feared / actual,
        "careful_mean": mean / actual,
        "alpha": alpha,
        "shares": shares if g > 0 else [],
        "promise": [1.0 for _ in shares] if g > 0 else [],
        "inside": inside,
        "truth": [1 - at * actual / g for at in inside],
        "feasible": feasible,
        "least": [1 - at * feared / g for at in feasible],
        "milder": milder,
        "least_mean": [1 - at * mean / g for at in milder],
        "here": [alpha] if g > 0 else [],
        "kept": [max(kept, 0.93 * FLOOR)] if g > 0 else [],
        "zero": 0.0,
        "iterations": iterations,
        "trapped": trapped,
        "best": best,
        "says": says,
    }


EXPERIMENT = Experiment(
    key="surrogate",
    claim="The surrogate promises +.8, the truth is −90",
    source="S4 4.1.1, 4.4, 4.5",
    prose=(
        "The old policy goes to a second state with probability η, and does well there. The new policy π′ always goes "
        "and loses M. The surrogate weighs states as the old policy visits them, so it hardly sees the loss. "
        "Conservative policy iteration (CPI) takes only a share α of π′, and no more than its bound allows."
    ),
    formula=(
        r"\vermilion{J(\pi_\alpha) - J(\pi)} = \blue{\alpha g} - \gamma(1-\eta)\,\varepsilon\,\alpha^2"
        r"\;\ge\; \green{\alpha g - \frac{2\gamma}{(1-\gamma)^2}\,\varepsilon\,\alpha^2},"
        r"\qquad \alpha^* = \frac{(1-\gamma)^2}{4\gamma}\,\frac{g}{\varepsilon}"
    ),
    compute=compute,
    sliders=(
        Slider("alpha", "α", "share of π′ that is taken", 1e-6, 1, 1, log=True, plays=True),
        Slider("eta", "η", "how often the old policy goes there", 1e-6, 0.5, 1e-4, log=True),
        Slider("M", "M", "what π′ loses there", 0.1, 500, 100, log=True),
        Slider("gamma", "γ", "discount", 0.5, 0.99, 0.9, step=0.01),
    ),
    numbers=(
        Meter("before", "J(π)"),
        Meter("after", "J after the step"),
        Meter("promised", "gain that is promised, αg", "blue"),
        Meter("gained", "true gain", "vermilion"),
        Meter("ignored", "what the surrogate ignores"),
        Meter("bound", "gain that the bound guarantees", "green"),
        Meter("largest", "ε, largest expected advantage"),
        Meter("alpha_bound", "α*, where the bound is largest", "green"),
        Meter("alpha_best", "α where J is largest", "vermilion"),
        Meter("careful", "penalty of the bound ÷ true one", "green"),
        Meter("careful_mean", "with the mean TV, as S0 Theorem 1.1", "amber"),
    ),
    pictures=(
        Picture(
            "How much of the promise comes true",
            Ruler("share of π′ that is taken, α", 1e-6, 2, log=True),
            Ruler("gain ÷ promised gain", FLOOR, 1.2),
            (
                Layer("line", "promised", "shares", "promise", colour="blue"),
                Layer("line", "guaranteed by the bound", "feasible", "least", colour="green"),
                Layer("line", "with the mean TV", "milder", "least_mean", colour="amber", dashed=True),
                Layer("line", "true", "inside", "truth", colour="vermilion"),
                Layer("rule", "", y="zero", colour="grey"),
                Layer("rule", "", x="alpha", colour="grey"),
                Layer("rule", "", x="alpha_bound", colour="green"),
                Layer("dots", "", "here", "kept", colour="vermilion", moves=("alpha", "")),
            ),
        ),
        Picture(
            "Safe steps, again and again",
            Ruler("iterations of CPI, k", 1, ITERATIONS, log=True),
            Ruler("J", 1e-6, 1, log=True),
            (
                Layer("line", "candidate π′: stops before the loss", "iterations", "trapped", colour="vermilion"),
                Layer("line", "candidate with the best advantages", "iterations", "best", colour="green"),
            ),
        ),
    ),
    question=Guess(
        "The surrogate promises a gain for every share of π′. What share may be taken before the step loses?",
        ("nearly all of it", "about a tenth", "less than 1%"),
        right=2,
        because="The gain grows with α, the loss with α²: beyond α = .0088 the loss is larger.",
    ),
    tries={
        "the share that CPI takes": {"alpha": 2.2e-5},
        "the best share": {"alpha": 0.0044},
        "a state that is often visited": {"alpha": 0.0044, "eta": 0.01},
        "a short horizon": {"alpha": 0.001, "gamma": 0.5},
    },
)
