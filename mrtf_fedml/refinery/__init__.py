"""The paper's mathematics: pure tensor functions that know no federation and no FedML.

Equations are numbered in the order in which the paper labels them: `feddf-kl` is 1, `rap` is 10.
"""
