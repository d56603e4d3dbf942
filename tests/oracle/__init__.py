"""An independent judge of plans: loops over ranks in program order, float64, full shapes; shares no computing code with the package."""
