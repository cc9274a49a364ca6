"""Train with MXNet instead of PyTorch: its own key-value stores, or Horovod between the ranks.

Keep this file free of imports: MXNet's servers load ``parameter_server`` beside it in the midst of their own import.
"""
