"""Sessions with a name: what they leave beside their checkpoints, and who may write there."""
