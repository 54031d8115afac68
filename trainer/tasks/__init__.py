"""Verifiable tasks: prompts with answers that a program can check. One file a task."""
