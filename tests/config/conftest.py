"""Importing the algorithms declares their sections, so that each test can run alone."""

import mrtf_fedml.algorithms  # noqa: F401
