"""Verbs that delete what destroyed clusters left: file systems and buckets."""
