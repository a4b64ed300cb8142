"""Tests of the remote log."""
