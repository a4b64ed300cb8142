"""Speed as ratios in one run: machines are shared and noisy, so two things are timed in turns."""
