"""What the commands do: from a composed config to a record on disk; the entry points are thin."""
