"""What is left of a damaged journal, and a journal that starts again.

Owns: reading every file of a journal without stopping at the first damaged one (``survey``,
``salvage``), the commit that makes a journal start again (``repair_plan``), and carrying it out
while nobody uses the journal (``repair``, ``journal_in_use``).  Must not know the command line.
"""
