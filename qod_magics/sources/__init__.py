"""Where rows come from: the protocol `Source`, and a module for each kind of source."""
