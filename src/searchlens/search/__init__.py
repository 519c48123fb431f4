"""Controllers, which decide what to generate next, and the driver that keeps thousands of them alive on one engine."""
