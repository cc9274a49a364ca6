"""Define the commands that delete what destroyed clusters left behind: file systems and buckets."""
