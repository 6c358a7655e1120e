"""LightningModules: what is trained, on which loss."""
