"""HLO modules as plans: each instruction becomes operators of a plan, or a number that is known."""
