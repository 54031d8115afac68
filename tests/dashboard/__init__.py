"""The app's pages, figures and commands, without a browser; the package is not called `dashboard`, which is the app."""
