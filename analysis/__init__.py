"""From a run's Parquet files to numbers with intervals, findings and tables. Knows nothing of the dashboard.

from analysis.store import open_run
from analysis.summary import summarise

summary = summarise(open_run("runs/mine"))
"""
