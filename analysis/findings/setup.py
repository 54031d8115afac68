"""What was run, as far as the manifest says it, for advice that fits: no clip is widened that is not there.

setup = setup_of(run.manifest)
setup.fresher(facts), setup.smaller_updates, setup.recentre, setup.correction
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ratioscope.analysis.findings.facts import Cause, Facts
from ratioscope.analysis.findings.numbers import capital, number
from ratioscope.rules.gates import GATES, GateKind, GateRow
from ratioscope.rules.parameters import Judged
from ratioscope.rules.weights import WEIGHTS, WeightRow
from ratioscope.run_format.manifest import Manifest, as_finite


@dataclass(frozen=True)
class Setup:
    """Parts of the algorithm and of the schedule; None and empty: the manifest does not say."""

    gate: GateRow | None = None
    weight: WeightRow | None = None
    weight_name: str = ""
    level: str = ""
    """Of the ratios: token, sequence, geometric."""
    selection: str = ""
    """Which responses are learned from."""
    drops_stale: bool = False
    """Whether tokens with a stale ratio are dropped before the loss."""
    passes: int | None = None
    """Gradient passes over a batch, minibatches counted."""
    sync_interval: int | None = None
    sync_offset: int | None = None
    offline: bool = False
    mixes: bool = False
    """Whether a batch mixes versions on purpose."""
    actors: bool = False
    """Whether samplers run beside the trainer, with whatever weights they have."""
    reuse: str = ""
    """The settings of another framework that say how many updates are made of a generation, with their values."""
    foreign: bool = False
    """Whether another framework trained it, which has other names for what the built-in trainer sets."""
    held: float | None = None
    """The largest ratio that kept a gradient, where the gate is seen to stop all larger ones; None: it is not."""

    @property
    def stops(self) -> bool | None:
        """Whether the gate keeps tokens from the gradient."""
        return self.gate.stops if self.gate else None

    @property
    def has_upper_bound(self) -> bool:
        """Whether the gate has an upper bound on the ratio to raise; where the log does not say, it may."""
        return self.gate is None or "epsilon_high" in self.gate.parameters

    @property
    def weighted(self) -> bool | None:
        """Whether the loss multiplies by a ratio of any kind."""
        return self.weight_name != "none" if self.weight_name else None

    @property
    def bounded(self) -> bool:
        """Whether the loss multiplies by a ratio that cannot grow without end."""
        return bool(self.weighted) and self.weight is not None and (not self.weight.unbounded or self.held is not None)

    @property
    def multiplies(self) -> bool:
        """Whether the weight is made of products over whole responses."""
        return bool(self.weight) and (self.level == "sequence" or bool(self.weight and self.weight.sequences))

    @property
    def bounded_words(self) -> str:
        """Of such a loss, what holds its weight. A sentence with its space; empty for any other loss."""
        if self.held is not None:
            largest = number(self.held)
            return f" The {self._stopper} bounds what enters the gradient, where the largest ratio is {largest}."
        return f" The weight of this loss is bounded: {self.weight.words}." if self.bounded and self.weight else ""

    @property
    def _stopper(self) -> str:
        """What the gate is called: of the masks PPO's two clips are called so."""
        return "mask" if self.gate and self.gate.kind is GateKind.MASK and self.gate.name != "dual_clip" else "clip"

    @property
    def smaller_updates(self) -> str:
        """How to move less in an update; without a full stop."""
        if self.passes == 1:
            return "Lower the learning rate"
        if self.passes is None:
            return "Lower the learning rate, or take fewer passes if there are several"
        return f"Lower the learning rate or take fewer passes over a batch ({self.passes} now)"

    @property
    def recentre(self) -> str:
        """A clip that stale data do not use up, or one at all; empty where there is one. A sentence with its space."""
        if self.passes == 1 or (self.gate and self.gate.stops and self.gate.judged is Judged.STEP):
            return ""  # such a clip has no effect in the first pass, in which the policy is the one it is centred at
        if self.gate is None or self.passes is None:
            return " With several passes over a batch, a clip centred at ρ_k (Method One or Two) bounds the update."
        if not self.gate.stops:
            return (
                " This loss has no clip that stops a token: one centred at ρ_k (Method One or Two) bounds the update."
            )
        return " Under stale data centre the clip at ρ_k (Method One: adaptive_clip, Method Two: incremental_clip)."

    def fresher(self, facts: Facts, *, within: bool = False) -> str:
        """How to make the data fresher; empty where they are the policy's own. With a full stop.

        Args:
            within: staleness is what is judged, so that the interval at which it stays within its limit is named.
        """
        if facts.fresh:
            return ""
        if self.offline:
            return "Mix in on-policy samples."
        ways = []
        if self.actors:
            ways.append("let the actors take new weights more often, or shorten their queue")
        elif self.reuse:
            ways.append(f"make fewer updates of a generation ({self.reuse} now)")
        elif self.sync_interval is None or self.sync_interval > 1:
            # Weights that are pushed every n updates are up to n - 1 behind.
            to = facts.lag_within + 1 if within and facts.lag_within is not None else None
            ways.append(
                self._lower("sync_interval", self.sync_interval, to) or "push weights to the sampler more often"
            )
        if not self.actors and (self.sync_offset is None or self.sync_offset > 0):
            ways.append(self._lower("sync_offset", self.sync_offset) or "buffer fewer batches")
        if self.mixes:
            ways.append("mix fewer or newer versions")
        if not ways:
            ways.append("find out why batches wait, because weights are pushed at every update")
        text = ", or ".join(ways)
        return f"{capital(text)}."

    def _lower(self, name: str, value: int | None, to: int | None = None) -> str:
        """What to set, for those who have such a setting; empty for others."""
        if self.foreign:
            return ""
        if value is None:
            return f"lower {name}"
        aim = f" to {to}" if to is not None and to < value else ""
        return f"lower {name}{aim} ({value} now)"

    @property
    def unbounded(self) -> str:
        """Of a loss that neither clips nor weights: what it does with stale tokens. A clause, or empty."""
        if self.stops is not False or self.weighted is not False:
            return ""
        return "this loss neither clips tokens nor weights them by their ratio"

    def against_staleness(self, facts: Facts) -> str:
        """The remedies of staleness; of old data first a loss that stands it, which costs no time, then its source. A
        sentence, or empty."""
        clip = "clip the loss"
        if facts.cause_of_staleness is Cause.ENGINE:
            return f"{self.align.removesuffix('.')}, or {clip}." if self.unbounded else self.align
        source = self.fresher(facts, within=True)
        if not self.unbounded:
            return source
        return f"{capital(clip)}, or {source[0].lower()}{source[1:]}" if source else f"{capital(clip)}."

    def closer(self, facts: Facts) -> str:
        """The remedy of staleness by its cause. Sentences."""
        if facts.cause_of_staleness is Cause.ENGINE:
            return self.align
        text = self.fresher(facts, within=True) + (
            "" if self.drops_stale or facts.fresh else " Or drop tokens with |ρ - 1| > ε_stale."
        )
        if self.unbounded:
            text += f" Until then prefer a clipped loss: {self.unbounded}."
        if facts.cause_of_staleness is Cause.ENGINE_OR_AGE:
            text += " Log logp_behavior_train for some steps to see whether it is the engine."
        return text.strip()

    @property
    def align(self) -> str:
        """The remedy of another engine. Sentences."""
        return f"Align both engines, see Engine{self.keep_denominator}: fresher weights do not remove this."

    @property
    def keep_denominator(self) -> str:
        """What stays right while two engines differ, for a loss that uses the ratio. A clause, or none."""
        return "" if self.weighted is False and self.stops is False else _DENOMINATOR

    @property
    def truncate(self) -> str:
        """The remedy of ratios that are far too large, where the loss multiplies by them. A clause, or empty."""
        if self.bounded or (self.weight is not None and not self.weight.unbounded):
            return ""
        return (
            "Truncate or mask the ratio" if self.weight else "Truncate or mask the ratio, if the loss multiplies by it"
        )

    def lighter(self, facts: Facts) -> str:
        """What takes the weight off the largest ratios, for this loss and these data. Sentences."""
        first = f"{self.truncate}." if self.truncate else ""
        if self.weighted is False:
            return f"{self.fresher(facts)} This loss multiplies by no ratio: nothing to truncate.".strip()
        if self.held is not None:
            return f"Nothing for the loss, whose {self._stopper} holds large ratios. {self.fresher(facts)}".strip()
        if not first:
            first = f"{self.bounded_words.strip()} It need not be truncated further."
        return f"{first} {self.fresher(facts)}".strip()

    @property
    def correction(self) -> str:
        """What the loss does about the ratio, and what it could: for small total variation. A sentence."""
        if self.weighted is None:
            return "Token-level importance sampling with a clip is reasonable here (PPO, GRPO)."
        if self.weighted is False:
            return (
                "This loss has no importance weights; its bias is small while total variation is. Token-level "
                "importance sampling with a clip (PPO, GRPO) is reasonable here."
            )
        if self.level == "sequence":
            return "Weights of whole responses are affordable here; token-level ones with a clip have less variance."
        return "This loss does what is reasonable: token-level importance sampling with a clip."


UNKNOWN = Setup()
_DENOMINATOR = ", and keep the sampler's own log-probs as the denominator"


def setup_of(manifest: Manifest | None) -> Setup:
    """What the manifest says; what it does not say, or says in words that are not known here, stays open."""
    if manifest is None:
        return Setup()
    parts, parameters = manifest.parts, manifest.parameters
    schedule = manifest.schedule
    epochs, minibatches = (_count(parameters.get(key)) for key in ("epochs", "minibatches"))
    weight = str(parts.get("weight", ""))
    mixture = schedule.get("mixture")
    return Setup(
        # A filter stops tokens, too, and what it lets through is not for a gate to say.
        gate=GATES.get(str(parts.get("gate", ""))) if parts.get("filter", "none") == "none" else None,
        weight=WEIGHTS.get(weight),
        weight_name=weight if weight in WEIGHTS else "",
        level=str(parts.get("level", "")),
        selection=str(parts.get("selection", "")),
        drops_stale=as_finite(schedule.get("epsilon_stale")) is not None,
        passes=epochs * (minibatches or 1) if epochs is not None else None,
        sync_interval=_count(schedule.get("sync_interval")),
        sync_offset=_count(schedule.get("sync_offset")),
        offline=schedule.get("offline") is True,
        mixes=isinstance(mixture, list) and len(mixture) > 1,
        actors=bool(_count(schedule.get("actors"))),
        reuse=", ".join(f"{name} {n}" for name in _REUSE if (n := _count(schedule.get(name))) is not None and n > 1),
        foreign=bool(manifest.source),
    )


_REUSE = ("steps_per_generation", "num_iterations")


def _count(value: object) -> int | None:
    number = as_finite(value)
    return int(number) if number is not None and number >= 0 else None


def smoothing_of(sampler: Mapping[str, Any]) -> float:
    """The share of the untruncated policy that a sampler mixes in, so that it can draw every token; 0: none."""
    value = as_finite(sampler.get("smoothing"))
    return value if value is not None and 0 < value <= 1 else 0.0


TRUNCATION = {"top_p": 1.0, "top_k": 0}
ENGINE_DEFAULTS = {"temperature": 1.0, "dtype": "float32", **TRUNCATION}
"""Settings of a sampler with which it is the policy, as the built-in trainer runs it."""


def unusual(sampler: Mapping[str, Any], usual: Mapping[str, object] = MappingProxyType(ENGINE_DEFAULTS)) -> str:
    """The sampler's settings that are not the usual ones, "dtype int8, top_p 0.95"; empty when there are none."""
    return ", ".join(f"{key} {value}" for key, value in unusual_settings(sampler, usual).items())


def unusual_settings(
    sampler: Mapping[str, Any], usual: Mapping[str, object] = MappingProxyType(ENGINE_DEFAULTS)
) -> dict[str, Any]:
    """The sampler's settings that are not the usual ones; "same" is the trainer's, as the built-in trainer writes it.

    They end up in a page's text, so that only numbers and plain words of a log are let through.
    """
    found = {key: sampler.get(key, value) for key, value in usual.items()}
    return {
        key: value
        for key, value in found.items()
        if value not in (usual[key], None, -1, "same") and (isinstance(value, int | float) or str(value).isalnum())
    }
