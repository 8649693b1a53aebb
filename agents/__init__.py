"""Who proposes and who reports: the proposers, their guard, the task sheet and the reporter. Nothing here decides."""
