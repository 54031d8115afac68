"""Recorders that fit into other people's trainers: a module is one framework, and imports it when it is used.

An adapter never changes what is trained, and never stops it: when recording fails there is one warning, and no more.
"""
