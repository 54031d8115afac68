"""Does what a file says of its values hold: counts in the footer that readers believe, and skip a scan for."""

import pyarrow.compute as pc

from ratioscope.analysis.findings.finding import Finding, Severity, estimated, not_checked, passed
from ratioscope.analysis.linter.check import check
from ratioscope.analysis.linter.evidence import LOG_PROBS, LogEvidence
from ratioscope.run_format.table_files import counted_nonfinite
from ratioscope.storage.parquet import read_table

_BELIEVED = (*LOG_PROBS, "advantage")


@check(order=20)
def footers(evidence: LogEvidence) -> list[Finding]:
    """The counts of values that are not finite, in the files' footers, against the values."""
    looked_at, columns, hidden = 0, set[str](), 0
    for file in evidence.run.files["tokens"]:
        within = evidence.within(file.name.first_step, file.name.last_step)
        if not within or (counted := counted_nonfinite(file.path)) is None:
            continue
        looked_at += 1
        table = read_table(file.path, _BELIEVED)
        for column in table.column_names:
            values = table.column(column)
            n = len(values) - values.null_count - int(pc.sum(pc.is_finite(values)).as_py() or 0)
            if n != counted.get(column, 0):
                columns.add(column)
                hidden += abs(n - counted.get(column, 0))
    if not looked_at:
        return not_checked(
            "No footer counts the values that are not finite: another program wrote the files, or an older ratioscope.",
        )
    if not columns:
        return passed(f"The counts in the footers ({looked_at} file{'s' * (looked_at != 1)}) are those of the values.")
    return [
        Finding(
            f"The footers miscount the values that are not finite, by {hidden:,}, in {', '.join(sorted(columns))}. The "
            "files were changed after they were written, and the summary, which believes the footers, may be wrong.",
            Severity.CRITICAL,
            "Write changed tables with ratioscope.run_format.table_files.write_table_file, or without the old file's "
            "metadata.",
            (estimated("values", hidden),),
            evidence.all_steps,
            tuple(sorted(columns)),
        )
    ]
