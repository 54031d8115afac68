"""`python -m dashboard.cli` is the console command."""

from dashboard.cli import main

main()
