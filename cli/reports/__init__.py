"""Read what ``dlcluster status`` shows; format what ``status`` and ``why`` print."""
