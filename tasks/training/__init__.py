"""Training: one worker program, its checkpoints, and the stage that runs it."""
