"""Save checkpoints and resume from them. The trainer imports only these names.

CheckpointManager decides when to save and where all ranks resume (manager, resume). CheckpointStore writes the files of
one machine (store, format, best, completion_marker, prefix_lock, shared_dir) and copies them to S3 (s3_checkpoints).
"""

from trainer.checkpoint.manager import CheckpointManager, CheckpointSaver
from trainer.checkpoint.store import finish_saving_on_exit, open_checkpoint_store

__all__ = ["CheckpointManager", "CheckpointSaver", "finish_saving_on_exit", "open_checkpoint_store"]
