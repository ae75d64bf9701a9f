"""What a notebook sees: the magics, their completion, the live view and the exercises of the labs."""
