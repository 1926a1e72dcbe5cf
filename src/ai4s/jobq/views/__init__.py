"""What people are told of workflows: where they stand, what happened, who works on them. Nothing here changes anything."""
