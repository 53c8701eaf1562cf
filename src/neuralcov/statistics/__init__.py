"""What training data teach: statistics that one pass fills, and the calibration that holds them."""
