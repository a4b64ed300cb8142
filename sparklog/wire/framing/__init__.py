"""Framing: received bytes -> whole frames.

Owns: the four length bytes of a frame, and the memory that frames are received into.  Must not
know what a frame holds, or sockets.  The modules are the interface.
"""
