"""The commands of OpenHands' benchmarks."""
