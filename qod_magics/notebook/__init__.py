"""The notebook interface: magics, their arguments and completion, replay, and the exercises of the labs."""
