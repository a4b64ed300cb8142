"""Request dispatch, and the APIs that brokers and the control plane both serve.

Owns: the way from a frame to a handler and back, and the handlers that need only the cluster image.
Must not know brokers' logs or the controller's decisions.
"""
