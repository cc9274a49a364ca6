"""Check the storage that the settings name: bucket and file system."""
