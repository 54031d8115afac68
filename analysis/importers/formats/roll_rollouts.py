"""ROLL's `rollout_dump_dir`: rollout_dump_data.step_{n}.jsonl, one line with a list a column, text and scores.

Read against alibaba/ROLL 8eb27cc2: roll/pipeline/rlvr/utils.py (dump_rollout_to_specific_path), which RLVR pipelines
call. Agentic pipelines write columns of their own there, which are not read.
"""

from ratioscope.analysis.importers.paths import at_path
from ratioscope.analysis.importers.plain import Plain, of_text
from ratioscope.analysis.importers.responses import plain_text
from ratioscope.analysis.importers.source import Sign
from ratioscope.analysis.importers.values import as_number

_COLUMNS = ("global_step", "responses", "scores")
_NO_TOKENS = "the files have text and scores, no tokens: save_logging_board_dir makes ROLL write those of the trainer"

IMPORTER = Plain(
    "roll-rollouts",
    "ROLL rollout_dump_dir",
    framework="ROLL",
    files=r"rollout_dump_data\.step_(\d+)\.jsonl",
    keys=_COLUMNS,
    spread="step",
    sequences=(
        ("prompt", "prompt|messages", plain_text),
        ("response", "responses", plain_text),
        ("reward", "scores", as_number),
        ("environment", "domain", plain_text),
        ("source", "source", plain_text),
    ),
    group=lambda record: plain_text(at_path(record, "id|prompt|messages")),
    missing=of_text(_NO_TOKENS),
    assumed=("Responses of a step that have the same id, or without ids the same prompt, are a group.",),
    signs=(Sign("rollout_dump_data.step_*.jsonl", _COLUMNS),),
).importer
