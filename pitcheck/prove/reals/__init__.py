"""Stages on real numbers: at which inputs they are tried, what they decide there, what differs."""
