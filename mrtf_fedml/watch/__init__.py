"""`mrtf watch`: a live page of a run, read from the files of its folder."""
