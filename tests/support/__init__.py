"""What tests of several packages use: clusters, wires, batches, waiting.  No test lies here."""
