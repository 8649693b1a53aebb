"""What the stress test is made of: trials, the out-of-memory ladder, what a measurement is valid for, calibration."""
