"""Every figure and table of the paper, run again: which runs, on which data, and what came of the paper's claims."""
