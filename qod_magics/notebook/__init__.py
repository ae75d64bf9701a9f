"""What a notebook sees: the magics, their arguments and completion, and the exercises of the labs."""
