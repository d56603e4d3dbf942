"""Reports: findings and verdicts as data, text, JSON, SARIF and workflow commands."""
