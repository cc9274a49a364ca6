"""Write image folders as RecordIO files, as MXNet's tools/im2rec.py does."""
