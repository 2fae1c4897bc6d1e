"""Arguments and signals; what the commands do stands elsewhere."""
