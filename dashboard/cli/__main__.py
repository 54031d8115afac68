"""`python -m ratioscope.dashboard.cli` is the console command."""

from ratioscope.dashboard.cli import main

main()
