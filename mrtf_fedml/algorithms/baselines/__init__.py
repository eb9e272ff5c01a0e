"""Algorithms to compare with: FedBE, FedAUX, UWA, and the one-shot controls SHOT and LAME."""
