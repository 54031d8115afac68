"""The run format: tables, columns, types, units and meanings, declared once.

A run is a folder of open files:

    run.json                            the manifest (`ratioscope.run_format.manifest`)
    tokens/000000-000009-w0.parquet     first and last step, writer; sorted by step, seq_id, position
    sequences/000000-000009-w0.parquet
    steps/000000-000009-w0.parquet
    probes/000000-000000-w0.parquet     gradient probes, where there are any
    messages/000000-000009-w0.parquet   messages of conversations, where there are any
    vocabulary.parquet                  token_id and its text, for the ids that occur

Files are immutable: written under a name that does not end in .parquet, then renamed. NaN and infinities are stored
as they are, because they are evidence; null means "not logged", and so does a column that is not there. A null is never
filled from another column. Log-probabilities are natural logarithms.

Version 1.1 requires the keys alone, because most programs log less than 1.0 asked for, and has columns for turns,
messages, truncated sampling and where a run came from. Version 1.2 has columns for prompts, failures, broken histories
and teachers. Each adds columns that may be missing: a run of 1.0 is one of 1.1 and of 1.2.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from ratioscope.errors import RunFormatError

SCHEMA_VERSION = "1.2"

# Rounding in a bfloat16 forward pass may lift a log-probability a little above 0; more is an error.
LARGEST_LOG_PROBABILITY = 1e-4

# A row group is the unit of parallel reading; DuckDB is 5-10 times slower below 5,000 rows.
ROW_GROUP_ROWS = 250_000


@dataclass(frozen=True)
class Column:
    """One declared column; `required` columns must be present and may not contain nulls."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    required: bool = False
    words: tuple[str, ...] = ()
    """Of text: the words that readers know. Another one is kept, and the recorder says so."""


@dataclass(frozen=True)
class DeclaredTable:
    """One declared table: what a row is, which columns identify it, and its columns in writing order."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def required(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.required)

    def column(self, name: str) -> Column | None:
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


_INT16, _INT32, _INT64, _FLOAT, _DOUBLE = pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()
_TIME = pa.timestamp("us", tz="UTC")

FAILURES = ("environment", "timeout", "parse", "judge", "length", "aborted")
"""Why a response failed: its environment or a tool broke, ran out of time, its answer could not be read, what scores it
failed, it reached a limit, or somebody ended it."""
HISTORY_BREAKS = ("compaction", "re_rendering", "fork")
"""Why a history is not continued as it was: it was shortened, rendered anew from its messages, or taken up at an
earlier place."""

TOKENS = DeclaredTable(
    name="tokens",
    grain="one response token eligible for the loss in update `step`, or held out of it; padding, prompt and tool "
    "tokens are not rows",
    key=("step", "seq_id", "position"),
    columns=(
        Column("step", _INT32, "update index k", required=True),
        Column("seq_id", _INT64, "response, unique within a step", required=True),
        Column("group_id", _INT64, "prompt group: the unit of dependence; never straddles two files"),
        Column("position", _INT32, "0-based index among the sampled tokens of the response", required=True),
        Column("token_id", _INT32, "token in the vocabulary"),
        Column("behavior_version", _INT32, "policy version that sampled this token"),
        Column("logp_behavior", _FLOAT, "log-probability as the sampler drew it", "nats"),
        Column("logp_behavior_train", _FLOAT, "the same snapshot, recomputed by the training engine", "nats"),
        Column("logp_current", _FLOAT, "log-probability under the policy at the start of the update", "nats"),
        Column("logp_new", _FLOAT, "log-probability under the policy after the update", "nats"),
        Column("logp_gate", _FLOAT, "where the loss evaluated its gate at the last pass; null: logp_current", "nats"),
        Column("logp_reference", _FLOAT, "log-probability under the frozen reference policy", "nats"),
        Column("logp_teacher", _FLOAT, "log-probability under the teacher that the policy is distilled from", "nats"),
        Column("advantage", _FLOAT, "advantage as used in the loss"),
        Column("clipped", pa.bool_(), "the gate removed this token's policy gradient at the last pass"),
        Column("clip_side", pa.int8(), "-1 below the lower bound, 0 inside, +1 above the upper bound"),
        Column("gate", _FLOAT, "gate that the loss applied, in [0, 1]"),
        Column(
            "gradient_weight", _FLOAT, "coefficient of grad log pi in the applied gradient, by autograd of the loss"
        ),
        Column("entropy", _FLOAT, "entropy of the current policy in this state", "nats"),
        Column("tv_current_behavior", _FLOAT, "exact total variation in this state, current against behavior"),
        Column("chi2_current_behavior", _FLOAT, "exact chi-square in this state, current against behavior"),
        Column("kl_behavior_current", _FLOAT, "exact KL(behavior || current) in this state", "nats"),
        Column("tv_new_current", _FLOAT, "exact total variation in this state, new against current"),
        Column("tv_version_spread", _FLOAT, "exact total variation, sampling version against the oldest live version"),
        Column("turn", _INT16, "message of the conversation that the token belongs to, 0-based"),
        Column("kept_mass", _FLOAT, "probability mass that top-k and top-p left where the token was drawn"),
        Column("routing_agreement", _FLOAT, "share of layer and expert choices that sampler and trainer made alike"),
        Column("rejected", pa.string(), "why a mask took the token out of the loss; null: none did"),
        Column("segment_id", _INT16, "stretch of one unbroken history that the token belongs to, 0-based"),
    ),
)

SEQUENCES = DeclaredTable(
    name="sequences",
    grain="one sampled response of update `step`",
    key=("step", "seq_id"),
    columns=(
        Column("step", _INT32, "update index k", required=True),
        Column("seq_id", _INT64, "response, unique within a step", required=True),
        Column("group_id", _INT64, "prompt group"),
        Column("prompt_id", _INT64, "prompt in the task's data"),
        Column("prompt", pa.string(), "prompt text"),
        Column("response", pa.string(), "response text"),
        Column("n_tokens", _INT32, "response tokens", "tokens"),
        Column("reward", _FLOAT, "total reward; parts go into reward_<part> columns"),
        Column("behavior_version_min", _INT32, "oldest policy version that sampled a token of it"),
        Column("behavior_version_max", _INT32, "newest policy version that sampled a token of it"),
        Column("finish_reason", pa.string(), "stop, length, ..."),
        Column("sample_weight", _FLOAT, "weight of the response in the loss"),
        Column(
            "dropped",
            pa.string(),
            'why it was left out of the loss; null: it was not; "held out": no update saw its prompt',
        ),
        Column("source", pa.string(), "where the response came from, when sources are mixed"),
        Column("temperature", _FLOAT, "sampling temperature"),
        Column("top_p", _FLOAT, "nucleus that was sampled from; 1: all"),
        Column("top_k", _INT32, "number of tokens that were sampled from; 0: all"),
        Column("engine", pa.string(), "inference server that sampled it"),
        Column("rank", _INT32, "process of the trainer that learned from it"),
        Column("micro_batch", _INT32, "forward pass of its update that it was in, 0-based; the same on every process"),
        Column("environment", pa.string(), "task or environment, where they are mixed"),
        Column("adapter", pa.string(), "adapter weights it was sampled with"),
        Column("n_turns", _INT32, "sampled messages of the conversation"),
        Column("n_tool_calls", _INT32, "calls of tools"),
        Column("seconds_generating", _FLOAT, "time the sampler worked on it", "s"),
        Column("seconds_waiting", _FLOAT, "time from its end to the update", "s"),
        Column("seconds_tools", _FLOAT, "time spent in tools and environment", "s"),
        Column("truncated", pa.bool_(), "cut off at the length limit"),
        Column("prompt_tokens", _INT32, "tokens of the prompt, before the first sampled one", "tokens"),
        Column("failure", pa.string(), f"why it failed: {', '.join(FAILURES)}; null: it did not", words=FAILURES),
        Column("in_baseline", pa.bool_(), "counts in the baseline of its group, whether it is in the loss or not"),
        Column(
            "history_break",
            pa.string(),
            f"why its segments are several: {', '.join(HISTORY_BREAKS)}; null: not known, or they are not",
            words=HISTORY_BREAKS,
        ),
    ),
)

# Columns of the steps table that count what a filter took away before the loss, and why it did.
DROPPED = {
    "tokens_dropped_stale": "for a ratio beyond ε_stale",
    "tokens_dropped_window": "for a version outside of the window",
    "tokens_dropped_excess_negative": "to balance good and bad responses",
    "tokens_dropped_overlong": "for the missing end of their response",
    "tokens_dropped_no_signal": "in prompt groups with zero signal, which were sampled again",
}

HELD_OUT = "held out"
"""In `dropped`: sampled like the batch, for prompt groups that the update did not see. Its tokens are logged with
logp_current and logp_new, so that an update is judged on what it was not fitted to; no other number takes them."""

STEPS = DeclaredTable(
    name="steps",
    grain="one update; free float columns are named extra_<name>",
    key=("step",),
    columns=(
        Column("step", _INT32, "update index k", required=True),
        Column("policy_version", _INT32, "version of the policy at the start of the update"),
        Column("wall_time", _TIME, "when the update ended"),
        Column("loss", _FLOAT, "value of the loss at the last pass"),
        Column("grad_norm", _FLOAT, "gradient norm before clipping, last pass"),
        Column("learning_rate", _FLOAT, "learning rate of the update"),
        Column("eval_accuracy", _FLOAT, "accuracy on held-out prompts"),
        Column("kl_to_initial", _FLOAT, "KL(current || initial policy), estimated on the batch", "nats"),
        Column("seconds_sampling", _FLOAT, "time spent sampling", "s"),
        Column("seconds_training", _FLOAT, "time spent on forward, backward and the optimiser", "s"),
        Column("seconds_logging", _FLOAT, "time the update waited for the recorder", "s"),
        Column("seconds_probing", _FLOAT, "time spent on gradient probes, noise floor and held-out responses", "s"),
        *(Column(name, _INT64, f"tokens dropped before the loss {why}", "tokens") for name, why in DROPPED.items()),
        Column("noise_floor_shape", _FLOAT, "S between two passes, same weights, other batch shapes"),
        Column("noise_floor_dtype", _FLOAT, "S between two passes, same weights, other number format"),
    ),
)

PROBES = DeclaredTable(
    name="probes",
    grain="one gradient probe: the terms of the SGA lemma (S1 2) at one update, from independent gradient estimates",
    key=("step", "estimator"),
    columns=(
        Column("step", _INT32, "update index k; the probe looks at the policy before it", required=True),
        Column("estimator", pa.string(), "whose gradient estimate is probed", required=True),
        Column("batches", _INT32, "independent batches of each kind"),
        *(
            column
            for name, meaning in (
                ("gradient_norm_squared", "squared norm of the true gradient"),
                ("gradient_dot_bias", "inner product of true gradient and bias"),
                ("bias_norm_squared", "squared norm of the bias"),
                ("variance", "variance of the estimate at the training batch size"),
                ("cosine", "cosine of true gradient and mean estimate; may leave [-1, 1]"),
                ("rescaling", "best common factor on the estimate"),
            )
            for column in (
                Column(name, _DOUBLE, meaning),
                Column(f"{name}_se", _DOUBLE, f"standard error (jackknife) of {name}"),
            )
        ),
        Column("seconds", _FLOAT, "time the probe took", "s"),
    ),
)

MESSAGES = DeclaredTable(
    name="messages",
    grain="one message of a conversation; its sampled tokens are rows of the tokens table, those of others are not",
    key=("step", "seq_id", "turn"),
    columns=(
        Column("step", _INT32, "update index k", required=True),
        Column("seq_id", _INT64, "response that the message is part of", required=True),
        Column("turn", _INT16, "place in the conversation, 0-based", required=True),
        Column("role", pa.string(), "system, user, assistant or tool"),
        Column("content", pa.string(), "text"),
        Column("tool", pa.string(), "name of the tool that it calls or answers for"),
        Column("n_tokens", _INT32, "tokens", "tokens"),
        Column("first_position", _INT32, "position of its first token, of sampled messages"),
        Column("started", _TIME, "when it began"),
        Column("ended", _TIME, "when it ended"),
    ),
)

VOCABULARY = DeclaredTable(
    name="vocabulary",
    grain="one token id that occurs in the run",
    key=("token_id",),
    columns=(
        Column("token_id", _INT32, "token in the vocabulary", required=True),
        Column("text", pa.string(), "text of the token", required=True),
    ),
)

TABLES = {table.name: table for table in (TOKENS, SEQUENCES, STEPS)}
# Rows at some steps only; a run need not have them.
OCCASIONAL_TABLES = {table.name: table for table in (PROBES, MESSAGES)}
ALL_TABLES = TABLES | OCCASIONAL_TABLES

# A step fits into 32 bits.
_FILE_NAME = re.compile(r"([0-9]{6,10})-([0-9]{6,10})-w([0-9]{1,9})\.parquet", re.ASCII)
LAST_STEP = 2**31 - 1


@dataclass(frozen=True, order=True)
class FileName:
    """The name of a table file: the closed step range inside it and the writer that made it."""

    first_step: int
    last_step: int
    writer: int = 0

    def __str__(self) -> str:
        return f"{self.first_step:06d}-{self.last_step:06d}-w{self.writer}.parquet"

    @classmethod
    def parse(cls, name: str) -> "FileName | None":
        """The parts of a complete table file's name; None for temporary and foreign files."""
        match = _FILE_NAME.fullmatch(name)
        found = cls(*map(int, match.groups())) if match else None
        return found if found and found.first_step <= found.last_step <= LAST_STEP else None


def check_version(version: str, where: str) -> None:
    """Refuse a run written by a newer major version of the format.

    Raises:
        RunFormatError: the version is not "major.minor", or its major part is newer than this reader's.
    """
    major = version.split(".", 1)[0]
    if not major.isdecimal():
        raise RunFormatError(f"{where}: schema version {version!r} is not of the form '1.0'; the run cannot be read.")
    if int(major) > int(SCHEMA_VERSION.split(".", 1)[0]):
        raise RunFormatError(
            f"{where}: written in run format {version}, this ratioscope reads up to {SCHEMA_VERSION}; "
            "upgrade ratioscope."
        )


def _same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a reader can use `found` where `declared` stands: any width of the same kind of number, any string."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_timestamp)
    if pa.types.is_null(found):  # a column that was never filled
        return True
    if pa.types.is_string(declared):
        return pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_dictionary(found)
    return any(kind(found) and kind(declared) for kind in kinds)


def check(table: DeclaredTable, found: pa.Schema, where: str | Path) -> None:
    """Hold a file's columns against the declaration; unknown extra columns are allowed.

    Raises:
        RunFormatError: a required column is missing, or a declared column has another kind of type.
    """
    repeated = sorted({name for name in found.names if found.names.count(name) > 1})
    if repeated:
        raise RunFormatError(f"{where}: several columns of the {table.name} table are called {', '.join(repeated)}.")
    missing = [column.name for column in table.required if column.name not in found.names]
    if missing:
        raise RunFormatError(
            f"{where}: the {table.name} table lacks the required column{'s' * (len(missing) > 1)} {', '.join(missing)}."
        )
    for column in table.columns:
        if column.name in found.names and not _same_kind(found.field(column.name).type, column.type):
            raise RunFormatError(
                f"{where}: column {column.name} of the {table.name} table is {found.field(column.name).type}, "
                f"it must be {column.type}."
            )


def describe() -> str:
    """The format as text, for `ratioscope explain format`."""
    lines = [f"Run format {SCHEMA_VERSION}", "", (__doc__ or "").split("\n\n", 1)[1].strip(), ""]
    for table in (*ALL_TABLES.values(), VOCABULARY):
        lines += [f"{table.name}: {table.grain}", f"  key: {', '.join(table.key)}"]
        for column in table.columns:
            mark = "required" if column.required else "optional"
            unit = f" [{column.unit}]" if column.unit else ""
            lines.append(f"  {column.name:<30} {column.type!s:<20} {mark}  {column.meaning}{unit}")
        lines.append("")
    return "\n".join(lines)
