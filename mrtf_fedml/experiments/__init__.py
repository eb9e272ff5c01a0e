"""Comparisons: plan the runs, run them, and report their scores."""
