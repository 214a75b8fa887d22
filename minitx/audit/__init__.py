"""Cases for every op: what tests and checks run on."""
