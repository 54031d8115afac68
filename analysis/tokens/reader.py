"""One sequence as one reads it: its tokens with every ratio and what the gate did, what was logged of it, its group.

reading = read_sequence(run, step=12, seq_id=3)
reading.tokens, reading.logged, reading.group
extremes(reading.tokens["log_rho"], floor=0.1)      # the rows that stand out, the largest first
same_prompt_in(run, other, reading.logged, step=12) # the responses of another run to its prompt
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ratioscope.analysis.runs.database import connect
from ratioscope.analysis.runs.relations import relations, source
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.tokens.worst_sequences import group_of, sequence_tokens
from ratioscope.run_format import schema

# Responses of another run to one prompt: a prompt that comes back every few steps has many.
MOST_RESPONSES = 100

_RATIOS = {"ratio": "log_rho", "ratio_new": "log_rho_new", "ratio_update": "log_update", "ratio_engine": "log_engine"}

TOKEN_NUMBERS = (
    ("position", "position"),
    ("token id", "token_id"),
    ("log p behavior", "logp_behavior"),
    ("log p behavior, recomputed", "logp_behavior_train"),
    ("log p current", "logp_current"),
    ("log p new", "logp_new"),
    ("log p at the gate", "logp_gate"),
    ("log p reference", "logp_reference"),
    ("log p teacher", "logp_teacher"),
    ("ρ current / behavior", "ratio"),
    ("log ρ", "log_rho"),
    ("ratio new / behavior", "ratio_new"),
    ("ratio new / current", "ratio_update"),
    ("ratio recomputed / sampled", "ratio_engine"),
    ("advantage", "advantage"),
    ("gate", "gate"),
    ("loss coefficient", "gradient_weight"),
    ("entropy (nats)", "entropy"),
    ("TV current, behavior", "tv_current_behavior"),
    ("χ² current, behavior", "chi2_current_behavior"),
    ("TV new, current", "tv_new_current"),
    ("behavior version", "behavior_version"),
    ("version lag", "version_lag"),
    ("turn", "turn"),
    ("mass kept by top-k, top-p", "kept_mass"),
    ("routing agreement", "routing_agreement"),
)
"""What is known of a token: in words, and its column; what is no number stands beside it."""

KEPT, PARTLY, BELOW, ABOVE, CLIPPED, UNKNOWN = "kept", "partly", "below", "above", "clipped", "not logged"


@dataclass(frozen=True)
class SequenceReading:
    """A sequence and what belongs to it."""

    step: int
    seq_id: int
    tokens: pd.DataFrame
    """`worst_sequences.sequence_tokens`, and log_update (new to current, nats), log_distance (|log ρ|, nats),
    surprise_sampled and surprise_current (-log p, nats), the ratios themselves (ratio, ratio_new, ratio_update,
    ratio_engine; infinite beyond the floating-point range), and verdict (what the gate did: kept, partly, below, above,
    clipped, not logged). Empty where the loss left the sequence out, because then it has no token rows."""
    logged: Mapping[str, Any]
    """The sequence's row of the sequences table, nulls left out; empty where there is none."""
    group: pd.DataFrame
    """`analysis.tokens.worst_sequences.group_of`."""
    messages: pd.DataFrame
    """Its rows of the messages table by turn, without their times; empty where there are none."""

    @property
    def whole(self) -> "pd.Series[Any]":
        """What the tokens of the sequence say together: its row of the group."""
        return self.group[self.group["seq_id"] == self.seq_id].iloc[0]


def read_sequence(run: Run, step: int, seq_id: int) -> SequenceReading:
    """A sequence of a step, also one whose rows the numbers leave out.

    Raises:
        RatioscopeError: the step has no such sequence, or the vocabulary cannot be read.
    """
    run = replace(run, left_out=())
    group = group_of(run, step, seq_id)
    with relations(run, step, step) as connection:
        rows = connection.execute("select * from sequence where seq_id = ?", [seq_id]).df().to_dict("records")
        (count,) = connection.execute("select count(*) from token where seq_id = ?", [seq_id]).fetchall()[0]
    logged = {str(name): value for name, value in rows[0].items() if not pd.isna(value)} if rows else {}
    tokens = _with_ratios(sequence_tokens(run, step, seq_id)) if count else pd.DataFrame()
    return SequenceReading(step, seq_id, tokens, logged, group, _messages(run, step, seq_id))


def _messages(run: Run, step: int, seq_id: int) -> pd.DataFrame:
    files = [file for file in run.files["messages"] if file.name.first_step <= step <= file.name.last_step]
    with connect(run.places) as connection:
        columns = "turn, role, content, tool, n_tokens, first_position"
        rows = f"select {columns} from {source(files, schema.MESSAGES)} where step = ? and seq_id = ? order by turn"
        return connection.execute(rows, [step, seq_id]).df()


def _with_ratios(tokens: pd.DataFrame) -> pd.DataFrame:
    tokens = tokens.assign(log_update=tokens["log_rho_new"] - tokens["log_rho"])
    with np.errstate(over="ignore"):
        ratios = {ratio: np.exp(tokens[logarithm].astype(float)) for ratio, logarithm in _RATIOS.items()}
    return tokens.assign(
        **ratios,
        log_distance=tokens["log_rho"].abs(),
        surprise_sampled=-tokens["logp_sampled"],
        surprise_current=-tokens["logp_current"],
        verdict=[_verdict(*row) for row in zip(tokens["clipped"], tokens["clip_side"], tokens["gate"], strict=True)],
    )


def _verdict(clipped: Any, side: Any, gate: Any) -> str:
    """What the loss did to a token at its last pass; nulls are what is not logged."""
    if not pd.isna(clipped) and clipped:
        return CLIPPED if pd.isna(side) or side == 0 else BELOW if side < 0 else ABOVE
    if not pd.isna(gate) and gate < 1:
        return PARTLY if gate > 0 else CLIPPED
    return UNKNOWN if pd.isna(clipped) and pd.isna(gate) else KEPT


def extremes(values: "pd.Series[float]", floor: float) -> list[int]:
    """The places of the values beyond ±floor, the largest in size first; NaN is none of them."""
    size = values.abs().to_numpy(dtype=float, na_value=np.nan)
    there = np.flatnonzero(size > floor)
    return [int(place) for place in there[np.argsort(-size[there], kind="stable")]]


@dataclass(frozen=True)
class Elsewhere:
    """The responses of another run to a prompt."""

    frame: pd.DataFrame
    """step, seq_id, response, reward, n_tokens, dropped; those of the nearest step first."""
    reason: str
    """Why there are none; a clause without full stop, empty where there are."""


def same_prompt_in(run: Run, other: Run, logged: Mapping[str, Any], step: int) -> Elsewhere:
    """The responses of `other` to the prompt of one of `run`'s sequences, known by its text or, without one, its id.

    Args:
        logged: of the sequence; see `SequenceReading`.
        step: near which steps to look first.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    text, number = logged.get("prompt"), logged.get("prompt_id")
    nothing = pd.DataFrame(columns=["step", "seq_id", "response", "reward", "n_tokens", "dropped"])
    if text is None and number is None:
        return Elsewhere(nothing, "this run logs neither prompts nor their ids")
    ids = number if run.manifest.task == other.manifest.task else None
    with relations(other) as connection:
        frame = connection.execute(
            f"""
            select step, seq_id, response, reward, n_tokens, dropped from sequence
            where case when prompt is null or $text is null then prompt_id = $id else prompt = $text end
            order by abs(step - $step), step, seq_id limit {MOST_RESPONSES}
            """,
            {"text": text, "id": ids, "step": step},
        ).df()
        (known,) = connection.execute("select count(prompt) + count(prompt_id) from sequence").fetchall()[0]
    if len(frame):
        return Elsewhere(frame, "")
    if not known:
        return Elsewhere(nothing, "that run logs neither prompts nor their ids")
    return Elsewhere(nothing, "that run has no response to this prompt")
