"""Speed and memory, as ratios to the plain forward pass of the same model in the same run."""
