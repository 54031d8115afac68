"""Prompt groups that an update does not see: sampled like its batch, logged, and never in the loss.

The gain that an update is measured to have on its own batch is optimistic, because it was fitted to it. Nothing here
touches the state of the run: with them or without, the policy, its batches and their rows are the same to the bit.
"""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch

from ratioscope.run_format import schema
from ratioscope.run_format.table_files import to_arrow
from ratioscope.trainer.sampling.rollout import TrainingBatch
from ratioscope.trainer.training.preparation import Prepared
from ratioscope.trainer.training.recompute import Recomputed
from ratioscope.trainer.training.update import Learner, UpdateOutcome

Columns = dict[str, Any]
LoggedTables = tuple[Columns, Columns]
"""Of the tokens and of the sequences table."""


@dataclass(frozen=True)
class HeldOut:
    """Responses to such prompts, as they were before the update."""

    batch: TrainingBatch
    prepared: Prepared
    recomputed: Recomputed


def prepared(learner: Learner, step: int, batch: TrainingBatch) -> Prepared:
    """Log-probs under the policy before the update, rewards and advantages as of the batch; no response is left out."""
    preparation = learner.preparation
    schedule = preparation.config.schedule.model_copy(update={"window": None, "epsilon_stale": None})
    everything = replace(
        preparation,
        config=preparation.config.model_copy(update={"schedule": schedule}),
        algorithm=replace(preparation.algorithm, selection="all"),
    )
    return everything.prepare(step, batch, torch.Generator().manual_seed(step), gradient=False)


def outcome(learner: Learner, prepared: Prepared) -> UpdateOutcome:
    """What the policy after the update says of them; what the loss did to a token is null, because it did nothing."""
    with torch.no_grad():
        new = learner.preparation.look(prepared.rollout, prepared.select)
    tokens = prepared.tokens
    columns = {
        "logp_behavior": tokens.logp_behavior,
        "logp_current": tokens.logp_current,
        "logp_new": new.logp,
        "logp_reference": tokens.logp_reference,
        "advantage": tokens.advantage,
        "entropy": prepared.seen.entropy,
    }
    return UpdateOutcome(prepared, columns, new=new.distribution)


def beside(step: int, seen: LoggedTables, unseen: LoggedTables) -> LoggedTables:
    """The rows of a batch and, with ids of their own, those of what was held out of it."""
    tokens, sequences = unseen
    sequences |= {"dropped": [schema.HELD_OUT] * len(sequences["seq_id"]), "sample_weight": None}
    first = {name: int(seen[1][name].max()) + 1 for name in ("seq_id", "group_id")}
    shifted = [rows | {name: rows[name] + ahead for name, ahead in first.items()} for rows in (tokens, sequences)]
    tables = (schema.TOKENS, schema.SEQUENCES)
    return tuple(_joined(table, step, parts) for table, *parts in zip(tables, seen, shifted, strict=True))  # type: ignore[return-value]


def _joined(table: schema.DeclaredTable, step: int, parts: list[Columns]) -> Columns:
    rows = pa.concat_tables([to_arrow(table, part, step) for part in parts], promote_options="default")
    return {name: rows[name].combine_chunks() for name in rows.column_names if name != "step"}
