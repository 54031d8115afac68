"""A part of the tokens that has an advantage and no gradient: of one rank, server or environment, or before a tool."""

from ratioscope.analysis.findings.mark import MarkReading, mark
from ratioscope.analysis.findings.numbers import percent
from ratioscope.analysis.findings.words import named_part
from ratioscope.analysis.linter.evidence import LogEvidence
from ratioscope.analysis.linter.loss_tokens import FEW_OF_LOSS
from ratioscope.analysis.linter.stand_ins import RESPONSE_OWNERS
from ratioscope.analysis.runs.relations import quoted

_ALL, _NONE, _FEWEST_STEPS, _FEWEST = 0.99, 0.05, 3, 10
"""Shares of the tokens of a part without a gradient in which all, or none, are; steps, and tokens of a part in one."""
_LAST_OF_TURN = 16
"""Distances from the end of a turn that are told apart."""
# A token that is certain has no gradient to lose.
_COUNTED = """advantage <> 0 and gradient_weight is not null and logp_current < -1e-2 and not coalesce(clipped, false)
    and coalesce(clip_side, 0) = 0 and coalesce(gate, 1) <> 0 and coalesce(rejected, '') = ''"""


@mark(needs=(("gradient_weight",), ("advantage",), ("logp_current",)), limit=0.9)
def part_without_gradient(evidence: LogEvidence) -> MarkReading | None:
    """Of tokens with an advantage and no gradient, which neither gate nor mask stopped: the share that is all of the
    tokens of a part, while the others have one."""
    n, still = evidence.gradients
    if still < FEW_OF_LOSS:
        return MarkReading(0.0, "") if n else None
    looks = [look for name, title in RESPONSE_OWNERS.items() if (look := _of_owner(evidence, name, title)) is not None]
    turns = _before_tools(evidence)
    return max([*looks, *([turns] if turns is not None else [])], key=lambda look: look.value, default=None)


def _of_owner(evidence: LogEvidence, name: str, title: str) -> MarkReading | None:
    """By who sampled or trained the response."""
    if not evidence.log.has(f"sequences.{name}"):
        return None
    tokens = evidence.frame(
        f"""
        select step, owner, count(*) as n, count(*) filter (gradient_weight = 0) as without
        from usable join (select step, seq_id, any_value({quoted(name)})::varchar as owner from sequence group by all)
            using (step, seq_id)
        where owner is not null and {_COUNTED} group by all order by all
        """
    )
    share, of_step = tokens["without"] / tokens["n"], tokens.groupby("step")
    whole = (share >= _ALL) & (tokens["n"] >= _FEWEST)
    elsewhere = tokens[["n", "without"]].where(~whole, 0).groupby(tokens["step"]).transform("sum")
    lost = tokens[whole & (elsewhere["without"] <= _NONE * elsewhere["n"]) & (elsewhere["n"] > 0)]
    owners = [str(owner) for owner, of in lost.groupby("owner") if len(of) >= _FEWEST_STEPS]
    lost = lost[lost["owner"].isin(owners)]
    if not len(lost) or of_step["owner"].nunique().max() < 2:
        return MarkReading(0.0, "")
    steps, where = tuple(int(step) for step in sorted({*lost["step"]})), named_part(title, owners)
    return _reading(evidence, int(lost["without"].sum()), int(tokens["without"].sum()), where, steps)


def _before_tools(evidence: LogEvidence) -> MarkReading | None:
    """By the distance from the end of a turn that another one follows."""
    if not evidence.log.has("turn"):
        return None
    tokens = evidence.frame(
        f"""
        with of as (
            select *, max(position) over (partition by step, seq_id, turn) - position as distance,
                turn < max(turn) over (partition by step, seq_id) as followed
            from usable
        )
        select step, if(followed and distance < {_LAST_OF_TURN}, distance, null) as distance, count(*) as n,
            count(*) filter (gradient_weight = 0) as without
        from of where {_COUNTED} group by all order by all
        """
    )
    of = tokens.groupby("distance")[["n", "without"]].sum()
    lost = (of["without"] >= _ALL * of["n"]) & (of["n"] >= FEW_OF_LOSS)
    size = int(lost.reindex(range(_LAST_OF_TURN), fill_value=False).cummin().sum())
    inside = tokens["distance"] < size
    others = tokens[~inside]
    if not size or others["without"].sum() > _NONE * others["n"].sum():
        return MarkReading(0.0, "")
    where = f"the last {size} tokens of each turn that another follows" if size > 1 else "the last token of each turn"
    of_step = tokens["without"].where(inside, 0).groupby(tokens["step"]).sum()
    steps = tuple(int(step) for step in of_step.index[of_step > 0])
    return _reading(evidence, int(of_step.sum()), int(tokens["without"].sum()), where, steps)


def _reading(evidence: LogEvidence, lost: int, still: int, where: str, steps: tuple[int, ...]) -> MarkReading:
    return MarkReading(
        lost / still,
        f"gradient_weight is 0 in {still:,} tokens with an advantage, {percent(lost / still)} of them in {where}, "
        f"{evidence.in_steps(steps)}",
        steps, ("gradient_weight",), evidence.rows_where(f"invalid is null and gradient_weight = 0 and {_COUNTED}"),
        place=where,
    )  # fmt: skip
