"""Execute schedules for EventBridge Scheduler, which moto only lists."""
