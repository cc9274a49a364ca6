"""Act for EventBridge Scheduler, which moto only lists."""
