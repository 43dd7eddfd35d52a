"""The parts of OpenHands that its benchmarks import, over the workspace of a trial and our own model client."""
