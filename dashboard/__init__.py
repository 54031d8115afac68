"""The app, its figures and the command line. No arithmetic on metrics: it shows what analysis returns."""
