"""From a run's Parquet files to numbers with intervals, findings and tables. Knows nothing of the dashboard.

from ratioscope.analysis.runs.store import open_run
from ratioscope.analysis.summary.summary import summarise

summary = summarise(open_run("runs/mine"))
"""
