"""The golden file: a short account of several hundred checks, with which every change of the
checker is compared.
"""
