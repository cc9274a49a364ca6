"""Read datasets of encoded images, which are decoded when their batch is prepared: image folders and RecordIO."""
