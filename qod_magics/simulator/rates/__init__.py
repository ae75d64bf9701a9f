"""Virtual time with rates of rows: the same applications, controller and policies as live, seeded, exact in rows."""
