"""`mrtf bench`: what a round costs, as ratios taken in one run on data made on the spot."""
