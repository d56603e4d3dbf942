"""The command that verifies certificates."""
