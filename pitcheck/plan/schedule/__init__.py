"""The order and time of a plan: who meets whom, what is in flight, and whether all ranks come to an
end.
"""
