"""Makes stored/trinity with Trinity-RFT's own code: python -m tests.making.foreign.trinity

Made with trinity-rft 0.6.0 (its package alone, and what its modules import: omegaconf, antlr4-python3-runtime 4.9.3,
ray, sqlalchemy, aiosqlite, greenlet, datasets).
"""

import asyncio
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.making.foreign.truth import Known, conversation, run

FOLDER = Path(__file__).parent / "stored/trinity"


def make(folder: Path = FOLDER) -> None:
    """Experiences as the explorer hands them over, written by `SQLExperienceStorage` as the pipeline does."""
    from trinity.buffer.storage.sql import SQLExperienceStorage
    from trinity.common.config import StorageConfig

    file = folder / "buffer/explorer_output.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    path = f"sqlite:///{file}"
    config = StorageConfig(name="pipeline_input", storage_type="sql", path=path, schema_type="experience")
    storage = SQLExperienceStorage(config)
    for batch, known in enumerate(run(updates=3), start=1):
        asyncio.run(storage.write([experience(batch, one) for one in known]))
    with closing(sqlite3.connect(file)) as connection:  # eight indexes take a page each
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    legacy = folder / "legacy.db"
    legacy.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(legacy)) as connection:  # as rows of Trinity before 0.6, which its reader still takes
        for row, one in enumerate(run(updates=1)[0], start=1):
            pickled = pickle.dumps(experience(1, one))
            connection.execute("UPDATE pipeline_input_blob SET experience_bytes = ? WHERE id = ?", (pickled, row))
        connection.execute("DELETE FROM pipeline_input WHERE id > 2")
        connection.execute("DELETE FROM pipeline_input_blob WHERE id > 2")
        connection.commit()
        connection.execute("VACUUM")


def experience(batch: int, one: Known) -> Any:
    from trinity.common.experience import EID, Experience

    version = int(one.versions[0]) - 1
    several: dict[str, Any] = {}
    if not one.mask.all():
        several = {"action_mask": one.mask.tolist(), "messages": conversation(one)}
    else:
        several = {"prompt_text": one.prompt, "response_text": one.response}
    return Experience(
        eid=EID(batch=batch, task=one.group - (batch - 1) * 3, run=one.index % 2, suffix=f"{one.index:06d}"),
        tokens=one.prompt_ids + one.ids,
        prompt_length=len(one.prompt_ids),
        logprobs=one.placeheld(one.sampler).tolist(),
        reward=one.reward,
        truncate_status="response_truncated" if one.status == "truncated" else None,
        info={"model_version": version, "model_version_drift": int(one.versions[-1]) - 1 - version, "use_count": 0},
        metrics={"accuracy": one.reward},
        **several,
    )


if __name__ == "__main__":
    make()
