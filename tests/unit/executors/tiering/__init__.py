"""Tests of the tiering of a broker."""
