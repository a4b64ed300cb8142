"""What is done to a simulated cluster while it is watched: clients, each with a task of its own,
and the nemesis.
"""
