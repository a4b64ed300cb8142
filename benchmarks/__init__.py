"""Benchmarks: ratios of speed.  Machines are shared and noisy, so two sides are timed in turns."""
